#include "model/tokenizer/characters.h"

#include <unicode/uchar.h>

namespace dak {

namespace {

bool has_category(char32_t code_point, uint32_t categories) {
    return (U_GET_GC_MASK(static_cast<UChar32>(code_point)) & categories) != 0;
}

}  // namespace

bool is_space(char32_t code_point) {
    return u_isUWhiteSpace(static_cast<UChar32>(code_point)) != 0;
}

bool is_number(char32_t code_point) { return has_category(code_point, U_GC_N_MASK); }

bool is_mark(char32_t code_point) { return has_category(code_point, U_GC_M_MASK); }

bool is_punctuation(char32_t code_point) {
    const bool is_ascii = code_point < 0x80;
    return has_category(code_point, is_ascii ? U_GC_P_MASK | U_GC_S_MASK : U_GC_P_MASK);
}

bool is_word(char32_t code_point) {
    const auto c = static_cast<UChar32>(code_point);
    return has_category(code_point, U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK) ||
           u_hasBinaryProperty(c, UCHAR_ALPHABETIC) || u_hasBinaryProperty(c, UCHAR_JOIN_CONTROL);
}

char32_t to_lower(char32_t code_point) {
    return static_cast<char32_t>(u_tolower(static_cast<UChar32>(code_point)));
}

}  // namespace dak
