#include "cli/prompt_builder.h"

#include <algorithm>

#include "base/error.h"
#include "model/tokenizer/utf8.h"

namespace dak {

void require_utf8(std::string_view text, std::string_view what) {
    require(is_valid_utf8(text), "{} is not valid UTF-8; save or type it in UTF-8", what);
}

std::vector<int32_t> random_prompt(const ModelConfig& config, int64_t length,
                                   std::mt19937& random) {
    std::uniform_int_distribution<int32_t> token(0, static_cast<int32_t>(config.vocab_size) - 1);
    std::vector<int32_t> prompt(static_cast<size_t>(length));
    std::ranges::generate(prompt, [&] { return token(random); });
    return prompt;
}

PromptBuilder::PromptBuilder(const std::filesystem::path& model_dir, const ModelConfig& config,
                             PromptOptions options)
    : tokenizer_(Tokenizer::load(model_dir)),
      options_(std::move(options)),
      max_position_(config.max_position) {
    require(tokenizer_.vocab_size() <= config.vocab_size,
            "{}: tokenizer.json has token ids up to {}, but the model's vocabulary is {}; the "
            "files belong to different models",
            model_dir.string(), tokenizer_.vocab_size() - 1, config.vocab_size);
    require_utf8(options_.system, "the text of --system");
    if (!options_.raw) chat_template_ = ChatTemplate::load(model_dir);
    require(chat_template_ || options_.system.empty(),
            "--system needs a model with a chat template{}",
            options_.raw ? ", and --raw turns it off" : "; this one has none");
}

std::vector<int32_t> PromptBuilder::from_text(const std::string& text,
                                              int64_t max_new_tokens) const {
    require_utf8(text, "the prompt");
    if (!chat_template_) return fit(tokenizer_.encode(text), max_new_tokens);
    const ChatMessage message{"user", text};
    return from_messages({&message, 1}, max_new_tokens);
}

std::vector<int32_t> PromptBuilder::from_messages(std::span<const ChatMessage> messages,
                                                  int64_t max_new_tokens) const {
    require(chat_template_.has_value(), "messages need a model with a chat template{}",
            options_.raw ? ", and --raw turns it off" : "; this one has none");
    std::vector<ChatMessage> conversation(messages.begin(), messages.end());
    if (!options_.system.empty()) {
        conversation.insert(conversation.begin(), {"system", options_.system});
    }
    // The template writes the special tokens itself.
    return fit(tokenizer_.encode(chat_template_->render(conversation), false), max_new_tokens);
}

std::vector<int32_t> PromptBuilder::fit(std::vector<int32_t> ids, int64_t max_new_tokens) const {
    const auto size = static_cast<int64_t>(ids.size());
    if (size < max_position_) return ids;
    require(options_.truncate,
            "the prompt has {} tokens, but the model's context holds {} and must leave room for "
            "one more; shorten it, or cut its beginning with --truncate-prompt",
            size, max_position_);
    require(max_new_tokens < max_position_,
            "--truncate-prompt leaves no prompt: {} new tokens fill the model's context of {}",
            max_new_tokens, max_position_);
    ids.erase(ids.begin(), ids.end() - (max_position_ - max_new_tokens));
    return ids;
}

}  // namespace dak
