#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "model/chat/chat_template.h"
#include "model/config.h"
#include "model/tokenizer/tokenizer.h"

namespace dak {

struct PromptOptions {
    bool raw = false;       ///< prompts are text to be continued; no chat template
    std::string system;     ///< the conversation's system message; empty: the template's own
    bool truncate = false;  ///< cut prompts that are too long at the front instead of refusing them
};

/// Throws Error unless `text`, which `what` names, is valid UTF-8.
void require_utf8(std::string_view text, std::string_view what);

/// A prompt for a model whose weights are random: any tokens will do.
std::vector<int32_t> random_prompt(const ModelConfig& config, int64_t length, std::mt19937& random);

/// Turns what a user writes into the token ids of a prompt.
class PromptBuilder {
  public:
    /// Reads the tokenizer and chat template of a model folder.
    PromptBuilder(const std::filesystem::path& model_dir, const ModelConfig& config,
                  PromptOptions options);

    const Tokenizer& tokenizer() const { return tokenizer_; }
    bool chat() const { return chat_template_.has_value(); }

    /// The prompt for one user message, or for text to be continued when the model does not chat.
    /// `max_new_tokens` is the room that truncation leaves.
    std::vector<int32_t> from_text(const std::string& text, int64_t max_new_tokens) const;

    /// The prompt for a conversation. Throws Error when the model has no chat template.
    std::vector<int32_t> from_messages(std::span<const ChatMessage> messages,
                                       int64_t max_new_tokens) const;

  private:
    std::vector<int32_t> fit(std::vector<int32_t> ids, int64_t max_new_tokens) const;

    Tokenizer tokenizer_;
    std::optional<ChatTemplate> chat_template_;
    PromptOptions options_;
    int64_t max_position_;
};

}  // namespace dak
