#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "model/tokenizer/bpe.h"
#include "model/tokenizer/vocabulary.h"

namespace dak {

/// A tokenizer.json, read but not understood: its vocabulary and merges in compact form, the rest
/// as JSON.
// clang-tidy takes the checks inside nlohmann::json's move for exceptions.
struct TokenizerJson {  // NOLINT(bugprone-exception-escape)
    std::string where;
    Vocabulary vocabulary;
    MergeList merges;
    Json rest;

    /// Throws Error on damaged JSON, on a model other than BPE and on a malformed vocabulary.
    static TokenizerJson parse(std::string_view text, std::string_view where);

    /// A field of the file, or null when absent or JSON null.
    const Json* find(std::string_view name) const;

    /// The "model" object less "vocab" and "merges".
    JsonFields model() const;
};

}  // namespace dak
