#include "model/safetensors.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/units.h"

namespace dak {

namespace {

/// The format's limit on the header, which bounds what a hostile file can make us allocate.
constexpr int64_t kMaxHeaderBytes = 100'000'000;
constexpr int64_t kLengthBytes = 8;

struct StoredType {
    std::string_view name;
    int64_t bits;
};

constexpr std::array<StoredType, 22> kStoredTypes = {{
    {"F32", 32},    {"F16", 16}, {"BF16", 16},       {"F64", 64},        {"I64", 64},
    {"I32", 32},    {"I16", 16}, {"I8", 8},          {"U64", 64},        {"U32", 32},
    {"U16", 16},    {"U8", 8},   {"BOOL", 8},        {"F8_E4M3", 8},     {"F8_E5M2", 8},
    {"F8_E8M0", 8}, {"C64", 64}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"F6_E2M3", 6},
    {"F6_E3M2", 6}, {"F4", 4},
}};

const StoredType& find_stored_type(std::string_view name, std::string_view where) {
    const auto* const found = std::ranges::find(kStoredTypes, name, &StoredType::name);
    require(found != kStoredTypes.end(), "{}: unknown dtype '{}'", where, name);
    return *found;
}

/// A list of non-negative integers.
std::vector<int64_t> read_sizes(const JsonFields& json, std::string_view name) {
    const Json* list = json.find(name);
    require(list && list->is_array(), "{}: field '{}' must be a list", json.where(), name);
    std::vector<int64_t> sizes;
    for (const Json& element : *list) {
        // Numbers past int64_t turn negative here.
        const int64_t size = element.is_number_integer() ? element.get<int64_t>() : -1;
        require(size >= 0, "{}: field '{}' must hold sizes, found {}", json.where(), name,
                element.dump().substr(0, 40));
        sizes.push_back(size);
    }
    return sizes;
}

int64_t bytes_of(const std::vector<int64_t>& shape, int64_t bits, std::string_view where) {
    int64_t total = bits;
    for (const int64_t extent : shape) {
        require(!__builtin_mul_overflow(total, extent, &total),
                "{}: shape {} is larger than any file", where, format_shape(shape));
    }
    require(total % 8 == 0, "{}: shape {} does not end on a byte", where, format_shape(shape));
    return total / 8;
}

/// `offset` of the result still counts from the start of the data.
TensorInfo parse_tensor(const Json& entry, std::string where) {
    const JsonFields json(entry, std::move(where));
    const StoredType& type = find_stored_type(json.get<std::string>("dtype"), json.where());
    TensorInfo tensor{type.name, read_sizes(json, "shape"), 0, 0};
    const std::vector<int64_t> offsets = read_sizes(json, "data_offsets");
    require(offsets.size() == 2 && offsets[0] <= offsets[1],
            "{}: field 'data_offsets' must be a begin and an end", json.where());
    tensor.offset = offsets[0];
    tensor.bytes = offsets[1] - offsets[0];
    const int64_t expected = bytes_of(tensor.shape, type.bits, json.where());
    require(tensor.bytes == expected, "{}: {} of shape {} takes {} bytes, but the offsets give {}",
            json.where(), type.name, format_shape(tensor.shape), expected, tensor.bytes);
    return tensor;
}

/// Tensors must follow each other without gap or overlap and end with the file.
void check_layout(const TensorTable& tensors, int64_t data_begin, int64_t file_size,
                  std::string_view where) {
    std::vector<const TensorTable::value_type*> order;
    for (const auto& entry : tensors) order.push_back(&entry);
    std::ranges::sort(order, {}, [](const auto* entry) {
        return std::pair(entry->second.offset, entry->second.bytes);
    });
    int64_t end = 0;
    for (const auto* entry : order) {
        require(entry->second.offset == end,
                "{}: tensor '{}' starts at byte {} of the data where {} was expected: tensors "
                "overlap or leave a gap",
                where, entry->first, entry->second.offset, end);
        end += entry->second.bytes;
    }
    require(end <= file_size - data_begin,
            "{}: the file is truncated: {} bytes, but its header describes {}; fetch it again",
            where, file_size, static_cast<uint64_t>(data_begin) + static_cast<uint64_t>(end));
    require(end == file_size - data_begin, "{}: {} bytes follow the last tensor", where,
            file_size - data_begin - end);
}

int64_t header_length(const File& file) {
    const std::string where = file.path().string();
    require(
        file.size() >= kLengthBytes,
        "{}: the file is truncated: {} bytes are too few for a safetensors file; fetch it again",
        where, file.size());
    std::array<unsigned char, kLengthBytes> bytes{};
    file.read(0, std::as_writable_bytes(std::span(bytes)));
    uint64_t length = 0;
    for (int64_t i = kLengthBytes - 1; i >= 0; --i)
        length = length << 8 | bytes[static_cast<size_t>(i)];
    require(length >= 2 && length <= kMaxHeaderBytes,
            "{}: no safetensors file: its header would be {} bytes long", where, length);
    require(static_cast<int64_t>(length) <= file.size() - kLengthBytes,
            "{}: the file is truncated: {} bytes, but its header alone takes {}; fetch it again",
            where, file.size(), length + kLengthBytes);
    return static_cast<int64_t>(length);
}

}  // namespace

std::optional<DType> weight_dtype(const TensorInfo& tensor) {
    if (tensor.dtype == "F32") return DType::kF32;
    if (tensor.dtype == "F16") return DType::kF16;
    if (tensor.dtype == "BF16") return DType::kBF16;
    return {};
}

std::string format_shape(std::span<const int64_t> shape) {
    return fmt::format("[{}]", fmt::join(shape, ", "));
}

TensorTable parse_safetensors_header(std::string_view header, int64_t file_size,
                                     std::string_view where) {
    const Json json = parse_json(header, fmt::format("{}: header", where));
    require(json.is_object(), "{}: header: expected a JSON object, found {}", where,
            json.type_name());
    const int64_t data_begin = kLengthBytes + static_cast<int64_t>(header.size());
    TensorTable tensors;
    for (const auto& [name, entry] : json.items()) {
        if (name == "__metadata__") continue;
        tensors.emplace(name, parse_tensor(entry, fmt::format("{}: tensor '{}'", where, name)));
    }
    check_layout(tensors, data_begin, file_size, where);
    for (auto& [name, tensor] : tensors) tensor.offset += data_begin;
    return tensors;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : file_(path) {
    std::string header(static_cast<size_t>(header_length(file_)), '\0');
    file_.read(kLengthBytes, std::as_writable_bytes(std::span(header)));
    tensors_ = parse_safetensors_header(header, file_.size(), path.string());
}

}  // namespace dak
