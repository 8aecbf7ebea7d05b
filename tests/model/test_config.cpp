#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/architecture.h"
#include "model/config.h"
#include "model/presets.h"
#include "model_folder.h"

namespace dak {
namespace {

using namespace testing_support;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::ThrowsMessage;

Json llama() {
    return {{"architectures", {"LlamaForCausalLM"}},
            {"vocab_size", 100},
            {"hidden_size", 64},
            {"intermediate_size", 96},
            {"num_hidden_layers", 3},
            {"num_attention_heads", 4},
            {"num_key_value_heads", 2},
            {"max_position_embeddings", 512}};
}

Json opt() {
    return {{"architectures", {"OPTForCausalLM"}},
            {"vocab_size", 100},
            {"hidden_size", 64},
            {"ffn_dim", 256},
            {"num_hidden_layers", 2},
            {"num_attention_heads", 4},
            {"max_position_embeddings", 128},
            {"torch_dtype", "float16"}};
}

Json with(Json json, const Json& changes) {
    json.update(changes);
    return json;
}

Json of(const std::string& architecture, const Json& changes = Json::object()) {
    return with(with(llama(), {{"architectures", {architecture}}}), changes);
}

ModelConfig parse(const Json& json, const Json& generation = Json()) {
    return parse_config(json, generation, "model");
}

void expect_refused(const Json& json, const std::string& message) {
    EXPECT_THAT([&] { parse(json); },
                ThrowsMessage<Error>(AllOf(HasSubstr("model/config.json"), HasSubstr(message),
                                           Not(HasSubstr("\n")))))
        << json;
}

TEST(Config, LlamaDefaults) {
    const ModelConfig config = parse(llama());
    EXPECT_EQ(config.dtype, DType::kBF16);
    EXPECT_EQ(config.embedding_size, 64);
    EXPECT_EQ(config.head_dim, 16);
    EXPECT_EQ(config.kv_size(), 32);
    EXPECT_EQ(config.norm, NormKind::kRms);
    EXPECT_EQ(config.norm_eps, 1e-6);
    EXPECT_TRUE(config.gated_mlp && config.final_norm && config.norm_scale);
    EXPECT_FALSE(config.norm_bias || config.qkv_bias || config.output_bias || config.mlp_bias ||
                 config.tied_embeddings);
    EXPECT_EQ(config.activation, Activation::kSilu);
    EXPECT_EQ(config.rope->theta, 10000.0);
    EXPECT_EQ(config.rope->scaling, RopeScaling::kNone);
    EXPECT_THAT(config.sliding_window, ElementsAre(std::nullopt, std::nullopt, std::nullopt));
    EXPECT_EQ(config.bos_token, 1);
    EXPECT_THAT(config.eos_tokens, ElementsAre(2));
    EXPECT_THAT(config.layer_steps,
                ElementsAre(LayerStep::kAttentionNorm, LayerStep::kQkv, LayerStep::kRope,
                            LayerStep::kAttention, LayerStep::kOutput, LayerStep::kMlpNorm,
                            LayerStep::kUp, LayerStep::kDown));
}

TEST(Config, LlamaOptions) {
    const ModelConfig config = parse(with(llama(), {{"attention_bias", true},
                                                    {"mlp_bias", true},
                                                    {"head_dim", 40},
                                                    {"num_key_value_heads", nullptr},
                                                    {"tie_word_embeddings", true},
                                                    {"hidden_act", "gelu_pytorch_tanh"},
                                                    {"rms_norm_eps", 1e-5},
                                                    {"dtype", "float32"}}));
    EXPECT_TRUE(config.qkv_bias && config.output_bias && config.mlp_bias && config.tied_embeddings);
    EXPECT_EQ(config.q_size(), 160);
    EXPECT_EQ(config.num_kv_heads, 4);
    EXPECT_EQ(config.activation, Activation::kGeluTanh);
    EXPECT_EQ(config.norm_eps, 1e-5);
    EXPECT_EQ(config.dtype, DType::kF32);
}

TEST(Config, DtypeUnderItsOldAndItsNewName) {
    EXPECT_EQ(parse(with(llama(), {{"torch_dtype", "float16"}})).dtype, DType::kF16);
    EXPECT_EQ(parse(with(llama(), {{"dtype", "torch.float32"}})).dtype, DType::kF32);
    EXPECT_EQ(parse(with(llama(), {{"dtype", "float16"}, {"torch_dtype", "float32"}})).dtype,
              DType::kF16);
    expect_refused(with(llama(), {{"dtype", "float8_e4m3fn"}}),
                   "dtype 'float8_e4m3fn' is not supported");
}

TEST(Config, RopeScalingInOldAndNewKeys) {
    const Rope old_linear =
        *parse(with(llama(),
                    {{"rope_theta", 5e5}, {"rope_scaling", {{"type", "linear"}, {"factor", 2.5}}}}))
             .rope;
    EXPECT_EQ(old_linear.scaling, RopeScaling::kLinear);
    EXPECT_EQ(old_linear.theta, 5e5);
    EXPECT_EQ(old_linear.factor, 2.5);

    const Json llama3 = {{"rope_type", "llama3"},  {"factor", 8},
                         {"low_freq_factor", 1.5}, {"high_freq_factor", 4.5},
                         {"rope_theta", 250000},   {"original_max_position_embeddings", 128}};
    for (const char* key : {"rope_scaling", "rope_parameters"}) {
        const Rope rope = *parse(with(llama(), {{key, llama3}})).rope;
        EXPECT_EQ(rope.scaling, RopeScaling::kLlama3);
        EXPECT_EQ(rope.theta, 250000);
        EXPECT_EQ(rope.factor, 8);
        EXPECT_EQ(rope.low_freq_factor, 1.5);
        EXPECT_EQ(rope.high_freq_factor, 4.5);
        EXPECT_EQ(rope.original_max_position, 128);
    }
    EXPECT_EQ(
        parse(with(llama(), {{"rope_scaling", nullptr},
                             {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 7.0}}}}))
            .rope->theta,
        7.0);
}

TEST(Config, DynamicRopeStretchesTheContext) {
    const ModelConfig config =
        parse(with(llama(), {{"rope_scaling", {{"type", "dynamic"}, {"factor", 4.0}}}}));
    EXPECT_EQ(config.rope->scaling, RopeScaling::kDynamic);
    EXPECT_EQ(config.rope->original_max_position, 512);
    EXPECT_EQ(config.max_position, 2048);
}

TEST(Config, RopeThatWeCannotDoIsRefusedByName) {
    const auto rope = [](const Json& value) { return with(llama(), {{"rope_scaling", value}}); };
    expect_refused(rope({{"rope_type", "yarn"}, {"factor", 4.0}}),
                   "rope_scaling: rope type 'yarn' is not supported; supported are default");
    expect_refused(rope({{"type", "longrope"}}), "rope type 'longrope'");
    expect_refused(rope({{"type", "linear"}}), "rope_scaling: field 'factor' is missing");
    expect_refused(rope({{"type", "linear"}, {"factor", 0}}), "field 'factor' is 0");
    expect_refused(rope({{"rope_type", "llama3"},
                         {"factor", 8},
                         {"low_freq_factor", 4},
                         {"high_freq_factor", 4}}),
                   "'high_freq_factor' (4) must exceed 'low_freq_factor' (4)");
    expect_refused(rope("linear"), "rope_scaling: expected a JSON object");
    expect_refused(with(llama(), {{"rope_theta", -1}}), "field 'rope_theta' is -1");
    expect_refused(with(llama(), {{"partial_rotary_factor", 0.5}}), "partial_rotary_factor 0.5");
    expect_refused(
        with(llama(), {{"rope_parameters", {{"full_attention", {{"rope_type", "default"}}}}}}),
        "rope settings per layer type");
    expect_refused(with(llama(), {{"head_dim", 15}}), "even head_dim, found 15");
}

TEST(Config, OptPreNorm) {
    const ModelConfig config = parse(opt());
    EXPECT_EQ(config.dtype, DType::kF16);
    EXPECT_EQ(config.intermediate_size, 256);
    EXPECT_EQ(config.position_offset, 2);
    EXPECT_FALSE(config.rope || config.gated_mlp);
    EXPECT_EQ(config.norm, NormKind::kLayer);
    EXPECT_EQ(config.norm_eps, 1e-5);
    EXPECT_TRUE(config.norm_scale && config.norm_bias && config.final_norm && config.qkv_bias &&
                config.output_bias && config.mlp_bias && config.tied_embeddings);
    EXPECT_EQ(config.activation, Activation::kRelu);
    EXPECT_EQ(config.bos_token, 2);
    EXPECT_THAT(
        config.layer_steps,
        ElementsAre(LayerStep::kAttentionNorm, LayerStep::kQkv, LayerStep::kAttention,
                    LayerStep::kOutput, LayerStep::kMlpNorm, LayerStep::kUp, LayerStep::kDown));
}

TEST(Config, OptPostNormWithProjections) {
    const ModelConfig config =
        parse(with(opt(), {{"do_layer_norm_before", false}, {"word_embed_proj_dim", 32}}));
    EXPECT_EQ(config.embedding_size, 32);
    EXPECT_FALSE(config.final_norm);
    EXPECT_THAT(config.layer_steps,
                ElementsAre(LayerStep::kQkv, LayerStep::kAttention, LayerStep::kOutput,
                            LayerStep::kPostAttentionNorm, LayerStep::kUp, LayerStep::kDown,
                            LayerStep::kPostMlpNorm));
}

TEST(Config, OptOptions) {
    const ModelConfig config = parse(with(opt(), {{"enable_bias", false},
                                                  {"layer_norm_elementwise_affine", false},
                                                  {"_remove_final_layer_norm", true},
                                                  {"activation_function", "gelu"},
                                                  {"tie_word_embeddings", false}}));
    EXPECT_FALSE(config.norm_scale || config.norm_bias || config.final_norm || config.qkv_bias ||
                 config.output_bias || config.mlp_bias || config.tied_embeddings);
    EXPECT_EQ(config.activation, Activation::kGelu);
    expect_refused(with(opt(), {{"num_attention_heads", 3}}),
                   "'hidden_size' (64) is no multiple of 'num_attention_heads' (3)");
}

TEST(Config, MistralWindow) {
    const auto window = [](const Json& changes) {
        return parse(of("MistralForCausalLM", changes)).sliding_window;
    };
    EXPECT_THAT(window({{"sliding_window", 100}}), Each(std::optional<int64_t>(100)));
    EXPECT_THAT(window({{"sliding_window", nullptr}}), Each(std::nullopt));
    EXPECT_THAT(window(Json::object()), Each(std::optional<int64_t>(4096)));
    expect_refused(of("MistralForCausalLM", {{"sliding_window", 0}}), "'sliding_window' is 0");
}

TEST(Config, Qwen2HasBiasesOnQkvOnly) {
    const ModelConfig config = parse(of("Qwen2ForCausalLM"));
    EXPECT_TRUE(config.qkv_bias);
    EXPECT_FALSE(config.output_bias || config.mlp_bias);
    EXPECT_EQ(config.bos_token, std::nullopt);
    EXPECT_THAT(config.eos_tokens, ElementsAre());
}

TEST(Config, QwenWindows) {
    const auto window = [](const Json& changes) {
        return parse(of("Qwen2ForCausalLM", changes)).sliding_window;
    };
    const std::optional<int64_t> none;
    EXPECT_THAT(window({{"sliding_window", 9}}), Each(none));
    EXPECT_THAT(
        window({{"sliding_window", 9}, {"use_sliding_window", true}, {"max_window_layers", 2}}),
        ElementsAre(none, none, 9));
    EXPECT_THAT(
        window(
            {{"sliding_window", nullptr}, {"use_sliding_window", true}, {"max_window_layers", 0}}),
        Each(none));
    const Json types = {"sliding_attention", "full_attention", "sliding_attention"};
    EXPECT_THAT(
        window({{"sliding_window", 9}, {"use_sliding_window", true}, {"layer_types", types}}),
        ElementsAre(9, none, 9));
    expect_refused(of("Qwen2ForCausalLM", {{"layer_types", types}}),
                   "'layer_types' has sliding_attention, but");
    expect_refused(of("Qwen2ForCausalLM", {{"layer_types", {"full_attention"}}}),
                   "'layer_types' must list the type of each of the 3 layers");
    expect_refused(of("Qwen3ForCausalLM",
                      {{"layer_types", {"full_attention", "full_attention", "linear_attention"}}}),
                   "layer type 'linear_attention' is not supported");
}

TEST(Config, Qwen3NormalisesHeads) {
    const ModelConfig config = parse(of("Qwen3ForCausalLM"));
    EXPECT_EQ(config.head_dim, 128);
    EXPECT_FALSE(config.qkv_bias);
    EXPECT_TRUE(config.has_step(LayerStep::kQkNorm));
    EXPECT_EQ(config.layer_steps[2], LayerStep::kQkNorm);
    EXPECT_EQ(config.layer_steps[3], LayerStep::kRope);
    EXPECT_FALSE(parse(of("Qwen2ForCausalLM")).has_step(LayerStep::kQkNorm));
}

TEST(Config, SpecialTokens) {
    const Json both = with(llama(), {{"bos_token_id", 5}, {"eos_token_id", {6, 7}}});
    EXPECT_EQ(parse(both).bos_token, 5);
    EXPECT_THAT(parse(both).eos_tokens, ElementsAre(6, 7));
    const ModelConfig generation = parse(both, {{"bos_token_id", 8}, {"eos_token_id", {9, 10}}});
    EXPECT_EQ(generation.bos_token, 8);
    EXPECT_THAT(generation.eos_tokens, ElementsAre(9, 10));
    EXPECT_THAT(parse(both, {{"eos_token_id", 9}}).eos_tokens, ElementsAre(9));
    EXPECT_THAT(parse(both, {{"temperature", 1}}).eos_tokens, ElementsAre(6, 7));
    const ModelConfig none =
        parse(with(llama(), {{"bos_token_id", nullptr}, {"eos_token_id", nullptr}}));
    EXPECT_EQ(none.bos_token, std::nullopt);
    EXPECT_THAT(none.eos_tokens, ElementsAre());
    expect_refused(with(llama(), {{"eos_token_id", "</s>"}}),
                   "field 'eos_token_id' must hold token ids, found \"</s>\"");
    expect_refused(with(llama(), {{"eos_token_id", {1, -1}}}), "must hold token ids, found -1");
    expect_refused(with(llama(), {{"bos_token_id", 4294967296}}), "'bos_token_id' must hold");
}

TEST(Config, WhatWeCannotRunIsRefusedByName) {
    expect_refused(of("MambaForCausalLM"),
                   "architecture 'MambaForCausalLM' is not supported; supported are "
                   "LlamaForCausalLM, MistralForCausalLM, OPTForCausalLM, Qwen2ForCausalLM, "
                   "Qwen3ForCausalLM");
    expect_refused(with(llama(), {{"hidden_act", "relu2"}}), "hidden_act 'relu2' is not supported");
    expect_refused(with(llama(), {{"quantization_config", {{"quant_method", "gptq"}}}}),
                   "quantised weights (gptq) are not supported");
    Json nameless = llama();
    nameless.erase("architectures");
    expect_refused(nameless, "'architectures' must name the model's architecture, found nothing");
    expect_refused(with(llama(), {{"architectures", Json::array()}}), "found []");
    expect_refused(Json::array(), "expected a JSON object");
}

TEST(Config, MissingFieldsAreNamed) {
    for (const char* field : {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                              "num_attention_heads", "max_position_embeddings"}) {
        Json json = llama();
        json.erase(field);
        expect_refused(json, fmt::format("field '{}' is missing", field));
    }
    Json json = opt();
    json.erase("ffn_dim");
    expect_refused(json, "field 'ffn_dim' is missing");
}

TEST(Config, InconsistentAndAbsurdSizesAreRefused) {
    for (const char* field : {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                              "num_attention_heads", "max_position_embeddings", "head_dim"}) {
        expect_refused(with(llama(), {{field, 0}}), fmt::format("field '{}' is 0", field));
        expect_refused(with(llama(), {{field, -5}}), fmt::format("field '{}' is -5", field));
        expect_refused(with(llama(), {{field, int64_t{1} << 40}}),
                       fmt::format("field '{}' is 1099511627776", field));
        expect_refused(with(llama(), {{field, "7"}}),
                       fmt::format("field '{}' must be an integer", field));
    }
    expect_refused(with(llama(), {{"num_key_value_heads", 3}}),
                   "'num_key_value_heads' (3) must divide 'num_attention_heads' (4)");
    expect_refused(with(llama(), {{"num_key_value_heads", 8}}), "'num_key_value_heads' is 8");
    expect_refused(with(llama(), {{"hidden_size", 66}}), "'hidden_size' (66) is no multiple of");
    expect_refused(with(llama(), {{"num_attention_heads", 1 << 20}, {"head_dim", 4096}}),
                   "1048576 heads of 4096 are more than");
    expect_refused(with(llama(), {{"rms_norm_eps", 0}}), "field 'rms_norm_eps' is 0");
}

TEST(ConfigFolder, ReadsBothFiles) {
    const TempFolder folder;
    folder.write("config.json", with(llama(), {{"dtype", "float32"}}).dump());
    folder.write("generation_config.json", R"({"eos_token_id": [3, 4]})");
    const ModelConfig config = load_config(folder.path());
    EXPECT_EQ(config.dtype, DType::kF32);
    EXPECT_THAT(config.eos_tokens, ElementsAre(3, 4));
}

TEST(ConfigFolder, UnnamedDtypeFollowsTheCheckpoint) {
    const TempFolder folder;
    folder.write("config.json", llama().dump());
    EXPECT_THAT([&] { load_config(folder.path()); },
                ThrowsMessage<Error>(HasSubstr("no weights there")));
    folder.write("model.safetensors",
                 safetensors_bytes({{"t", make_test_tensor("t", DType::kF16, {4})}}));
    EXPECT_EQ(load_config(folder.path()).dtype, DType::kF16);
}

TEST(ConfigFolder, ErrorsNameTheFile) {
    EXPECT_THAT([] { load_config("/nonexistent"); },
                ThrowsMessage<Error>(HasSubstr("/nonexistent: no such folder")));
    const TempFolder folder;
    EXPECT_THAT([&] { load_config(folder.path()); },
                ThrowsMessage<Error>(HasSubstr("no config.json there")));
    folder.write("config.json", with(llama(), {{"dtype", "float32"}}).dump());
    folder.write("generation_config.json", R"({"eos_token_id": true})");
    EXPECT_THAT([&] { load_config(folder.path()); },
                ThrowsMessage<Error>(HasSubstr("generation_config.json: field 'eos_token_id'")));
    folder.write("config.json", "{");
    EXPECT_THAT([&] { load_config(folder.path()); },
                ThrowsMessage<Error>(HasSubstr("config.json: not valid JSON")));
}

TEST(Presets, AllParse) {
    for (const std::string_view name : preset_names()) {
        EXPECT_GT(preset_config(name).num_layers, 0) << name;
    }
    const ModelConfig opt_350m = preset_config("opt-350m");
    EXPECT_EQ(opt_350m.embedding_size, 512);
    EXPECT_TRUE(opt_350m.has_step(LayerStep::kPostMlpNorm));
    EXPECT_EQ(preset_config("opt-2.7b").head_dim, 80);
    EXPECT_EQ(preset_config("qwen3-32b").q_size(), 8192);
    EXPECT_THAT([] { preset_config("gpt-2"); },
                ThrowsMessage<Error>(HasSubstr("no built-in model is called 'gpt-2'; there are "
                                               "opt-125m, opt-350m")));
}

}  // namespace
}  // namespace dak
