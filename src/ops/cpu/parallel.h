#pragma once

#include <cstdint>
#include <type_traits>

namespace dak::ops {

/// Calls `task(i)` once for every i in [0, count), on the threads that set_num_threads() asked for,
/// the calling one among them; returns when all are done. Tasks are taken one by one, so a thread
/// that the system does not run holds nobody up. Tasks must not throw; a task may call
/// parallel_for(), which then runs on its own thread.
template <typename Task>
void parallel_for(int64_t count, Task&& task);

namespace parallel_detail {
using Function = void (*)(void* context, int64_t index);
void run(int64_t count, Function function, void* context);
}  // namespace parallel_detail

template <typename Task>
void parallel_for(int64_t count, Task&& task) {
    parallel_detail::run(
        count,
        [](void* context, int64_t index) {
            (*static_cast<std::remove_reference_t<Task>*>(context))(index);
        },
        const_cast<void*>(static_cast<const void*>(&task)));
}

}  // namespace dak::ops
