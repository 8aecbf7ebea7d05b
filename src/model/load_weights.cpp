#include <algorithm>
#include <cstring>
#include <utility>

#include "model/architecture.h"
#include "model/checkpoint.h"
#include "model/weight_builder.h"

namespace dak {

namespace {

/// Whether no element is NaN or infinite, that is, has an exponent of all ones. Branch-free and
/// signed, which every x86-64 can vectorise.
bool all_finite(std::span<const std::byte> bytes, DType dtype) {
    const auto scan = [&]<typename Bits>(Bits exponent) {
        Bits worst = 0;
        for (size_t at = 0; at < bytes.size(); at += sizeof(Bits)) {
            Bits bits;
            std::memcpy(&bits, bytes.data() + at, sizeof(Bits));
            worst = std::max(worst, static_cast<Bits>(bits & exponent));
        }
        return worst != exponent;
    };
    switch (dtype) {
        case DType::kF32:
            return scan(int32_t{0x7f800000});
        case DType::kF16:
            return scan(int16_t{0x7c00});
        case DType::kBF16:
            return scan(int16_t{0x7f80});
    }
    return false;
}

void convert(std::span<const std::byte> source, DType from, std::byte* destination, DType to) {
    visit_dtype(from, [&](auto source_element) {
        visit_dtype(to, [&](auto element) {
            using Source = decltype(source_element);
            using Target = decltype(element);
            const size_t count = source.size() / sizeof(Source);
            for (size_t i = 0; i < count; ++i) {
                std::memcpy(&source_element, source.data() + i * sizeof(Source), sizeof(Source));
                element = from_float<Target>(to_float(source_element));
                std::memcpy(destination + i * sizeof(Target), &element, sizeof(Target));
            }
        });
    });
}

/// A tensor of the checkpoint that is known to have the right shape and a type we can read.
struct Source {
    const StoredTensor* tensor;
    DType dtype;

    /// Reads `count` elements from element `begin` on as `wanted`, refusing those that are not
    /// finite or do not fit.
    void read(int64_t begin, int64_t count, DType wanted, std::byte* destination,
              std::vector<std::byte>& scratch) const {
        const int64_t size = size_of(dtype);
        std::byte* target = destination;
        if (dtype != wanted) {
            scratch.resize(std::max(scratch.size(), static_cast<size_t>(count * size)));
            target = scratch.data();
        }
        const std::span<std::byte> stored(target, static_cast<size_t>(count * size));
        tensor->read(begin * size, stored);
        require(all_finite(stored, dtype),
                "{}: tensor '{}' holds NaN or infinity: the checkpoint is damaged",
                tensor->file->path().string(), tensor->name);
        if (dtype == wanted) return;
        convert(stored, dtype, destination, wanted);
        const std::span<const std::byte> converted(destination,
                                                   static_cast<size_t>(count * size_of(wanted)));
        require(all_finite(converted, wanted),
                "{}: tensor '{}' has values beyond the range of {}; use {}",
                tensor->file->path().string(), tensor->name, name_of(wanted),
                name_of(wanted == DType::kF16 ? DType::kBF16 : DType::kF32));
    }
};

/// Resolves the names and checks the shapes of a model's tensors.
class TensorResolver {
  public:
    TensorResolver(const Checkpoint& checkpoint, const ModelConfig& config)
        : checkpoint_(checkpoint),
          config_(config),
          names_(find_architecture(config.architecture, checkpoint.model_dir().string()).tensors),
          prefix_(find_prefix()) {}

    /// What packed weight `spec` is made of: one matrix, q, k and v, or gate and up.
    std::vector<Source> sources(const WeightSpec& spec) const {
        const int64_t layer = spec.layer;
        const int64_t cols = spec.shape.cols;
        const int64_t rows = spec.shape.rows;
        switch (spec.role) {
            case WeightRole::kEmbedding:
                return {weight(inner(names_.embedding), rows, cols)};
            case WeightRole::kPositions:
                return {weight(inner(names_.positions), rows, cols)};
            case WeightRole::kProjectIn:
                return {weight(inner(names_.project_in), rows, cols)};
            case WeightRole::kQkv:
                return {weight(inner(names_.q, layer), config_.q_size(), cols),
                        weight(inner(names_.k, layer), config_.kv_size(), cols),
                        weight(inner(names_.v, layer), config_.kv_size(), cols)};
            case WeightRole::kOutput:
                return {weight(inner(names_.output, layer), rows, cols)};
            case WeightRole::kUp:
                if (!config_.gated_mlp) return {weight(inner(names_.up, layer), rows, cols)};
                return {weight(inner(names_.gate, layer), config_.intermediate_size, cols),
                        weight(inner(names_.up, layer), config_.intermediate_size, cols)};
            case WeightRole::kDown:
                return {weight(inner(names_.down, layer), rows, cols)};
            case WeightRole::kProjectOut:
                return {weight(inner(names_.project_out), rows, cols)};
            case WeightRole::kLmHead:
                return {weight(std::string(names_.lm_head), rows, cols)};
        }
        fail("internal error: unknown weight role {}", static_cast<int>(spec.role));
    }

    ModelVectors vectors() const {
        ModelVectors vectors;
        for (int64_t i = 0; i < config_.num_layers; ++i) vectors.layers.push_back(layer_vectors(i));
        if (config_.final_norm) vectors.final_norm = norm(inner(names_.final_norm));
        return vectors;
    }

    /// A checkpoint may carry the LM head beside the embedding that it is tied to, if it is equal.
    void check_tied_head() const {
        const std::string head_name = std::string(names_.lm_head) + ".weight";
        if (!config_.tied_embeddings || !checkpoint_.has(head_name)) return;
        const StoredTensor& head = checkpoint_.find(head_name);
        const StoredTensor& embedding = checkpoint_.find(inner(names_.embedding) + ".weight");
        require(equal(head, embedding),
                "{}: tensors '{}' and '{}' differ, but config.json says that they are one; set "
                "\"tie_word_embeddings\" to false there",
                checkpoint_.model_dir().string(), head.name, embedding.name);
    }

  private:
    LayerWeights layer_vectors(int64_t layer) const {
        LayerWeights vectors;
        vectors.attention_norm = norm(inner(names_.attention_norm, layer));
        vectors.mlp_norm = norm(inner(names_.mlp_norm, layer));
        if (config_.has_step(LayerStep::kQkNorm)) {
            vectors.q_norm.weight =
                vector(inner(names_.q_norm, layer) + ".weight", config_.head_dim);
            vectors.k_norm.weight =
                vector(inner(names_.k_norm, layer) + ".weight", config_.head_dim);
        }
        vectors.qkv.bias = bias(names_.q, layer, config_.q_size(), config_.qkv_bias);
        for (const std::string_view part : {names_.k, names_.v}) {
            const auto more = bias(part, layer, config_.kv_size(), config_.qkv_bias);
            vectors.qkv.bias.insert(vectors.qkv.bias.end(), more.begin(), more.end());
        }
        vectors.output.bias = bias(names_.output, layer, config_.hidden_size, config_.output_bias);
        vectors.up.bias = bias(names_.up, layer, config_.intermediate_size, config_.mlp_bias);
        if (config_.gated_mlp) {
            vectors.up.bias = interleave_bias(
                bias(names_.gate, layer, config_.intermediate_size, config_.mlp_bias),
                vectors.up.bias);
        }
        vectors.down.bias = bias(names_.down, layer, config_.hidden_size, config_.mlp_bias);
        return vectors;
    }

    std::string_view find_prefix() const {
        for (const std::string_view prefix : names_.prefixes) {
            if (checkpoint_.has(fmt::format("{}{}.weight", prefix, names_.embedding))) {
                return prefix;
            }
        }
        return names_.prefixes[0];
    }

    std::string inner(std::string_view module, int64_t layer = -1) const {
        return std::string(prefix_) + fmt::format(fmt::runtime(module), layer);
    }

    Source find(const std::string& name, const std::vector<int64_t>& shape) const {
        const StoredTensor& tensor = checkpoint_.find(name);
        const std::string where = tensor.file->path().string();
        require(tensor.info->shape == shape,
                "{}: tensor '{}' has shape {}, but config.json asks for {}", where, name,
                format_shape(tensor.info->shape), format_shape(shape));
        const auto dtype = weight_dtype(*tensor.info);
        require(dtype.has_value(),
                "{}: tensor '{}' is of type {}; weights must be BF16, F16 or F32", where, name,
                tensor.info->dtype);
        return {&tensor, *dtype};
    }

    Source weight(const std::string& module, int64_t rows, int64_t cols) const {
        return find(module + ".weight", {rows, cols});
    }

    std::vector<float> vector(const std::string& name, int64_t size) const {
        std::vector<float> values(static_cast<size_t>(size));
        std::vector<std::byte> scratch;
        find(name, {size})
            .read(0, size, DType::kF32, std::as_writable_bytes(std::span(values)).data(), scratch);
        return values;
    }

    /// The vector `name`, or an empty one. One that config.json denies would change the result, so
    /// it is refused rather than ignored.
    std::vector<float> vector_if(bool expected, const std::string& name, int64_t size) const {
        if (expected) return vector(name, size);
        require(!checkpoint_.has(name), "{}: tensor '{}' is there, but config.json says it is not",
                checkpoint_.model_dir().string(), name);
        return {};
    }

    std::vector<float> bias(std::string_view module, int64_t layer, int64_t size,
                            bool expected) const {
        return vector_if(expected, inner(module, layer) + ".bias", size);
    }

    NormWeights norm(const std::string& module) const {
        return {vector_if(config_.norm_scale, module + ".weight", config_.hidden_size),
                vector_if(config_.norm_bias, module + ".bias", config_.hidden_size)};
    }

    static bool equal(const StoredTensor& a, const StoredTensor& b) {
        if (a.info->shape != b.info->shape || a.info->dtype != b.info->dtype) return false;
        constexpr int64_t kPieceBytes = kMiB;  // long reads, small buffers
        std::vector<std::byte> left(kPieceBytes);
        std::vector<std::byte> right(kPieceBytes);
        for (int64_t at = 0; at < a.info->bytes; at += kPieceBytes) {
            const auto size = static_cast<size_t>(std::min(kPieceBytes, a.info->bytes - at));
            a.read(at, std::span(left).first(size));
            b.read(at, std::span(right).first(size));
            if (std::memcmp(left.data(), right.data(), size) != 0) return false;
        }
        return true;
    }

    const Checkpoint& checkpoint_;
    const ModelConfig& config_;
    const TensorNames& names_;
    std::string_view prefix_;
};

}  // namespace

ModelWeights load_weights(const std::filesystem::path& model_dir, const ModelConfig& config,
                          const Placement& placement, const LoadOptions& options) {
    // Everything that can be refused is, before memory is taken.
    const Checkpoint checkpoint(model_dir);
    const TensorResolver resolver(checkpoint, config);
    resolver.check_tied_head();
    const std::vector<WeightSpec> specs = weight_specs(config);
    std::vector<std::vector<Source>> sources;
    sources.reserve(specs.size());
    for (const WeightSpec& spec : specs) sources.push_back(resolver.sources(spec));
    ModelVectors vectors = resolver.vectors();

    const auto fill = [&](size_t weight, int64_t tile, std::byte* rows,
                          std::vector<std::byte>& scratch) {
        const PackedShape& shape = specs[weight].shape;
        auto [begin, count] = tile_rows(config, specs[weight], tile);
        std::span<const Source> parts = sources[weight];
        if (specs[weight].role == WeightRole::kUp && config.gated_mlp) {
            parts = parts.subspan(static_cast<size_t>(tile % 2), 1);
        }
        for (const Source& part : parts) {
            const int64_t part_rows = part.tensor->info->shape[0];
            const int64_t here = std::clamp(part_rows - begin, int64_t{0}, count);
            if (here > 0) {
                part.read(begin * shape.cols, here * shape.cols, shape.dtype, rows, scratch);
                rows += here * shape.cols * size_of(shape.dtype);
                count -= here;
            }
            begin = std::max(begin - part_rows, int64_t{0});
        }
    };
    return build_weights(config, placement, options, "Loading", std::move(vectors), fill);
}

}  // namespace dak
