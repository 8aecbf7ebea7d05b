#include "model/tokenizer/utf8.h"

namespace dak {

Utf8Step utf8_step(std::string_view text, size_t pos) {
    const auto lead = static_cast<unsigned char>(text[pos]);
    if (lead < 0x80) return {1, true, false};
    if (lead < 0xC2 || lead > 0xF4) return {1, false, false};
    const size_t length = utf8_length(text[pos]);
    // The second byte's range shuts out overlong forms, surrogates and values past U+10FFFF.
    unsigned char low = 0x80;
    unsigned char high = 0xBF;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
    for (size_t i = 1; i < length; ++i) {
        if (pos + i == text.size()) return {i, false, true};
        const auto byte = static_cast<unsigned char>(text[pos + i]);
        if (byte < low || byte > high) return {i, false, false};
        low = 0x80;
        high = 0xBF;
    }
    return {length, true, false};
}

bool is_valid_utf8(std::string_view text) {
    for (size_t pos = 0; pos < text.size();) {
        const Utf8Step step = utf8_step(text, pos);
        if (!step.valid) return false;
        pos += step.length;
    }
    return true;
}

std::string replace_invalid_utf8(std::string_view text) {
    std::string valid;
    valid.reserve(text.size());
    for (size_t pos = 0; pos < text.size();) {
        const Utf8Step step = utf8_step(text, pos);
        if (step.valid) {
            valid += text.substr(pos, step.length);
        } else {
            append_utf8(0xFFFD, valid);
        }
        pos += step.length;
    }
    return valid;
}

void append_utf8(char32_t code_point, std::string& text) {
    if (code_point < 0x80) {
        text += static_cast<char>(code_point);
        return;
    }
    const int continuation = code_point < 0x800 ? 1 : code_point < 0x10000 ? 2 : 3;
    const char32_t lead = continuation == 1 ? 0xC0 : continuation == 2 ? 0xE0 : 0xF0;
    text += static_cast<char>(lead | code_point >> (6 * continuation));
    for (int i = continuation - 1; i >= 0; --i) {
        text += static_cast<char>(0x80 | (code_point >> (6 * i) & 0x3F));
    }
}

}  // namespace dak
