#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace dak {

/// What stands at one position of a byte string read as UTF-8.
struct Utf8Step {
    size_t length = 0;  ///< Bytes of the character, or of the longest ill-formed stretch.
    bool valid = false;
    bool truncated = false;  ///< Not valid, but more bytes could make it so.
};

/// Looks at text[pos], pos < text.size(). An ill-formed stretch is the Unicode standard's "maximal
/// subpart": what becomes one U+FFFD.
Utf8Step utf8_step(std::string_view text, size_t pos);

bool is_valid_utf8(std::string_view text);

/// `text` with each ill-formed stretch replaced by U+FFFD.
std::string replace_invalid_utf8(std::string_view text);

void append_utf8(char32_t code_point, std::string& text);

/// Number of bytes of the character whose first byte is `lead`, in valid UTF-8.
constexpr size_t utf8_length(char lead) {
    const auto byte = static_cast<unsigned char>(lead);
    return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

/// The code point at text[pos] of valid UTF-8; moves `pos` past it.
inline char32_t next_code_point(std::string_view text, size_t& pos) {
    const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
    const char32_t lead = byte(pos);
    const size_t length = utf8_length(text[pos]);
    char32_t code_point = length == 1 ? lead : lead & (0x7F >> length);
    for (size_t i = 1; i < length; ++i) code_point = code_point << 6 | (byte(pos + i) & 0x3F);
    pos += length;
    return code_point;
}

/// The start of the last character of non-empty valid UTF-8.
inline size_t last_code_point_begin(std::string_view text) {
    size_t pos = text.size() - 1;
    while ((static_cast<unsigned char>(text[pos]) & 0xC0) == 0x80) --pos;
    return pos;
}

}  // namespace dak
