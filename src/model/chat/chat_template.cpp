#include "model/chat/chat_template.h"

#include <map>

#include "base/file.h"
#include "model/chat/jinja_eval.h"
#include "model/chat/jinja_parser.h"

namespace dak {

struct ChatTemplate::Parsed {
    std::string where;
    jinja::Body body;
    std::map<std::string, std::string> special_tokens = {};
};

namespace {

struct Source {
    std::string text;
    std::string where;
};

/// The `chat_template` field of a JSON file: a string, or a list of named ones.
std::optional<Source> read_field(const JsonFields& fields) {
    const Json* field = fields.find("chat_template");
    if (!field) return {};
    const std::string where = fields.where() + " (chat_template)";
    if (!field->is_array()) return Source{fields.get<std::string>("chat_template"), where};
    std::string names;
    for (const Json& entry : *field) {
        const JsonFields named(entry, where);
        const auto name = named.get<std::string>("name");
        if (name == "default") return Source{named.get<std::string>("template"), where};
        names += (names.empty() ? "" : ", ") + name;
    }
    fail("{}: no template is named 'default'; found {}", where, names.empty() ? "none" : names);
}

std::optional<Source> find_source(const std::filesystem::path& model_dir) {
    const auto file = model_dir / "chat_template.jinja";
    if (std::filesystem::exists(file)) return Source{read_text_file(file), file.string()};
    for (const char* name : {"tokenizer_config.json", "chat_template.json"}) {
        const auto path = model_dir / name;
        if (!std::filesystem::exists(path)) continue;
        const Json json = read_json_file(path);
        if (auto source = read_field(JsonFields(json, path.string()))) return source;
    }
    return {};
}

/// Fields such as "bos_token": "<s>" or {"content": "<s>", ...}.
void add_special_tokens(const std::filesystem::path& path,
                        std::map<std::string, std::string>& tokens) {
    if (!std::filesystem::exists(path)) return;
    const Json json = read_json_file(path);
    require(json.is_object(), "{}: expected a JSON object, found {}", path.string(),
            json.type_name());
    for (const auto& [name, value] : json.items()) {
        if (!name.ends_with("_token")) continue;
        if (value.is_string()) tokens.emplace(name, value.get<std::string>());
        if (value.is_object()) {
            const auto content = JsonFields(value, path.string()).maybe<std::string>("content");
            if (content) tokens.emplace(name, *content);
        }
    }
}

}  // namespace

std::optional<ChatTemplate> ChatTemplate::load(const std::filesystem::path& model_dir) {
    const std::optional<Source> source = find_source(model_dir);
    if (!source) return {};
    Parsed parsed{source->where, jinja::parse_template(source->text, source->where)};
    // emplace() keeps what tokenizer_config.json says.
    add_special_tokens(model_dir / "tokenizer_config.json", parsed.special_tokens);
    add_special_tokens(model_dir / "special_tokens_map.json", parsed.special_tokens);
    return ChatTemplate(std::make_shared<const Parsed>(std::move(parsed)));
}

ChatTemplate ChatTemplate::parse(std::string_view source, std::string_view where) {
    return ChatTemplate(std::make_shared<const Parsed>(
        Parsed{std::string(where), jinja::parse_template(source, where)}));
}

std::string ChatTemplate::render(std::span<const ChatMessage> messages,
                                 bool add_generation_prompt) const {
    auto turns = nlohmann::ordered_json::array();
    for (const ChatMessage& message : messages) {
        turns.push_back({{"role", message.role}, {"content", message.content}});
    }
    return render(nlohmann::ordered_json{{"messages", std::move(turns)},
                                         {"add_generation_prompt", add_generation_prompt}});
}

std::string ChatTemplate::render(const Json& variables) const {
    return render_variables(variables);
}

std::string ChatTemplate::render(const nlohmann::ordered_json& variables) const {
    return render_variables(variables);
}

template <typename BasicJson>
std::string ChatTemplate::render_variables(const BasicJson& variables) const {
    require(variables.is_object(), "{}: the variables of a template must be a JSON object",
            parsed_->where);
    jinja::Dict values;
    values.set("tools", jinja::Value());
    values.set("documents", jinja::Value());
    values.set("add_generation_prompt", false);
    for (const auto& [name, token] : parsed_->special_tokens) values.set(name, token);
    for (const auto& [name, value] : variables.items()) values.set(name, jinja::from_json(value));
    return jinja::render_template(parsed_->body, values, parsed_->where);
}

}  // namespace dak
