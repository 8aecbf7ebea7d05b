#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "memory/arena.h"
#include "memory/tier.h"

namespace dak {
namespace {

std::string memlock_limit() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return "unknown";
    if (limit.rlim_cur == RLIM_INFINITY) return "unlimited";
    return format_bytes(static_cast<int64_t>(limit.rlim_cur));
}

/// The limit of the process's own control group, as the kernel prints it: bytes or "max".
std::string cgroup_limit() {
    std::ifstream self("/proc/self/cgroup");
    for (std::string line; std::getline(self, line);) {
        if (line.rfind("0::", 0) != 0) continue;
        std::ifstream file("/sys/fs/cgroup" + line.substr(3) + "/memory.max");
        std::string limit;
        if (file >> limit) {
            return limit == "max" ? "unlimited" : format_bytes(std::stoll(limit));
        }
    }
    return "unknown";
}

void require_success(cudaError_t status, std::string_view what) {
    if (status == cudaSuccess) return;
    cudaGetLastError();  // what failed here is reported here, not by the next launch
    fail("{}: {}", what, cudaGetErrorString(status));
}

int current_gpu() {
    int gpu = 0;
    require_success(cudaGetDevice(&gpu), "current GPU");
    return gpu;
}

/// Makes a GPU current for a scope.
class GpuScope {
  public:
    explicit GpuScope(int gpu) { require_success(cudaSetDevice(gpu), "switching to another GPU"); }
    GpuScope(const GpuScope&) = delete;
    GpuScope& operator=(const GpuScope&) = delete;
    ~GpuScope() { cudaSetDevice(previous_); }

  private:
    int previous_ = current_gpu();
};

/// Copies from two pinned buffers, so that the copy engine works at the link's rate: one is filled
/// while the other is on its way. Each has a stream, so that neither waits for a copy of another
/// thread.
class GpuWriter final : public ArenaWriter {
  public:
    static constexpr int64_t kStagingBytes = 2 * kMaxPiece;

    /// `staging` has `kStagingBytes` left; GPU `gpu` is current.
    GpuWriter(int gpu, std::shared_ptr<Arena> staging) : gpu_(gpu), staging_(std::move(staging)) {
        for (Buffer& buffer : buffers_) {
            buffer.memory = staging_->allocate(kMaxPiece);
            require_success(cudaStreamCreateWithFlags(&buffer.stream, cudaStreamNonBlocking),
                            "upload stream");
        }
    }

    /// A new thread works with GPU 0, whatever the one that started it does, so it is given its
    /// GPU here. It keeps it: going back would take memory of GPU 0 for a context that nothing
    /// needs.
    void write(std::byte* to, int64_t bytes, const Produce& produce) override {
        require_success(cudaSetDevice(gpu_), "upload GPU");
        const Buffer& buffer = buffers_[next_];
        next_ = 1 - next_;
        wait_for(buffer);
        produce(buffer.memory);
        require_success(cudaMemcpyAsync(to, buffer.memory, static_cast<size_t>(bytes),
                                        cudaMemcpyDefault, buffer.stream),
                        "copying to the GPU");
    }

    void finish() override {
        for (const Buffer& buffer : buffers_) wait_for(buffer);
    }

  private:
    struct Buffer {
        Buffer() = default;
        Buffer(const Buffer&) = delete;
        Buffer& operator=(const Buffer&) = delete;
        ~Buffer() {
            if (stream == nullptr) return;
            cudaStreamSynchronize(stream);  // after an error, a copy may still be on its way
            cudaStreamDestroy(stream);
        }

        std::byte* memory = nullptr;
        cudaStream_t stream = nullptr;
    };

    static void wait_for(const Buffer& buffer) {
        require_success(cudaStreamSynchronize(buffer.stream), "copying to the GPU");
    }

    int gpu_;
    std::shared_ptr<Arena> staging_;
    std::array<Buffer, 2> buffers_;  ///< of staging_, so they end first
    size_t next_ = 0;
};

/// Writers with GPU `gpu`. Their staging memory is pinned in one piece: each piece costs
/// milliseconds.
auto writers_of(int gpu) {
    return [gpu](int count) {
        const GpuScope scope(gpu);
        const auto staging = std::make_shared<Arena>(
            Arena::pinned_host("upload buffers", count * GpuWriter::kStagingBytes));
        std::vector<std::unique_ptr<ArenaWriter>> writers(static_cast<size_t>(count));
        for (auto& writer : writers) writer = std::make_unique<GpuWriter>(gpu, staging);
        return writers;
    };
}

/// Lets the current GPU read and write the memory of GPU `gpu`.
void enable_peer_access(const std::string& name, int current, int gpu) {
    int gpus = 0;
    require_success(cudaGetDeviceCount(&gpus), "number of GPUs");
    require(gpu >= 0 && gpu < gpus, "{}: there is no GPU {}; this machine has {}", name, gpu, gpus);
    if (gpu == current) return;
    int reachable = 0;
    require_success(cudaDeviceCanAccessPeer(&reachable, current, gpu), "peer access");
    require(reachable != 0,
            "{}: GPU {} cannot read the memory of GPU {} ('dak info' lists peers); use the host "
            "tier",
            name, current, gpu);
    const cudaError_t status = cudaDeviceEnablePeerAccess(gpu, 0);
    if (status == cudaErrorPeerAccessAlreadyEnabled) {
        cudaGetLastError();
    } else {
        require_success(status, name);
    }
}

void release_pinned(std::byte* base, int64_t bytes) {
    cudaHostUnregister(base);
    ::munmap(base, static_cast<size_t>(bytes));
}

}  // namespace

Arena Arena::device(std::string name, int64_t capacity_bytes) {
    return on_current_gpu(std::move(name), capacity_bytes, "the GPU",
                          "free memory or offload more");
}

Arena Arena::on_current_gpu(std::string name, int64_t capacity_bytes, std::string_view gpu,
                            std::string_view advice) {
    require(capacity_bytes >= 0, "{}: negative size", name);
    if (capacity_bytes == 0) return {std::move(name), nullptr, 0, nullptr};
    void* base = nullptr;
    const cudaError_t status = cudaMalloc(&base, static_cast<size_t>(capacity_bytes));
    if (status != cudaSuccess) {
        cudaGetLastError();  // what failed here is reported here, not by the next launch
        size_t free = 0, total = 0;
        cudaMemGetInfo(&free, &total);
        fail("{}: {} refused {} ({}; {} of its {} are free); {}", name, gpu,
             format_bytes(capacity_bytes), cudaGetErrorString(status),
             format_bytes(static_cast<int64_t>(free)), format_bytes(static_cast<int64_t>(total)),
             advice);
    }
    return {std::move(name), static_cast<std::byte*>(base), capacity_bytes,
            [](std::byte* memory, int64_t) { cudaFree(memory); }, writers_of(current_gpu())};
}

Arena Arena::peer(std::string name, int64_t capacity_bytes, int gpu) {
    const int current = current_gpu();
    enable_peer_access(name, current, gpu);
    const GpuScope scope(gpu);
    Arena arena = on_current_gpu(std::move(name), capacity_bytes, fmt::format("GPU {}", gpu),
                                 "free memory there or offload less");
    if (arena.make_writers_) arena.make_writers_ = writers_of(current);
    return arena;
}

Arena Arena::remote(std::string_view tier, std::string name, int64_t capacity_bytes) {
    const std::optional<int> gpu = peer_of(tier);
    return gpu ? peer(std::move(name), capacity_bytes, *gpu)
               : pinned_host(std::move(name), capacity_bytes);
}

Arena Arena::pinned_host(std::string name, int64_t capacity_bytes) {
    Arena pages = host(std::move(name), capacity_bytes);
    if (capacity_bytes == 0) return pages;
    pages.touch(capacity_bytes);
    // In one piece: a copy that crosses from one registration into another is refused.
    const cudaError_t status =
        cudaHostRegister(pages.base_, static_cast<size_t>(capacity_bytes), cudaHostRegisterDefault);
    if (status != cudaSuccess) {
        cudaGetLastError();  // what failed here is reported here, not by the next launch
        fail(
            "{}: the driver refused to pin {} of host memory ({}); locked memory limit (ulimit "
            "-l): {}, control group limit: {}; raise these, free host memory, or offload less",
            pages.name_, format_bytes(capacity_bytes), cudaGetErrorString(status), memlock_limit(),
            cgroup_limit());
    }
    pages.release_ = release_pinned;
    return pages;
}

}  // namespace dak
