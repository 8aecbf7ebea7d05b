#include "memory/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/units.h"

namespace dak {

namespace {

class HostWriter final : public ArenaWriter {
  public:
    void write(std::byte* to, int64_t, const Produce& produce) override { produce(to); }
    void finish() override {}
};

}  // namespace

Arena Arena::host(std::string name, int64_t capacity_bytes) {
    require(capacity_bytes >= 0, "{}: negative size", name);
    if (capacity_bytes == 0) return {std::move(name), nullptr, 0, nullptr};
    void* base = ::mmap(nullptr, static_cast<size_t>(capacity_bytes), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) {
        fail("{}: the system refused {} of host memory ({}); free memory or use a smaller model",
             name, format_bytes(capacity_bytes), std::strerror(errno));
    }
    // Advice only: without huge pages the arena works, a little slower.
    ::madvise(base, static_cast<size_t>(capacity_bytes), MADV_HUGEPAGE);
    return {std::move(name), static_cast<std::byte*>(base), capacity_bytes,
            [](std::byte* memory, int64_t bytes) { ::munmap(memory, static_cast<size_t>(bytes)); }};
}

Arena::Arena(std::string name, std::byte* base, int64_t capacity, Release release,
             MakeWriters make_writers)
    : name_(std::move(name)),
      base_(base),
      capacity_(capacity),
      release_(release),
      make_writers_(std::move(make_writers)) {}

Arena::Arena(Arena&& other) noexcept
    : name_(std::move(other.name_)),
      base_(std::exchange(other.base_, nullptr)),
      capacity_(other.capacity_),
      release_(other.release_),
      make_writers_(std::move(other.make_writers_)),
      used_(other.used_) {}

Arena& Arena::operator=(Arena&& other) noexcept {
    std::swap(name_, other.name_);
    std::swap(base_, other.base_);
    std::swap(capacity_, other.capacity_);
    std::swap(release_, other.release_);
    std::swap(make_writers_, other.make_writers_);
    std::swap(used_, other.used_);
    return *this;
}

Arena::~Arena() {
    if (base_) release_(base_, capacity_);
}

std::vector<std::unique_ptr<ArenaWriter>> Arena::writers(int count) const {
    if (make_writers_) return make_writers_(count);
    touch(used_);  // stores past the caches are slow where lines of a page just cleared are cached
    std::vector<std::unique_ptr<ArenaWriter>> writers(static_cast<size_t>(count));
    for (auto& writer : writers) writer = std::make_unique<HostWriter>();
    return writers;
}

void Arena::touch(int64_t bytes) const {
    constexpr int64_t kPiece = 8 * kMiB;  // every layer is spread over the NUMA nodes
    constexpr int64_t kPage = 4096;
    std::atomic<int64_t> next = 0;
    const auto work = [&] {
        for (int64_t begin; (begin = kPiece * next++) < bytes;) {
            for (int64_t at = begin; at < std::min(begin + kPiece, bytes); at += kPage) {
                volatile std::byte& byte = base_[at];
                byte = std::byte{byte};
            }
        }
    };
    const int64_t threads =
        std::min<int64_t>(std::thread::hardware_concurrency(), ceil_div(bytes, kPiece));
    std::vector<std::jthread> helpers;
    for (int64_t i = 1; i < threads; ++i) helpers.emplace_back(work);
    work();
}

std::byte* Arena::allocate(int64_t bytes) {
    const int64_t start = round_up(used_, kAlignment);
    if (bytes < 0 || bytes > capacity_ - start) {
        fail("{}: {} asked of an arena with {} left of {}; this is a planning error, please report",
             name_, format_bytes(bytes), format_bytes(capacity_ - used_), format_bytes(capacity_));
    }
    used_ = start + bytes;
    return base_ + start;
}

}  // namespace dak
