#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dak::jinja {

struct Token {
    enum class Kind {
        kText,
        kOutputBegin,
        kOutputEnd,
        kTagBegin,
        kTagEnd,
        kName,
        kString,
        kInteger,
        kFloat,
        kOperator,
        kEnd
    };
    Kind kind = Kind::kEnd;
    int line = 1;
    std::string text = {};  ///< the name, operator or text; of a string literal its value
    int64_t integer = 0;
    double number = 0;
};

/// The tokens of a template, with white space around tags already removed as jinja2 does under
/// trim_blocks and lstrip_blocks; comments are dropped. The last token is kEnd. Throws Error,
/// beginning with `where` and the line.
std::vector<Token> tokenize(std::string_view source, std::string_view where);

}  // namespace dak::jinja
