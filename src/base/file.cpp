#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace dak {

File::File(std::filesystem::path path) : path_(std::move(path)) {
    // Without O_NONBLOCK, opening a named pipe would wait for a writer.
    descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor_ < 0) fail("cannot open {}: {}", path_.string(), std::strerror(errno));
    struct stat status {};
    if (::fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
        ::close(descriptor_);
        fail("cannot read {}: not a regular file", path_.string());
    }
    size_ = status.st_size;
}

File::File(File&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(other.size_) {}

File& File::operator=(File&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(descriptor_, other.descriptor_);
    std::swap(size_, other.size_);
    return *this;
}

File::~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
}

void File::read(int64_t offset, std::span<std::byte> destination) const {
    size_t done = 0;
    while (done < destination.size()) {
        const ssize_t got = ::pread(descriptor_, destination.data() + done,
                                    destination.size() - done, offset + static_cast<int64_t>(done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) fail("cannot read {}: {}", path_.string(), std::strerror(errno));
        if (got == 0) {
            fail("{} ends at byte {} where {} more were expected: the file is truncated",
                 path_.string(), offset + static_cast<int64_t>(done), destination.size() - done);
        }
        done += static_cast<size_t>(got);
    }
}

bool path_exists(const std::filesystem::path& path) {
    std::error_code unreadable;
    return std::filesystem::exists(path, unreadable);
}

std::string read_text_file(const std::filesystem::path& path) {
    const File file(path);
    std::string text(static_cast<size_t>(file.size()), '\0');
    file.read(0, std::as_writable_bytes(std::span(text)));
    return text;
}

}  // namespace dak
