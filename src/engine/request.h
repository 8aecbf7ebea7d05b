#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ops/sampling/sampling.h"

namespace dak {

using RequestId = int64_t;

enum class FinishReason : uint8_t {
    kNone,       ///< still running
    kEos,        ///< an end-of-sequence token
    kStop,       ///< a stop string
    kLength,     ///< max_new_tokens, or the model's context is full
    kCancelled,  ///< Engine::cancel
    kError,      ///< Completion::error says what happened
};

constexpr std::string_view name_of(FinishReason reason) {
    switch (reason) {
        case FinishReason::kNone:
            return "none";
        case FinishReason::kEos:
            return "eos";
        case FinishReason::kStop:
            return "stop";
        case FinishReason::kLength:
            return "length";
        case FinishReason::kCancelled:
            return "cancelled";
        case FinishReason::kError:
            return "error";
    }
    return "?";
}

/// What happened to a request in one step of the engine.
struct Update {
    RequestId id = 0;
    int32_t token = 0;      ///< the new token
    std::string_view text;  ///< text that became certain; may be empty, or hold several tokens'
    FinishReason finish = FinishReason::kNone;
};

struct Request {
    std::vector<int32_t> prompt;  ///< token ids, at least one
    ops::Sampling sampling{};
    int64_t max_new_tokens = 256;
    std::vector<std::string> stop{};  ///< generation ends before the first of these appears
    bool ignore_eos = false;
    /// Called from Engine::step() after every new token. May call Engine::cancel().
    std::function<void(const Update&)> on_update{};
};

struct Completion {
    RequestId id = 0;
    int64_t prompt_tokens = 0;
    std::vector<int32_t> tokens{};  ///< generated ids, an end-of-sequence token included
    std::string text{};             ///< decoded, without special tokens and stop string
    FinishReason finish = FinishReason::kNone;
    std::string error{};
    double ttft_seconds = 0;  ///< from add() to the first token
    double tpot_seconds = 0;  ///< mean time per token after the first; 0 with fewer than two
};

}  // namespace dak
