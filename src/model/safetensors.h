#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/file.h"

namespace dak {

/// One tensor of a safetensors file: row-major, at a place in the file.
struct TensorInfo {
    std::string_view dtype;      ///< the format's name: "BF16", "I64", ...
    std::vector<int64_t> shape;  ///< empty: a scalar
    int64_t offset = 0;          ///< bytes from the start of the file
    int64_t bytes = 0;
};

/// The element type that weights can have, or nothing for the format's other types.
std::optional<DType> weight_dtype(const TensorInfo& tensor);

/// "[32000, 4096]".
std::string format_shape(std::span<const int64_t> shape);

using TensorTable = std::map<std::string, TensorInfo, std::less<>>;

/// Parses the JSON header that starts at byte 8 of a file of `file_size` bytes. Throws Error, named
/// after `where`, unless it describes tensors that fill the rest of the file exactly.
TensorTable parse_safetensors_header(std::string_view header, int64_t file_size,
                                     std::string_view where);

/// A safetensors file: an 8-byte header length, a JSON header, tensor data. Read positionally, not
/// mapped: mapped pages would count as this process's memory. Thread-safe.
class SafetensorsFile {
  public:
    /// Throws Error when the file is missing, truncated or inconsistent.
    explicit SafetensorsFile(const std::filesystem::path& path);

    const std::filesystem::path& path() const { return file_.path(); }
    const TensorTable& tensors() const { return tensors_; }

    /// Fills `destination` with the bytes of `tensor` from its byte `begin` on.
    void read(const TensorInfo& tensor, int64_t begin, std::span<std::byte> destination) const {
        file_.read(tensor.offset + begin, destination);
    }

  private:
    File file_;
    TensorTable tensors_;
};

}  // namespace dak
