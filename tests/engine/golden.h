#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "model/config.h"
#include "model/weights.h"

namespace dak::testing {

/// What Hugging Face transformers generated, greedily, in fp32 (made by tools/make_goldens.py).
struct GoldenPrompt {
    std::vector<int32_t> prompt;
    std::vector<int32_t> greedy;
    std::vector<float> greedy_logits;
    std::vector<float> margins;  ///< of the best logit over the second, per step
};

inline std::vector<GoldenPrompt> read_golden(const std::filesystem::path& json) {
    const Json expected = read_json_file(json);
    std::vector<GoldenPrompt> prompts;
    for (const Json& prompt : expected.at("prompts")) {
        prompts.push_back({prompt.at("prompt_ids"), prompt.at("greedy_ids"),
                           prompt.at("greedy_logits"), prompt.at("margins")});
    }
    return prompts;
}

inline std::vector<std::filesystem::path> golden_models() {
    std::vector<std::filesystem::path> folders;
    for (const auto& entry : std::filesystem::directory_iterator(DAK_TEST_DATA "/golden")) {
        if (entry.is_directory()) folders.push_back(entry.path());
    }
    std::sort(folders.begin(), folders.end());
    return folders;
}

inline ModelWeights load(const std::filesystem::path& model, const ModelConfig& config,
                         double offload_ratio) {
    return load_weights(model, config, uniform_placement(weight_specs(config), offload_ratio),
                        {.num_threads = 2, .progress = false});
}

}  // namespace dak::testing
