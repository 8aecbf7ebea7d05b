#pragma once

namespace dak {

/// Kinds of characters, as the Unicode standard tells them.

bool is_space(char32_t code_point);        ///< White_Space
bool is_number(char32_t code_point);       ///< Category N: digits, fractions, Roman numerals, ...
bool is_mark(char32_t code_point);         ///< Category M: accents and other combining characters
bool is_punctuation(char32_t code_point);  ///< Category P, and ASCII's symbols
bool is_word(char32_t code_point);         ///< Letters, marks, digits, connectors such as _

char32_t to_lower(char32_t code_point);  ///< Without context; the code point itself if it has none

}  // namespace dak
