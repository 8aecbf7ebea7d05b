#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "model/tokenizer/tokenizer.h"

namespace dak {

/// The parts of a small tokenizer.json, to be changed by a test.
struct TinyTokenizer {
    Json json = Json::parse(R"({
        "version": "1.0",
        "added_tokens": [],
        "normalizer": null,
        "pre_tokenizer": null,
        "post_processor": null,
        "decoder": null,
        "model": {"type": "BPE", "vocab": {}, "merges": []}
    })");

    /// `tokens` have the ids 0, 1, ...
    explicit TinyTokenizer(const std::vector<std::string>& tokens) {
        for (size_t id = 0; id < tokens.size(); ++id) json["model"]["vocab"][tokens[id]] = id;
    }

    TinyTokenizer& set(std::string_view field, std::string_view value) {
        json[std::string(field)] = Json::parse(value);
        return *this;
    }

    TinyTokenizer& set_model(std::string_view field, std::string_view value) {
        json["model"][std::string(field)] = Json::parse(value);
        return *this;
    }

    TinyTokenizer& add_token(std::string_view content, std::string_view options = "{}") {
        Json token = Json::parse(options);
        token["content"] = content;
        token["id"] = 0;  // does not count
        json["added_tokens"].push_back(std::move(token));
        return *this;
    }

    Tokenizer build() const { return Tokenizer::from_json(json.dump(), "tokenizer.json"); }
};

}  // namespace dak
