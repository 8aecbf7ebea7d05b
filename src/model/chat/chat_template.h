#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/json.h"

namespace dak {

/// One turn of a conversation; `role` is usually "system", "user" or "assistant".
struct ChatMessage {
    std::string role;
    std::string content;
};

/// A model's chat template: turns a conversation into the prompt text the model was trained on.
/// Renders the jinja2 language as Hugging Face transformers sets it up (trim_blocks, lstrip_blocks,
/// loop controls, immutable sandbox, tojson, raise_exception, strftime_now); `{% generation %}`
/// only groups. Immutable, cheap to copy, thread-safe.
///
/// Not supported, and refused by name with the line: template inheritance and inclusion, `call` and
/// `autoescape` blocks, recursive loops, argument unpacking, the filters that format HTML, integers
/// past 64 bits. The work, nesting and output of a rendering are bounded, so a hostile template
/// ends in an error too.
class ChatTemplate {
  public:
    /// The template of a model folder: chat_template.jinja, else the `chat_template` of
    /// tokenizer_config.json (a string, or a list of {name, template} with one named "default"),
    /// else that of chat_template.json. Nothing when the model has none. The special tokens
    /// (bos_token, ...) come from tokenizer_config.json and special_tokens_map.json. Throws Error
    /// when a file or the template is faulty or uses what is not supported.
    static std::optional<ChatTemplate> load(const std::filesystem::path& model_dir);

    /// `where` names the source in errors.
    static ChatTemplate parse(std::string_view source, std::string_view where);

    /// The prompt for a conversation; with `add_generation_prompt` it ends where the assistant's
    /// answer begins. Throws Error, with the template's own message when it calls raise_exception.
    std::string render(std::span<const ChatMessage> messages,
                       bool add_generation_prompt = true) const;

    /// As above from the template's variables: messages, tools, add_generation_prompt,
    /// enable_thinking, ... Special tokens are added unless given; tools and documents are none.
    /// Objects written by tojson keep the order of their keys only in the ordered form.
    std::string render(const Json& variables) const;
    std::string render(const nlohmann::ordered_json& variables) const;

  private:
    struct Parsed;
    explicit ChatTemplate(std::shared_ptr<const Parsed> parsed) : parsed_(std::move(parsed)) {}

    template <typename BasicJson>
    std::string render_variables(const BasicJson& variables) const;

    std::shared_ptr<const Parsed> parsed_;
};

}  // namespace dak
