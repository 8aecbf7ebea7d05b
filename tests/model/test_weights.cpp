#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "model/presets.h"
#include "model/weights.h"
#include "model_folder.h"

namespace dak {
namespace {

using namespace testing_support;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::ThrowsMessage;

/// All elements of a split tensor, padding included: [64 * row_tiles, padded_cols].
std::vector<float> unpack(const SplitTensor& tensor) {
    const PackedShape& shape = tensor.shape;
    const int64_t stride = shape.padded_cols() * size_of(shape.dtype);
    std::vector<std::byte> bytes(static_cast<size_t>(shape.row_tiles() * kAtomRows * stride));
    for (int64_t atom = 0; atom < shape.atoms(); ++atom) {
        unpack_atom(tensor.atom(atom), kAtomRows, kAtomRowBytes,
                    bytes.data() + atom / shape.k_atoms() * kAtomRows * stride +
                        atom % shape.k_atoms() * kAtomRowBytes,
                    stride);
    }
    std::vector<float> values;
    visit_dtype(shape.dtype, [&](auto element) {
        for (size_t at = 0; at < bytes.size(); at += sizeof(element)) {
            std::memcpy(&element, bytes.data() + at, sizeof(element));
            values.push_back(to_float(element));
        }
    });
    return values;
}

/// Rows that tensor `name` of `cols` columns should have contributed, from row `begin` on.
struct Block {
    std::string name;
    int64_t begin;
    int64_t rows;
};

/// Checks that `tensor` is `blocks` one below the other, zero where a block name is empty, and that
/// the rest is zero.
void expect_blocks(const SplitTensor& tensor, const std::vector<Block>& blocks) {
    const std::vector<float> values = unpack(tensor);
    const int64_t stride = tensor.shape.padded_cols();
    const int64_t cols = tensor.shape.cols;
    std::vector<float> expected(values.size());
    int64_t row = 0;
    for (const Block& block : blocks) {
        for (int64_t i = 0; i < block.rows; ++i, ++row) {
            for (int64_t col = 0; col < cols && !block.name.empty(); ++col) {
                expected[static_cast<size_t>(row * stride + col)] =
                    test_value(block.name, (block.begin + i) * cols + col);
            }
        }
    }
    EXPECT_EQ(row, tensor.shape.rows);
    EXPECT_EQ(values, expected) << blocks.front().name;
}

std::vector<float> test_vector(const std::string& name, int64_t size) {
    std::vector<float> values;
    for (int64_t i = 0; i < size; ++i) values.push_back(test_value(name, i));
    return values;
}

std::vector<float> join(std::vector<float> a, const std::vector<float>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

using Shapes = std::vector<std::pair<std::string, std::vector<int64_t>>>;

TestTensors tensors_of(const Shapes& shapes, DType dtype) {
    TestTensors tensors;
    for (const auto& [name, shape] : shapes) tensors[name] = make_test_tensor(name, dtype, shape);
    return tensors;
}

/// A Llama with every bias, GQA, an explicit head_dim and sizes that are no multiple of anything.
const Json kLlama = {{"architectures", {"LlamaForCausalLM"}},
                     {"vocab_size", 131},
                     {"hidden_size", 72},
                     {"intermediate_size", 100},
                     {"num_hidden_layers", 2},
                     {"num_attention_heads", 3},
                     {"num_key_value_heads", 1},
                     {"head_dim", 34},
                     {"max_position_embeddings", 64},
                     {"attention_bias", true},
                     {"mlp_bias", true}};

Shapes llama_shapes(const std::string& prefix = "model.") {
    Shapes shapes = {{prefix + "embed_tokens.weight", {131, 72}},
                     {prefix + "norm.weight", {72}},
                     {"lm_head.weight", {131, 72}}};
    for (const char* layer : {"layers.0.", "layers.1."}) {
        const std::string base = prefix + layer;
        const auto linear = [&](const std::string& name, int64_t rows, int64_t cols) {
            shapes.push_back({base + name + ".weight", {rows, cols}});
            shapes.push_back({base + name + ".bias", {rows}});
        };
        linear("self_attn.q_proj", 102, 72);
        linear("self_attn.k_proj", 34, 72);
        linear("self_attn.v_proj", 34, 72);
        linear("self_attn.o_proj", 72, 102);
        linear("mlp.gate_proj", 100, 72);
        linear("mlp.up_proj", 100, 72);
        linear("mlp.down_proj", 72, 100);
        shapes.push_back({base + "input_layernorm.weight", {72}});
        shapes.push_back({base + "post_attention_layernorm.weight", {72}});
    }
    return shapes;
}

void expect_llama(const ModelWeights& weights, const std::string& prefix = "model.") {
    expect_blocks(weights.embedding, {{prefix + "embed_tokens.weight", 0, 131}});
    expect_blocks(weights.lm_head, {{"lm_head.weight", 0, 131}});
    EXPECT_FALSE(weights.positions || weights.project_in || weights.project_out);
    EXPECT_EQ(weights.final_norm.weight, test_vector(prefix + "norm.weight", 72));
    EXPECT_THAT(weights.final_norm.bias, IsEmpty());
    ASSERT_EQ(weights.layers.size(), 2U);
    for (int i = 0; i < 2; ++i) {
        const LayerWeights& layer = weights.layers[static_cast<size_t>(i)];
        const std::string base = fmt::format("{}layers.{}.", prefix, i);
        const std::string q = base + "self_attn.q_proj.";
        const std::string k = base + "self_attn.k_proj.";
        const std::string v = base + "self_attn.v_proj.";
        const std::string gate = base + "mlp.gate_proj.";
        const std::string up = base + "mlp.up_proj.";
        expect_blocks(layer.qkv.weight,
                      {{q + "weight", 0, 102}, {k + "weight", 0, 34}, {v + "weight", 0, 34}});
        EXPECT_EQ(layer.qkv.bias,
                  join(join(test_vector(q + "bias", 102), test_vector(k + "bias", 34)),
                       test_vector(v + "bias", 34)));
        expect_blocks(layer.output.weight, {{base + "self_attn.o_proj.weight", 0, 72}});
        EXPECT_EQ(layer.output.bias, test_vector(base + "self_attn.o_proj.bias", 72));
        expect_blocks(layer.up.weight, {{gate + "weight", 0, 64},
                                        {up + "weight", 0, 64},
                                        {gate + "weight", 64, 36},
                                        {"", 0, 28},
                                        {up + "weight", 64, 36},
                                        {"", 0, 28}});
        const auto gate_bias = test_vector(gate + "bias", 100);
        const auto up_bias = test_vector(up + "bias", 100);
        ASSERT_EQ(layer.up.bias.size(), 256U);
        for (size_t row = 0; row < 128; ++row) {
            const size_t place = row / 64 * 128 + row % 64;
            EXPECT_EQ(layer.up.bias[place], row < 100 ? gate_bias[row] : 0);
            EXPECT_EQ(layer.up.bias[place + 64], row < 100 ? up_bias[row] : 0);
        }
        expect_blocks(layer.down.weight, {{base + "mlp.down_proj.weight", 0, 72}});
        EXPECT_EQ(layer.attention_norm.weight, test_vector(base + "input_layernorm.weight", 72));
        EXPECT_EQ(layer.mlp_norm.weight, test_vector(base + "post_attention_layernorm.weight", 72));
    }
}

/// A folder with `config` and `tensors`, and how to load it.
class ModelFolder {
  public:
    ModelFolder(Json config, const TestTensors& tensors) {
        if (!config.contains("dtype")) config["dtype"] = "bfloat16";
        folder_.write("config.json", config.dump());
        if (!tensors.empty()) folder_.write("model.safetensors", safetensors_bytes(tensors));
    }

    const TempFolder& folder() const { return folder_; }
    ModelConfig config() const { return load_config(folder_.path()); }

    ModelWeights load(double ratio = 0, int num_threads = 2) const {
        return load(config(), ratio, num_threads);
    }
    ModelWeights load(const ModelConfig& config, double ratio = 0, int num_threads = 2) const {
        const Placement placement = uniform_placement(weight_specs(config), ratio);
        return load_weights(folder_.path(), config, placement,
                            {.num_threads = num_threads, .progress = false});
    }

    void expect_refused(const std::string& message) const {
        EXPECT_THAT([&] { load(); },
                    ThrowsMessage<Error>(AllOf(HasSubstr(folder_.path().string()),
                                               HasSubstr(message), Not(HasSubstr("\n")))));
    }

  private:
    TempFolder folder_;
};

TEST(WeightSpecs, ListEveryWeightInStorageOrder) {
    const ModelConfig config = preset_config("opt-350m");
    const std::vector<WeightSpec> specs = weight_specs(config);
    ASSERT_EQ(specs.size(), 3U + 24 * 4 + 1);
    EXPECT_EQ(specs[0].name, "embedding");
    EXPECT_EQ(specs[1].name, "positions");
    EXPECT_EQ(specs[1].shape.rows, 2050);
    EXPECT_EQ(specs[2].name, "project_in");
    EXPECT_EQ(specs[3].name, "layers.0.qkv");
    EXPECT_EQ(specs[3].shape.rows, 3072);
    EXPECT_EQ(specs[6].name, "layers.0.down");
    EXPECT_EQ(specs[7].layer, 1);
    EXPECT_EQ(specs.back().name, "project_out");
    EXPECT_EQ(specs.back().shape.rows, 512);

    const auto llama = weight_specs(preset_config("llama-3-8b"));
    EXPECT_EQ(llama.back().name, "lm_head");
    EXPECT_EQ(llama[3].shape.rows, 2 * 14336);
}

TEST(UniformPlacement, TotalAndSharesAreWithinAnAtom) {
    const auto specs = weight_specs(preset_config("smollm2-135m"));
    double total = 0;
    for (const WeightSpec& spec : specs) total += static_cast<double>(spec.shape.atoms());
    for (const double ratio : {0.0, 0.001, 0.1, 1.0 / 3, 0.5, 0.77, 0.999, 1.0}) {
        const Placement placement = uniform_placement(specs, ratio);
        int64_t remote = 0;
        for (size_t i = 0; i < specs.size(); ++i) {
            const auto atoms = static_cast<double>(specs[i].shape.atoms());
            EXPECT_GE(placement[i], 0);
            EXPECT_LE(placement[i], specs[i].shape.atoms());
            EXPECT_NEAR(static_cast<double>(placement[i]), ratio * atoms, 1.0);
            remote += placement[i];
        }
        EXPECT_NEAR(static_cast<double>(remote), ratio * total, 0.5);
    }
    EXPECT_THROW(uniform_placement(specs, 1.01), Error);
    EXPECT_THROW(uniform_placement(specs, -0.01), Error);
    EXPECT_THROW(uniform_placement(specs, NAN), Error);
}

TEST(LoadWeights, LlamaAtAnyRatioAndThreadCount) {
    const ModelFolder model(kLlama, tensors_of(llama_shapes(), DType::kBF16));
    for (const double ratio : {0.0, 0.37, 0.5, 1.0}) {
        for (const int threads : {1, 2, 7}) {
            const ModelWeights weights = model.load(ratio, threads);
            expect_llama(weights);
            int64_t atoms = 0;
            for (const auto& spec : weight_specs(model.config())) atoms += spec.shape.atoms();
            const auto remote = std::llround(ratio * static_cast<double>(atoms));
            EXPECT_EQ(weights.remote.used_bytes(), remote * kAtomBytes);
            EXPECT_EQ(weights.local.used_bytes(), (atoms - remote) * kAtomBytes);
            EXPECT_EQ(weights.local.capacity_bytes(), weights.local.used_bytes());
        }
    }
}

TEST(LoadWeights, PlacementMaySplitWeightsUnevenly) {
    const ModelFolder model(kLlama, tensors_of(llama_shapes(), DType::kBF16));
    const ModelConfig config = model.config();
    const auto specs = weight_specs(config);
    Placement placement;
    for (size_t i = 0; i < specs.size(); ++i) {
        placement.push_back(static_cast<int64_t>(i * 5) % (specs[i].shape.atoms() + 1));
    }
    const ModelWeights weights = load_weights(model.folder().path(), config, placement, {2, false});
    expect_llama(weights);
    EXPECT_EQ(weights.layers[0].qkv.weight.remote_atoms, placement[1]);
    placement.pop_back();
    EXPECT_THROW(load_weights(model.folder().path(), config, placement, {2, false}), Error);
}

TEST(LoadWeights, ShardsAndPrefixlessNames) {
    const ModelFolder sharded(kLlama, {});
    write_shards(sharded.folder(), tensors_of(llama_shapes(), DType::kBF16), 3);
    expect_llama(sharded.load(0.5));
    const ModelFolder bare(kLlama, tensors_of(llama_shapes(""), DType::kBF16));
    expect_llama(bare.load(0.5), "");
}

TEST(LoadWeights, SeveralAtOnce) {
    const ModelFolder model(kLlama, tensors_of(llama_shapes(), DType::kBF16));
    constexpr int kLoads = 4;
    std::vector<std::jthread> threads;
    threads.reserve(kLoads);
    for (int i = 0; i < kLoads; ++i) {
        threads.emplace_back([&] { expect_llama(model.load(0.3, 3)); });
    }
}

TEST(LoadWeights, EveryTypeIntoEveryType) {
    for (const DType stored : {DType::kF32, DType::kF16, DType::kBF16}) {
        const ModelFolder model(kLlama, tensors_of(llama_shapes(), stored));
        for (const DType wanted : {DType::kF32, DType::kF16, DType::kBF16}) {
            ModelConfig config = model.config();
            config.dtype = wanted;
            const ModelWeights weights = model.load(config, 0.4);
            EXPECT_EQ(weights.embedding.shape.dtype, wanted);
            expect_llama(weights);
        }
    }
}

TEST(LoadWeights, MixedTypesBecomeTheModels) {
    TestTensors tensors = tensors_of(llama_shapes(), DType::kBF16);
    for (const std::string name :
         {"model.layers.0.self_attn.k_proj.weight", "model.norm.weight", "lm_head.weight"}) {
        tensors[name] = make_test_tensor(name, DType::kF32, tensors[name].shape);
    }
    expect_llama(ModelFolder(kLlama, tensors).load(0.5));
}

TEST(LoadWeights, OptWithProjectionsAndPostNorm) {
    const Json config = {{"architectures", {"OPTForCausalLM"}},
                         {"vocab_size", 70},
                         {"hidden_size", 40},
                         {"word_embed_proj_dim", 24},
                         {"ffn_dim", 90},
                         {"num_hidden_layers", 1},
                         {"num_attention_heads", 2},
                         {"max_position_embeddings", 30},
                         {"do_layer_norm_before", false}};
    for (const std::string prefix : {"model.decoder.", "decoder.", ""}) {
        const std::string base = prefix + "layers.0.";
        Shapes shapes = {{prefix + "embed_tokens.weight", {70, 24}},
                         {prefix + "embed_positions.weight", {32, 40}},
                         {prefix + "project_in.weight", {40, 24}},
                         {prefix + "project_out.weight", {24, 40}}};
        const auto add = [&](const std::string& name, const std::vector<int64_t>& shape) {
            shapes.push_back({base + name + ".weight", shape});
            shapes.push_back({base + name + ".bias", {shape[0]}});
        };
        for (const char* part : {"q_proj", "k_proj", "v_proj", "out_proj"}) {
            add(std::string("self_attn.") + part, {40, 40});
        }
        add("fc1", {90, 40});
        add("fc2", {40, 90});
        add("self_attn_layer_norm", {40});
        add("final_layer_norm", {40});
        const ModelFolder model(config, tensors_of(shapes, DType::kBF16));
        const ModelWeights weights = model.load(0.6);
        expect_blocks(weights.embedding, {{prefix + "embed_tokens.weight", 0, 70}});
        EXPECT_EQ(weights.lm_head.local, weights.embedding.local);
        expect_blocks(*weights.positions, {{prefix + "embed_positions.weight", 0, 32}});
        expect_blocks(weights.project_in->weight, {{prefix + "project_in.weight", 0, 40}});
        expect_blocks(weights.project_out->weight, {{prefix + "project_out.weight", 0, 24}});
        EXPECT_THAT(weights.final_norm.weight, IsEmpty());
        const LayerWeights& layer = weights.layers[0];
        expect_blocks(layer.up.weight, {{base + "fc1.weight", 0, 90}});
        EXPECT_EQ(layer.up.bias, test_vector(base + "fc1.bias", 90));
        expect_blocks(layer.output.weight, {{base + "self_attn.out_proj.weight", 0, 40}});
        EXPECT_EQ(layer.attention_norm.bias, test_vector(base + "self_attn_layer_norm.bias", 40));
        EXPECT_EQ(layer.mlp_norm.weight, test_vector(base + "final_layer_norm.weight", 40));
        EXPECT_EQ(weights.vector_bytes(), 4 * (4 * 40 + 120 + 40 + 90 + 40));
    }
}

TEST(LoadWeights, TiedHeadIsTheEmbedding) {
    Json config = kLlama;
    config["tie_word_embeddings"] = true;
    TestTensors tensors = tensors_of(llama_shapes(), DType::kBF16);
    tensors.erase("lm_head.weight");
    const ModelWeights weights = ModelFolder(config, tensors).load(0.5);
    expect_blocks(weights.lm_head, {{"model.embed_tokens.weight", 0, 131}});
    EXPECT_EQ(weights.lm_head.remote, weights.embedding.remote);

    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"];
    EXPECT_NO_THROW(ModelFolder(config, tensors).load());
    tensors["lm_head.weight"].bytes[100] ^= 1;
    ModelFolder(config, tensors)
        .expect_refused(
            "tensors 'lm_head.weight' and 'model.embed_tokens.weight' differ, but "
            "config.json says that they are one");
}

TEST(LoadWeights, WhatIsMissingIsNamed) {
    for (const std::string name :
         {"lm_head.weight", "model.embed_tokens.weight", "model.norm.weight",
          "model.layers.1.self_attn.v_proj.weight", "model.layers.0.self_attn.k_proj.bias"}) {
        TestTensors tensors = tensors_of(llama_shapes(), DType::kBF16);
        tensors.erase(name);
        ModelFolder(kLlama, tensors)
            .expect_refused(fmt::format("the checkpoint lacks tensor '{}'", name));
    }
}

TEST(LoadWeights, WrongShapesAndTypesAreNamed) {
    const std::string name = "model.layers.1.mlp.up_proj.weight";
    TestTensors tensors = tensors_of(llama_shapes(), DType::kBF16);
    tensors[name] = make_test_tensor(name, DType::kBF16, {100, 71});
    ModelFolder(kLlama, tensors)
        .expect_refused(fmt::format(
            "tensor '{}' has shape [100, 71], but config.json asks for [100, 72]", name));
    tensors[name] = {"F8_E4M3", {100, 72}, std::string(7200, '\0')};
    ModelFolder(kLlama, tensors)
        .expect_refused(
            fmt::format("tensor '{}' is of type F8_E4M3; weights must be BF16, F16 or F32", name));
}

TEST(LoadWeights, BiasThatTheConfigDeniesIsRefused) {
    Json config = kLlama;
    config["mlp_bias"] = false;
    ModelFolder(config, tensors_of(llama_shapes(), DType::kBF16))
        .expect_refused("tensor 'model.layers.0.mlp.up_proj.bias' is there, but config.json");
}

TEST(LoadWeights, NaNAndInfinityAreRefused) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
        for (const std::string name : {"model.layers.1.mlp.up_proj.weight", "model.norm.weight"}) {
            for (const float value : {NAN, INFINITY, -INFINITY}) {
                TestTensors tensors = tensors_of(llama_shapes(), dtype);
                const auto shape = tensors[name].shape;
                std::vector<float> values(shape.size() == 2 ? 7200 : 72, 1.0f);
                values[values.size() - 3] = value;
                tensors[name] = make_tensor(dtype, shape, values);
                ModelFolder(kLlama, tensors)
                    .expect_refused(fmt::format("tensor '{}' holds NaN or infinity", name));
            }
        }
    }
}

TEST(LoadWeights, ValuesBeyondFp16AreRefused) {
    const std::string name = "model.layers.0.mlp.down_proj.weight";
    for (const DType stored : {DType::kBF16, DType::kF32}) {
        TestTensors tensors = tensors_of(llama_shapes(), stored);
        std::vector<float> values(7200, 65504.0f);
        if (stored == DType::kBF16) std::ranges::fill(values, 65280.0f);  // bf16's last below
        ModelConfig config = ModelFolder(kLlama, tensors).config();
        config.dtype = DType::kF16;
        tensors[name] = make_tensor(stored, {72, 100}, values);
        EXPECT_NO_THROW(ModelFolder(kLlama, tensors).load(config));
        values[7000] = -70000.0f;
        tensors[name] = make_tensor(stored, {72, 100}, values);
        EXPECT_THAT([&] { ModelFolder(kLlama, tensors).load(config); },
                    ThrowsMessage<Error>(HasSubstr(fmt::format(
                        "tensor '{}' has values beyond the range of fp16; use bf16", name))));
    }
}

TEST(LoadWeights, EveryGoldenModelLoads) {
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(DAK_TEST_DATA "/golden")) {
        if (!std::filesystem::exists(entry.path() / "config.json")) continue;
        const ModelConfig config = load_config(entry.path());
        const auto specs = weight_specs(config);
        EXPECT_NO_THROW(
            load_weights(entry.path(), config, uniform_placement(specs, 0.5), {2, false}))
            << entry.path();
        ++count;
    }
    EXPECT_GT(count, 0);
}

ModelWeights make_random(const ModelConfig& config, double ratio, uint64_t seed, int threads) {
    return random_weights(config, uniform_placement(weight_specs(config), ratio), seed,
                          {threads, false});
}

TEST(RandomWeights, DependOnTheSeedOnly) {
    const ModelConfig config = ModelFolder(kLlama, {}).config();
    const ModelWeights first = make_random(config, 0, 1, 1);
    const ModelWeights same = make_random(config, 0.6, 1, 3);
    const ModelWeights other = make_random(config, 0, 2, 1);
    EXPECT_EQ(unpack(first.layers[1].up.weight), unpack(same.layers[1].up.weight));
    EXPECT_EQ(unpack(first.lm_head), unpack(same.lm_head));
    EXPECT_EQ(first.layers[1].qkv.bias, same.layers[1].qkv.bias);
    EXPECT_NE(unpack(first.lm_head), unpack(other.lm_head));
    EXPECT_NE(unpack(first.lm_head), unpack(first.embedding));
    EXPECT_NE(first.layers[0].qkv.bias, first.layers[1].qkv.bias);
    EXPECT_NE(first.layers[0].qkv.bias, other.layers[0].qkv.bias);
}

TEST(RandomWeights, HaveTheScaleOfATrainedModelAndZeroPadding) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
        ModelConfig config = ModelFolder(kLlama, {}).config();
        config.dtype = dtype;
        const ModelWeights weights = make_random(config, 0.5, 3, 2);
        const SplitTensor& down = weights.layers[0].down.weight;  // [72, 100]
        const std::vector<float> values = unpack(down);
        double sum = 0;
        double squares = 0;
        for (int64_t row = 0; row < down.shape.row_tiles() * kAtomRows; ++row) {
            for (int64_t col = 0; col < down.shape.padded_cols(); ++col) {
                const double value =
                    values[static_cast<size_t>(row * down.shape.padded_cols() + col)];
                if (row >= 72 || col >= 100) {
                    EXPECT_EQ(value, 0);
                }
                sum += value;
                squares += value * value;
            }
        }
        EXPECT_NEAR(sum / 7200, 0, 0.005);
        EXPECT_NEAR(std::sqrt(squares / 7200), 0.1, 0.005);
        for (const float scale : weights.final_norm.weight) EXPECT_NEAR(scale, 1, 0.1);
        EXPECT_EQ(weights.layers[0].up.bias.size(), 256U);
        EXPECT_THAT(std::span(weights.layers[0].up.bias).last(28), Each(0.0f));
    }
}

}  // namespace
}  // namespace dak
