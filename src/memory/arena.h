#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/units.h"

namespace dak {

/// One thread's way of filling an arena.
class ArenaWriter {
  public:
    using Produce = std::function<void(std::byte* target)>;

    static constexpr int64_t kMaxPiece = kMiB / 2;

    virtual ~ArenaWriter() = default;

    /// Has `produce` write `bytes` bytes, at most kMaxPiece: straight to `to` where the CPU can,
    /// otherwise to memory from which they are copied while the caller goes on.
    virtual void write(std::byte* to, int64_t bytes, const Produce& produce) = 0;

    /// Returns when all that was written is in place.
    virtual void finish() = 0;
};

/// One contiguous block of memory that is handed out front to back and freed as a whole. A tier
/// has one arena, so its size is known and refused, if at all, before anything is loaded.
class Arena {
  public:
    /// Every allocation starts at a multiple of this: an atom (8 KiB) then never straddles pages
    /// needlessly, and TMA's 1,024-byte alignment holds.
    static constexpr int64_t kAlignment = 1024;

    /// Ordinary host memory, in huge pages where the system allows them. `name` says in errors what
    /// the memory was for. Throws Error with the size asked for when it cannot be had.
    static Arena host(std::string name, int64_t capacity_bytes);

    /// Memory of the current GPU. Throws Error with what was asked for and what is free. Only in
    /// builds with CUDA (dak_memory_cuda), as the next.
    static Arena device(std::string name, int64_t capacity_bytes);

    /// Host memory that the GPU reads in place: in huge pages where the system allows them, touched
    /// by several threads, then registered with the driver. The calling thread should run on the
    /// GPU's NUMA node. Throws Error with what was asked for, the limits that the system
    /// sets, and what to do when it cannot be had or pinned.
    static Arena pinned_host(std::string name, int64_t capacity_bytes);

    /// Memory of GPU `gpu` that the current GPU reads in place: over NVLink or PCIe, or its own
    /// memory when `gpu` is the current one (a remote tier to test with). Throws Error when there
    /// is no such GPU, it cannot be reached, or has no room.
    static Arena peer(std::string name, int64_t capacity_bytes, int gpu);

    /// Memory of a remote tier, "host" or "peer:N", that the current GPU reads in place.
    static Arena remote(std::string_view tier, std::string name, int64_t capacity_bytes);

    Arena(Arena&& other) noexcept;
    Arena& operator=(Arena&& other) noexcept;
    ~Arena();

    /// Throws Error when less than `bytes` is left: the plan that sized the arena was wrong.
    std::byte* allocate(int64_t bytes);

    /// Whether the CPU can write here through the pointers of allocate().
    bool host_writable() const { return !make_writers_; }

    /// One for each of `count` threads, for what is allocated so far. A thread that writes to a GPU
    /// works, from its first write on, with the GPU that was current where the arena was made. The
    /// arena must outlive them.
    std::vector<std::unique_ptr<ArenaWriter>> writers(int count) const;

    const std::string& name() const { return name_; }
    const std::byte* base() const { return base_; }
    int64_t capacity_bytes() const { return capacity_; }
    int64_t used_bytes() const { return used_; }

  private:
    /// First touch is what places and clears pages, at a few GB/s a core: has several threads do so
    /// with the first `bytes` bytes. Changes none.
    void touch(int64_t bytes) const;

    /// Returns the memory to where it came from.
    using Release = void (*)(std::byte* base, int64_t capacity_bytes);
    /// Empty where the CPU can write.
    using MakeWriters = std::function<std::vector<std::unique_ptr<ArenaWriter>>(int count)>;

    Arena(std::string name, std::byte* base, int64_t capacity, Release release,
          MakeWriters make_writers = {});

    /// `gpu` and `advice` are for the error: whose memory it is, and what to do.
    static Arena on_current_gpu(std::string name, int64_t capacity_bytes, std::string_view gpu,
                                std::string_view advice);

    std::string name_;
    std::byte* base_ = nullptr;
    int64_t capacity_ = 0;
    Release release_ = nullptr;
    MakeWriters make_writers_;
    int64_t used_ = 0;
};

/// Where the memory of the two tiers comes from.
struct TierMemory {
    using Source = std::function<Arena(std::string name, int64_t capacity_bytes)>;

    Source local;
    Source remote;

    /// Both are ordinary host memory: execution on the CPU.
    static TierMemory on_host() { return {Arena::host, Arena::host}; }
    /// The current GPU and a remote tier, "host" or "peer:N". Only in builds with CUDA.
    static TierMemory gpu_and(std::string remote_tier) {
        return {Arena::device,
                [tier = std::move(remote_tier)](std::string name, int64_t capacity_bytes) {
                    return Arena::remote(tier, std::move(name), capacity_bytes);
                }};
    }
};

}  // namespace dak
