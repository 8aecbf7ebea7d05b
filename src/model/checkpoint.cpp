#include "model/checkpoint.h"

#include <algorithm>
#include <array>
#include <set>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/json.h"

namespace dak {

namespace {

constexpr std::string_view kSingleFile = "model.safetensors";
constexpr std::string_view kIndexFile = "model.safetensors.index.json";

/// Throws the Error that says what the folder has instead of safetensors.
[[noreturn]] void fail_without_weights(const std::filesystem::path& model_dir) {
    require(path_exists(model_dir), "{}: no such folder", model_dir.string());
    std::vector<std::string> names;
    std::error_code unreadable;
    for (const auto& entry : std::filesystem::directory_iterator(model_dir, unreadable)) {
        names.push_back(entry.path().filename().string());
    }
    std::ranges::sort(names);  // the first match must not depend on the file system's order
    for (const std::string& name : names) {
        const auto extension = std::filesystem::path(name).extension();
        if (name == "adapter_model.safetensors") {
            fail("{}: holds only an adapter ({}); merge it into its base model first",
                 model_dir.string(), name);
        }
        if (extension == ".safetensors") {
            fail("{}: {} is there, but neither {} nor {}", model_dir.string(), name, kSingleFile,
                 kIndexFile);
        }
        if (extension == ".bin" || extension == ".pt" || extension == ".pth") {
            fail(
                "{}: holds its weights in PyTorch's format only ({}); convert them to safetensors "
                "(save_pretrained of Hugging Face transformers does)",
                model_dir.string(), name);
        }
        if (extension == ".gguf") {
            fail(
                "{}: holds its weights as GGUF only ({}); convert them to a Hugging Face folder "
                "with safetensors",
                model_dir.string(), name);
        }
    }
    fail("{}: no weights there: neither {} nor {}", model_dir.string(), kSingleFile, kIndexFile);
}

}  // namespace

std::map<std::string, std::string> parse_safetensors_index(const Json& json,
                                                           std::string_view where) {
    const JsonFields fields(json, std::string(where));
    const Json* map = fields.find("weight_map");
    require(map && map->is_object() && !map->empty(),
            "{}: field 'weight_map' must name the shard of each tensor", where);
    std::map<std::string, std::string> shards;
    for (const auto& [tensor, shard] : map->items()) {
        require(shard.is_string(), "{}: the shard of tensor '{}' must be a file name, found {}",
                where, tensor, shard.type_name());
        const auto& name = shard.get_ref<const std::string&>();
        const bool plain = !name.empty() && name != "." && name != ".." &&
                           name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
        require(plain, "{}: the shard of tensor '{}' is no plain file name", where, tensor);
        shards.emplace(tensor, name);
    }
    return shards;
}

Checkpoint::Checkpoint(const std::filesystem::path& model_dir) : model_dir_(model_dir) {
    if (path_exists(model_dir / kSingleFile)) {
        files_.emplace_back(model_dir / kSingleFile);
        add_tensors(files_.back());
    } else if (path_exists(model_dir / kIndexFile)) {
        open_shards(model_dir / kIndexFile);
    } else {
        fail_without_weights(model_dir);
    }
}

void Checkpoint::open_shards(const std::filesystem::path& index_path) {
    const auto shard_of = parse_safetensors_index(read_json_file(index_path), index_path.string());
    std::set<std::string> shards;
    for (const auto& [tensor, shard] : shard_of) shards.insert(shard);
    files_.reserve(shards.size());
    for (const std::string& shard : shards) {
        require(path_exists(model_dir_ / shard), "{}: names shard {}, which is not there; fetch it",
                index_path.string(), shard);
        files_.emplace_back(model_dir_ / shard);
    }
    for (const SafetensorsFile& file : files_) add_tensors(file);
    for (const auto& [tensor, shard] : shard_of) {
        const auto found = tensors_.find(tensor);
        require(found != tensors_.end() && found->second.file->path().filename() == shard,
                "{}: tensor '{}' should be in {}, but is not", index_path.string(), tensor, shard);
    }
}

void Checkpoint::add_tensors(const SafetensorsFile& file) {
    for (const auto& [name, info] : file.tensors()) {
        const auto [existing, added] = tensors_.emplace(name, StoredTensor{name, &info, &file});
        require(added, "{}: tensor '{}' is in {} too", file.path().string(), name,
                existing->second.file->path().filename().string());
    }
}

const StoredTensor& Checkpoint::find(std::string_view name) const {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) {
        fail("{}: the checkpoint lacks tensor '{}'; it has {} others{}", model_dir_.string(), name,
             tensors_.size(),
             tensors_.empty() ? "" : fmt::format(", such as '{}'", tensors_.begin()->first));
    }
    return found->second;
}

DType Checkpoint::main_dtype() const {
    std::array<int64_t, 3> bytes{};  // by DType
    for (const auto& [name, tensor] : tensors_) {
        if (const auto dtype = weight_dtype(*tensor.info)) {
            bytes[static_cast<size_t>(*dtype)] += tensor.info->bytes;
        }
    }
    const auto* const most = std::ranges::max_element(bytes);
    require(*most > 0, "{}: no tensor of the checkpoint is bf16, fp16 or fp32",
            model_dir_.string());
    return static_cast<DType>(most - bytes.begin());
}

}  // namespace dak
