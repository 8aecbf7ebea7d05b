#include "ops/cpu/parallel.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "base/error.h"
#include "ops/ops.h"

namespace dak::ops {

namespace {

/// Turns that a thread spins before it sleeps, some 20 us: longer than the pauses between the
/// operations of a decode step, so that workers stay awake through it.
constexpr int kSpins = 500;

/// The state of a job in one word, so that one addition both takes a task and tells of which job:
/// number of the job, number of its tasks, next task.
constexpr int kCountBits = 24;
constexpr uint64_t kCountMask = (uint64_t{1} << kCountBits) - 1;

constexpr uint64_t job_state(uint64_t job, uint64_t count) {
    return (job << (2 * kCountBits)) | (count << kCountBits);
}
constexpr uint64_t job_of(uint64_t state) { return state >> (2 * kCountBits); }
constexpr uint64_t count_of(uint64_t state) { return (state >> kCountBits) & kCountMask; }
constexpr uint64_t next_of(uint64_t state) { return state & kCountMask; }

void pause_briefly() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/// Waits until `ready(value)`: spinning first, then asleep.
template <typename T, typename Ready>
T wait_until(const std::atomic<T>& atomic, Ready&& ready) {
    T value = atomic.load(std::memory_order_acquire);
    for (int spin = 0; spin < kSpins && !ready(value); ++spin) {
        pause_briefly();
        value = atomic.load(std::memory_order_acquire);
    }
    while (!ready(value)) {
        atomic.wait(value, std::memory_order_acquire);
        value = atomic.load(std::memory_order_acquire);
    }
    return value;
}

thread_local bool inside_task = false;

class ThreadPool {
  public:
    explicit ThreadPool(int num_threads) {
        try {
            for (int i = 1; i < num_threads; ++i) workers_.emplace_back([this] { work(); });
        } catch (const std::system_error&) {
            const size_t started = workers_.size() + 1;
            stop();
            fail("the system allows {} of {} threads; ask for fewer", started, num_threads);
        }
    }

    ~ThreadPool() { stop(); }

    int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

    void run(int64_t count, parallel_detail::Function function, void* context) {
        const std::unique_lock lock(in_use_, std::try_to_lock);
        if (inside_task || count == 1 || workers_.empty() || !lock ||
            static_cast<uint64_t>(count) > kCountMask / 2) {
            for (int64_t i = 0; i < count; ++i) function(context, i);
            return;
        }
        function_ = function;
        context_ = context;
        done_.store(0, std::memory_order_relaxed);
        publish(static_cast<uint64_t>(count));
        take_tasks();
        wait_until(done_, [count](int64_t done) { return done == count; });
    }

  private:
    void stop() {
        stopping_ = true;
        publish(0);
        for (std::thread& worker : workers_) worker.join();
    }

    void publish(uint64_t count) {
        const uint64_t job = job_of(state_.load(std::memory_order_relaxed)) + 1;
        state_.store(job_state(job, count), std::memory_order_release);
        state_.notify_all();
    }

    /// A taken task keeps its job from ending, so function_ and context_ are that job's.
    void take_tasks() {
        inside_task = true;
        for (;;) {
            const uint64_t state = state_.fetch_add(1, std::memory_order_acquire);
            const uint64_t count = count_of(state);
            if (next_of(state) >= count) break;
            function_(context_, static_cast<int64_t>(next_of(state)));
            if (done_.fetch_add(1, std::memory_order_release) + 1 == static_cast<int64_t>(count)) {
                done_.notify_all();
            }
        }
        inside_task = false;
    }

    void work() {
        uint64_t job = 0;
        for (;;) {
            job =
                job_of(wait_until(state_, [job](uint64_t state) { return job_of(state) != job; }));
            if (stopping_) return;
            take_tasks();
        }
    }

    std::vector<std::thread> workers_;
    std::mutex in_use_;
    std::atomic<bool> stopping_ = false;
    std::atomic<uint64_t> state_ = 0;
    std::atomic<int64_t> done_ = 0;
    parallel_detail::Function function_ = nullptr;
    void* context_ = nullptr;
};

int available_threads() {
    cpu_set_t cpus;
    if (sched_getaffinity(0, sizeof(cpus), &cpus) == 0) return CPU_COUNT(&cpus);
    return static_cast<int>(std::thread::hardware_concurrency());
}

std::unique_ptr<ThreadPool>& pool() {
    static auto instance = std::make_unique<ThreadPool>(available_threads());
    return instance;
}

}  // namespace

void set_num_threads(int num_threads) {
    require(num_threads >= 0, "the number of threads must not be negative, got {}", num_threads);
    if (num_threads == 0) num_threads = available_threads();
    if (pool()->num_threads() != num_threads) pool() = std::make_unique<ThreadPool>(num_threads);
}

void parallel_detail::run(int64_t count, Function function, void* context) {
    pool()->run(count, function, context);
}

}  // namespace dak::ops
