#include "memory/arena.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/units.h"

namespace dak {

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

Arena::Arena(std::string name, std::byte* base, int64_t capacity, Release release, Write write)
    : name_(std::move(name)),
      base_(base),
      capacity_(capacity),
      release_(release),
      write_(std::move(write)) {}

Arena::Arena(Arena&& other) noexcept
    : name_(std::move(other.name_)),
      base_(std::exchange(other.base_, nullptr)),
      capacity_(other.capacity_),
      release_(other.release_),
      write_(std::move(other.write_)),
      used_(other.used_) {}

Arena& Arena::operator=(Arena&& other) noexcept {
    std::swap(name_, other.name_);
    std::swap(base_, other.base_);
    std::swap(capacity_, other.capacity_);
    std::swap(release_, other.release_);
    std::swap(write_, other.write_);
    std::swap(used_, other.used_);
    return *this;
}

Arena::~Arena() {
    if (base_) release_(base_, capacity_);
}

void Arena::write(std::byte* to, const std::byte* from, int64_t bytes) {
    if (write_) {
        write_(to, from, bytes);
    } else if (bytes > 0) {
        std::memcpy(to, from, static_cast<size_t>(bytes));
    }
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
