#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "model/safetensors.h"

namespace dak {

/// Where a tensor of a checkpoint lies.
struct StoredTensor {
    std::string_view name;
    const TensorInfo* info = nullptr;
    const SafetensorsFile* file = nullptr;

    /// Fills `destination` with the tensor's bytes from its byte `begin` on.
    void read(int64_t begin, std::span<std::byte> destination) const {
        file->read(*info, begin, destination);
    }
};

/// The shard of each tensor, from a model.safetensors.index.json. Throws Error, named after
/// `where`, when it is no such index or names files outside its folder.
std::map<std::string, std::string> parse_safetensors_index(const Json& json,
                                                           std::string_view where);

/// The tensors of a model folder: model.safetensors, or the shards that
/// model.safetensors.index.json lists. Only headers are read on construction. Thread-safe.
class Checkpoint {
  public:
    /// Throws Error when a file is missing, truncated or inconsistent, or when the folder holds its
    /// weights in some other format.
    explicit Checkpoint(const std::filesystem::path& model_dir);
    Checkpoint(Checkpoint&&) = default;

    const std::filesystem::path& model_dir() const { return model_dir_; }

    bool has(std::string_view name) const { return tensors_.contains(name); }

    /// Throws Error when there is no such tensor. The result refers to this checkpoint.
    const StoredTensor& find(std::string_view name) const;

    /// The weight type of most of the bytes. Throws Error when there is none.
    DType main_dtype() const;

  private:
    void open_shards(const std::filesystem::path& index_path);
    void add_tensors(const SafetensorsFile& file);

    std::filesystem::path model_dir_;
    std::vector<SafetensorsFile> files_;
    std::map<std::string_view, StoredTensor> tensors_;  ///< keys lie in files_
};

}  // namespace dak
