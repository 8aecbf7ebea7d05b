#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/json.h"
#include "temp_folder.h"

// Model folders made for tests.

namespace dak::testing_support {

/// A tensor to be written: row-major bytes and what the header says about them.
struct TestTensor {
    std::string dtype;
    std::vector<int64_t> shape;
    std::string bytes;
};

/// By name; written in this order.
using TestTensors = std::map<std::string, TestTensor>;

inline TestTensor make_tensor(DType dtype, std::vector<int64_t> shape,
                              const std::vector<float>& values) {
    static constexpr const char* kNames[] = {"F32", "F16", "BF16"};  // by DType
    TestTensor tensor{kNames[static_cast<int>(dtype)], std::move(shape), {}};
    visit_dtype(dtype, [&](auto element) {
        for (const float value : values) {
            element = from_float<decltype(element)>(value);
            tensor.bytes.append(reinterpret_cast<const char*>(&element), sizeof(element));
        }
    });
    return tensor;
}

/// An 8-byte little-endian length and the header.
inline std::string safetensors_prefix(const std::string& header) {
    std::string bytes;
    for (int i = 0; i < 8; ++i) bytes += static_cast<char>(header.size() >> (8 * i) & 0xff);
    return bytes + header;
}

inline std::string safetensors_bytes(const TestTensors& tensors) {
    Json header = {{"__metadata__", {{"format", "pt"}}}};
    std::string data;
    for (const auto& [name, tensor] : tensors) {
        header[name] = {{"dtype", tensor.dtype},
                        {"shape", tensor.shape},
                        {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
        data += tensor.bytes;
    }
    return safetensors_prefix(header.dump()) + data;
}

/// Spreads `tensors` over `count` shards, with an index.
inline void write_shards(const TempFolder& folder, const TestTensors& tensors, size_t count) {
    std::vector<TestTensors> shards(count);
    Json map;
    size_t next = 0;
    for (const auto& [name, tensor] : tensors) {
        const size_t shard = next++ % count;
        shards[shard].emplace(name, tensor);
        map[name] = fmt::format("model-{}.safetensors", shard);
    }
    for (size_t i = 0; i < count; ++i) {
        folder.write(fmt::format("model-{}.safetensors", i), safetensors_bytes(shards[i]));
    }
    folder.write("model.safetensors.index.json", Json{{"weight_map", map}}.dump());
}

/// The value of a tensor's element: depends on its name and place, exact in every weight type.
inline float test_value(const std::string& tensor, int64_t index) {
    uint32_t hash = 2166136261u;
    for (const char c : tensor) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
    hash = (hash ^ static_cast<uint32_t>(index)) * 2654435761u;
    return static_cast<float>(static_cast<int>(hash >> 16 & 0xff) - 128) / 64.0f;
}

inline TestTensor make_test_tensor(const std::string& name, DType dtype,
                                   const std::vector<int64_t>& shape) {
    int64_t count = 1;
    for (const int64_t extent : shape) count *= extent;
    std::vector<float> values;
    for (int64_t i = 0; i < count; ++i) values.push_back(test_value(name, i));
    return make_tensor(dtype, shape, values);
}

}  // namespace dak::testing_support
