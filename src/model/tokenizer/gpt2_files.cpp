#include "model/tokenizer/gpt2_files.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"

namespace dak {

namespace {

constexpr std::string_view kVocabulary = "vocab.json";
constexpr std::string_view kMerges = "merges.txt";
constexpr std::string_view kConfig = "tokenizer_config.json";

Vocabulary read_vocabulary(const std::filesystem::path& path) {
    const Json json = read_json_file(path);
    const JsonFields fields(json, path.string());
    Vocabulary vocabulary;
    for (const auto& [token, id] : json.items()) {
        // JSON null would read as absent.
        require(id.is_number_integer(), "{}: the id of token '{}' must be an integer",
                path.string(), token);
        try {
            vocabulary.add(token, fields.get<int64_t>(token));
        } catch (const Error& error) {
            fail("{}: {}", path.string(), error.what());
        }
    }
    return vocabulary;
}

MergeList read_merges(const std::filesystem::path& path) {
    const std::string text = read_text_file(path);
    MergeList merges;
    size_t line_number = 0;
    for (size_t begin = 0; begin < text.size();) {
        const size_t end = std::min(text.find('\n', begin), text.size());
        std::string_view line = std::string_view(text).substr(begin, end - begin);
        begin = end + 1;
        ++line_number;
        if (line.ends_with('\r')) line.remove_suffix(1);
        if (line.empty() || line.starts_with("#version")) continue;
        require(merges.add_joined(line), "{}: line {} is no merge of two tokens", path.string(),
                line_number);
    }
    return merges;
}

/// The token under `name`, a string or an object with "content"; null when there is none.
Json token_entry(const JsonFields& config, std::string_view name) {
    const Json* token = config.find(name);
    if (!token) return nullptr;
    Json entry = token->is_object() ? *token : Json{{"content", *token}};
    entry["special"] = true;
    return entry;
}

/// The special tokens that the configuration names; GPT-2's own, if the vocabulary has it, when it
/// names none.
Json special_tokens(const JsonFields& config, const Vocabulary& vocabulary) {
    constexpr std::string_view gpt2_token = "<|endoftext|>";
    Json tokens = Json::array();
    for (const auto name : {"bos_token", "eos_token", "unk_token", "pad_token"}) {
        Json entry = token_entry(config, name);
        if (!entry.is_null()) tokens.push_back(std::move(entry));
    }
    if (tokens.empty() && vocabulary.find(gpt2_token)) {
        tokens.push_back({{"content", gpt2_token}, {"special", true}});
    }
    return tokens;
}

/// Puts the beginning-of-text token before the text.
Json bos_template(const JsonFields& config, const Vocabulary& vocabulary) {
    const Json entry = token_entry(config, "bos_token");
    require(!entry.is_null(), "{}: add_bos_token is set, but bos_token is missing", config.where());
    const auto bos = JsonFields(entry, config.where() + ": bos_token").get<std::string>("content");
    const auto id = vocabulary.find(bos);
    require(id.has_value(), "{}: bos_token '{}' is not in the vocabulary", config.where(), bos);
    return {{"type", "TemplateProcessing"},
            {"single", {{{"SpecialToken", {{"id", bos}}}}, {{"Sequence", {{"id", "A"}}}}}},
            {"special_tokens", {{bos, {{"ids", Json::array({static_cast<uint32_t>(*id)})}}}}}};
}

}  // namespace

bool has_gpt2_files(const std::filesystem::path& model_dir) {
    return std::filesystem::exists(model_dir / kVocabulary) &&
           std::filesystem::exists(model_dir / kMerges);
}

TokenizerJson read_gpt2_files(const std::filesystem::path& model_dir) {
    TokenizerJson file;
    file.where = (model_dir / kVocabulary).string();
    file.vocabulary = read_vocabulary(model_dir / kVocabulary);
    file.merges = read_merges(model_dir / kMerges);

    const auto config_path = model_dir / kConfig;
    const Json config_json =
        std::filesystem::exists(config_path) ? read_json_file(config_path) : Json::object();
    const JsonFields config(config_json, config_path.string());
    file.rest = {
        {"model", {{"type", "BPE"}}},
        {"pre_tokenizer",
         {{"type", "ByteLevel"}, {"add_prefix_space", config.get_or("add_prefix_space", false)}}},
        {"decoder", {{"type", "ByteLevel"}}},
        {"added_tokens", special_tokens(config, file.vocabulary)},
    };
    if (config.get_or("add_bos_token", false)) {
        file.rest["post_processor"] = bos_template(config, file.vocabulary);
    }
    return file;
}

}  // namespace dak
