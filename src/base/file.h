#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace dak {

/// A file opened for positional reads. Thread-safe: reads share no file offset.
class File {
  public:
    /// Throws Error when the file cannot be opened.
    explicit File(std::filesystem::path path);
    File(File&& other) noexcept;
    File& operator=(File&& other) noexcept;
    ~File();

    const std::filesystem::path& path() const { return path_; }
    int64_t size() const { return size_; }

    /// Fills `destination` from byte `offset` on. Throws Error when the file ends before that.
    void read(int64_t offset, std::span<std::byte> destination) const;

  private:
    std::filesystem::path path_;
    int descriptor_ = -1;
    int64_t size_ = 0;
};

/// Whether there is something at `path` that this process may look at.
bool path_exists(const std::filesystem::path& path);

/// The whole file as text. Throws Error when it cannot be read.
std::string read_text_file(const std::filesystem::path& path);

}  // namespace dak
