#include "model/chat/jinja_text.h"

#include <unicode/locid.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>
#include <unicode/utf8.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace dak::jinja {

namespace {

char32_t decode(std::string_view text, size_t& position) {
    const auto length = static_cast<int32_t>(text.size());
    auto offset = static_cast<int32_t>(position);
    UChar32 character = 0;
    U8_NEXT(text.data(), offset, length, character);
    position = character < 0 ? position + 1 : static_cast<size_t>(offset);
    return character < 0 ? U'\uFFFD' : static_cast<char32_t>(character);
}

size_t next_char(std::string_view text, size_t position) {
    decode(text, position);
    return position;
}

std::string from_icu(const icu::UnicodeString& text) {
    std::string result;
    text.toUTF8String(result);
    return result;
}

icu::UnicodeString to_icu(std::string_view text) {
    return icu::UnicodeString::fromUTF8({text.data(), static_cast<int32_t>(text.size())});
}

/// Title case of one character. Where upper case has several letters (the sharp s), only the first
/// of them stays upper.
std::string title_char(std::string_view character) {
    size_t position = 0;
    const auto code = static_cast<UChar32>(decode(character, position));
    std::string result;
    if (u_totitle(code) != code) {
        append_char(result, static_cast<char32_t>(u_totitle(code)));
        return result;
    }
    const std::string upper = to_upper(character);
    const size_t first = next_char(upper, 0);
    return upper.substr(0, first) + to_lower(std::string_view(upper).substr(first));
}

bool is_cased(char32_t character) {
    return u_hasBinaryProperty(static_cast<UChar32>(character), UCHAR_CASED);
}

bool is_printable(char32_t character) {
    constexpr uint32_t kHidden = U_GC_C_MASK | U_GC_Z_MASK;
    return character == U' ' || !(U_GET_GC_MASK(static_cast<UChar32>(character)) & kHidden);
}

bool is_line_end(char32_t character) {
    return (character >= 0x0a && character <= 0x0d) || (character >= 0x1c && character <= 0x1e) ||
           character == 0x85 || character == 0x2028 || character == 0x2029;
}

}  // namespace

void check_string_size(size_t bytes) {
    require(bytes <= kMaxStringBytes, "a string grew past {} MiB", kMaxStringBytes >> 20);
}

void append_char(std::string& text, char32_t character) {
    uint8_t bytes[4];
    int32_t length = 0;
    U8_APPEND_UNSAFE(bytes, length, static_cast<UChar32>(character));
    text.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(length));
}

std::u32string to_chars(std::string_view text) {
    std::u32string result;
    for (size_t position = 0; position < text.size();) result += decode(text, position);
    return result;
}

int64_t char_count(std::string_view text) {
    int64_t count = 0;
    for (size_t position = 0; position < text.size(); ++count) decode(text, position);
    return count;
}

size_t byte_offset(std::string_view text, int64_t index) {
    size_t position = 0;
    for (; index > 0 && position < text.size(); --index) decode(text, position);
    return position;
}

bool is_space(char32_t character) {
    // Python's str.isspace: Unicode White_Space and the four separators below U+0020.
    return (character >= 0x1c && character <= 0x1f) ||
           u_hasBinaryProperty(static_cast<UChar32>(character), UCHAR_WHITE_SPACE);
}

std::string to_upper(std::string_view text) {
    return from_icu(to_icu(text).toUpper(icu::Locale::getRoot()));
}

std::string to_lower(std::string_view text) {
    return from_icu(to_icu(text).toLower(icu::Locale::getRoot()));
}

std::string capitalize(std::string_view text) {
    if (text.empty()) return {};
    const size_t first = next_char(text, 0);
    // Lowered as a whole, because the case of a sigma depends on what stands before it.
    const std::string lower = to_lower(text);
    return title_char(text.substr(0, first)) + lower.substr(to_lower(text.substr(0, first)).size());
}

std::string to_title(std::string_view text) {
    std::string result;
    for (size_t position = 0; position < text.size();) {
        const size_t start = position;
        if (!is_cased(decode(text, position))) {
            result += text.substr(start, position - start);
            continue;
        }
        size_t end = position;
        for (size_t next = end; next < text.size() && is_cased(decode(text, next));) end = next;
        result += capitalize(text.substr(start, end - start));
        position = end;
    }
    return result;
}

std::string_view strip(std::string_view text, Side side,
                       std::optional<std::string_view> characters) {
    const std::u32string set = characters ? to_chars(*characters) : std::u32string();
    const auto removed = [&](char32_t character) {
        return characters ? set.find(character) != set.npos : is_space(character);
    };
    if (side != Side::kRight) {
        for (size_t next = 0; !text.empty() && removed(decode(text, next)); next = 0) {
            text.remove_prefix(next);
        }
    }
    if (side != Side::kLeft) {
        while (!text.empty()) {
            auto start = static_cast<int32_t>(text.size());
            UChar32 character = 0;
            U8_PREV(text.data(), 0, start, character);
            if (!removed(character < 0 ? U'\uFFFD' : static_cast<char32_t>(character))) break;
            text = text.substr(0, static_cast<size_t>(start));
        }
    }
    return text;
}

namespace {

struct Span {
    size_t begin, end;
};

std::vector<Span> find_words(std::string_view text) {
    std::vector<Span> words;
    bool inside = false;
    for (size_t position = 0; position < text.size();) {
        const size_t start = position;
        const bool space = is_space(decode(text, position));
        if (!space && !inside) words.push_back({start, position});
        if (!space) words.back().end = position;
        inside = !space;
    }
    return words;
}

std::vector<std::string_view> split_words(std::string_view text, int64_t limit, Side from) {
    std::vector<Span> words = find_words(text);
    const auto count = static_cast<int64_t>(words.size());
    if (limit >= 0 && count > limit) {
        // What is left over is one piece and keeps the white space inside it and at its far end.
        if (from == Side::kLeft) {
            words.resize(static_cast<size_t>(limit) + 1);
            words.back().end = text.size();
        } else {
            words.erase(words.begin(), words.end() - limit - 1);
            words.front().begin = 0;
        }
    }
    std::vector<std::string_view> pieces;
    for (const Span& word : words) pieces.push_back(text.substr(word.begin, word.end - word.begin));
    return pieces;
}

}  // namespace

std::vector<std::string_view> split(std::string_view text,
                                    std::optional<std::string_view> separator, int64_t limit,
                                    Side from) {
    if (!separator) return split_words(text, limit, from);
    require(!separator->empty(), "empty separator");
    std::vector<std::string_view> pieces;
    while (limit < 0 || static_cast<int64_t>(pieces.size()) < limit) {
        const size_t found = from == Side::kLeft ? text.find(*separator) : text.rfind(*separator);
        if (found == text.npos) break;
        const std::string_view before = text.substr(0, found);
        const std::string_view after = text.substr(found + separator->size());
        pieces.push_back(from == Side::kLeft ? before : after);
        text = from == Side::kLeft ? after : before;
    }
    pieces.push_back(text);
    if (from == Side::kRight) std::reverse(pieces.begin(), pieces.end());
    return pieces;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
    std::vector<std::string_view> lines;
    size_t start = 0;
    for (size_t position = 0; position < text.size();) {
        const size_t end = position;
        if (!is_line_end(decode(text, position))) continue;
        if (text.substr(end, 2) == "\r\n") ++position;
        lines.push_back(text.substr(start, (keep_ends ? position : end) - start));
        start = position;
    }
    if (start < text.size()) lines.push_back(text.substr(start));
    return lines;
}

std::string replace(std::string_view text, std::string_view old, std::string_view with,
                    int64_t limit) {
    std::string result;
    size_t position = 0;
    while (limit != 0) {
        const size_t found = text.find(old, position);
        if (found == text.npos) break;
        result.append(text, position, found - position).append(with);
        position = found + old.size();
        if (limit > 0) --limit;
        check_string_size(result.size());
        if (!old.empty()) continue;
        if (position == text.size()) break;
        const size_t next = next_char(text, position);
        result.append(text, position, next - position);
        position = next;
    }
    return result.append(text, position);
}

std::string repeat(std::string_view text, int64_t times) {
    if (times <= 0 || text.empty()) return {};
    check_string_size(static_cast<size_t>(times));
    check_string_size(text.size() * static_cast<size_t>(times));
    std::string result;
    result.reserve(text.size() * static_cast<size_t>(times));
    for (; times > 0; --times) result += text;
    return result;
}

std::string pad(std::string_view text, int64_t width, std::string_view fill, Side side) {
    const int64_t length = char_count(text);
    if (length >= width) return std::string(text);
    const int64_t missing = width - length;
    // str.center puts the odd character on the left when the width is odd.
    const int64_t left = side == Side::kBoth ? missing / 2 + (missing & width & 1)
                                             : (side == Side::kLeft ? missing : 0);
    return repeat(fill, left) + std::string(text) + repeat(fill, missing - left);
}

std::optional<bool> classify(std::string_view name, std::string_view text) {
    const std::u32string characters = to_chars(text);
    const auto all = [&](auto predicate) {
        return !characters.empty() &&
               std::all_of(characters.begin(), characters.end(), [&](char32_t character) {
                   return predicate(static_cast<UChar32>(character));
               });
    };
    const auto any = [&](auto predicate) {
        return std::any_of(characters.begin(), characters.end(), [&](char32_t character) {
            return predicate(static_cast<UChar32>(character));
        });
    };
    const auto numeric_type = [](UChar32 c) {
        return u_getIntPropertyValue(c, UCHAR_NUMERIC_TYPE);
    };
    const auto is_letter = [](UChar32 c) { return (U_GET_GC_MASK(c) & U_GC_L_MASK) != 0; };
    const auto is_title = [](UChar32 c) { return u_charType(c) == U_TITLECASE_LETTER; };
    const auto is_digit = [&](UChar32 c) {
        return numeric_type(c) == U_NT_DECIMAL || numeric_type(c) == U_NT_DIGIT;
    };
    if (name == "isspace") return all([](UChar32 c) { return is_space(static_cast<char32_t>(c)); });
    if (name == "isalpha") return all(is_letter);
    if (name == "isdecimal") return all([&](UChar32 c) { return numeric_type(c) == U_NT_DECIMAL; });
    if (name == "isdigit") return all(is_digit);
    if (name == "isnumeric") return all([&](UChar32 c) { return numeric_type(c) != U_NT_NONE; });
    if (name == "isalnum") {
        return all([&](UChar32 c) { return is_letter(c) || numeric_type(c) != U_NT_NONE; });
    }
    if (name == "isascii") return !any([](UChar32 c) { return c > 0x7f; });
    if (name == "isupper") {
        return any(u_isUUppercase) &&
               !any([&](UChar32 c) { return u_isULowercase(c) || is_title(c); });
    }
    if (name == "islower") {
        return any(u_isULowercase) &&
               !any([&](UChar32 c) { return u_isUUppercase(c) || is_title(c); });
    }
    return {};
}

std::string quote(std::string_view text) {
    const bool has_single = text.find('\'') != text.npos;
    const char mark = has_single && text.find('"') == text.npos ? '"' : '\'';
    std::string result(1, mark);
    for (size_t position = 0; position < text.size();) {
        const size_t start = position;
        const char32_t character = decode(text, position);
        const auto code = static_cast<uint32_t>(character);
        if (character == U'\\' || code == static_cast<uint32_t>(mark)) {
            result.append(1, '\\').append(1, static_cast<char>(code));
        } else if (character == U'\n') {
            result += "\\n";
        } else if (character == U'\r') {
            result += "\\r";
        } else if (character == U'\t') {
            result += "\\t";
        } else if (is_printable(character)) {
            result += text.substr(start, position - start);
        } else if (code <= 0xff) {
            result += fmt::format("\\x{:02x}", code);
        } else {
            result +=
                code <= 0xffff ? fmt::format("\\u{:04x}", code) : fmt::format("\\U{:08x}", code);
        }
    }
    return result + mark;
}

std::string json_quote(std::string_view text, bool ascii_only) {
    static constexpr std::string_view kShort = "\"\\\n\r\t\f\b";
    static constexpr std::string_view kLetters = "\"\\nrtfb";
    std::string result = "\"";
    for (size_t position = 0; position < text.size();) {
        const size_t start = position;
        const auto code = static_cast<uint32_t>(decode(text, position));
        const size_t known = code < 0x80 ? kShort.find(static_cast<char>(code)) : kShort.npos;
        if (known != kShort.npos) {
            result.append(1, '\\').append(1, kLetters[known]);
        } else if (code < 0x20 || (ascii_only && code > 0x7e && code <= 0xffff)) {
            result += fmt::format("\\u{:04x}", code);
        } else if (ascii_only && code > 0xffff) {
            result += fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + ((code - 0x10000) >> 10),
                                  0xdc00 + (code & 0x3ff));
        } else {
            result += text.substr(start, position - start);
        }
    }
    return result + '"';
}

std::string escape_html(std::string_view text) {
    std::string result;
    for (const char c : text) {
        switch (c) {
            case '&':
                result += "&amp;";
                break;
            case '<':
                result += "&lt;";
                break;
            case '>':
                result += "&gt;";
                break;
            case '"':
                result += "&#34;";
                break;
            case '\'':
                result += "&#39;";
                break;
            default:
                result += c;
        }
    }
    return result;
}

std::string float_text(double number) {
    if (std::isnan(number)) return "nan";
    std::string text = fmt::format("{}", number);
    if (text.find_first_of(".en") == text.npos) text += ".0";
    return text;
}

namespace {

/// Removes the underscores Python allows between digits; nothing where one stands elsewhere.
std::optional<std::string> drop_underscores(std::string_view text) {
    const auto is_digit = [&](size_t index) {
        return index < text.size() && std::isxdigit(static_cast<unsigned char>(text[index]));
    };
    std::string result;
    for (size_t index = 0; index < text.size(); ++index) {
        if (text[index] != '_') {
            result += text[index];
        } else if (index == 0 || !is_digit(index - 1) || !is_digit(index + 1)) {
            return {};
        }
    }
    return result;
}

}  // namespace

std::optional<int64_t> parse_int(std::string_view text, int64_t base) {
    require(base == 0 || (base >= 2 && base <= 36), "int() base must be 0 or 2 to 36");
    text = strip(text, Side::kBoth);
    const bool negative = text.starts_with('-');
    if (negative || text.starts_with('+')) text.remove_prefix(1);
    if (text.size() > 2 && text[0] == '0') {
        const char letter = static_cast<char>(text[1] | 0x20);
        const int64_t prefix = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
        if (prefix != 0 && (base == prefix || base == 0)) {
            base = prefix;
            text.remove_prefix(text[2] == '_' ? 3 : 2);
        }
    }
    const std::optional<std::string> digits = drop_underscores(text);
    if (!digits || digits->empty() || digits->front() == '-') return {};
    if (base == 0 && digits->front() == '0' && digits->find_first_not_of('0') != digits->npos) {
        return {};
    }
    const std::string signed_digits = fmt::format("{}{}", negative ? "-" : "", *digits);
    int64_t value = 0;
    const char* end = signed_digits.data() + signed_digits.size();
    const auto [stop, error] =
        std::from_chars(signed_digits.data(), end, value, base == 0 ? 10 : static_cast<int>(base));
    if (stop != end || error == std::errc::invalid_argument) return {};
    require(error == std::errc(), "integers past 64 bits are not supported");
    return value;
}

std::optional<double> parse_float(std::string_view text) {
    const std::optional<std::string> digits = drop_underscores(strip(text, Side::kBoth));
    if (!digits) return {};
    std::string_view number = *digits;
    const bool negative = number.starts_with('-');
    if (negative || number.starts_with('+')) number.remove_prefix(1);
    const std::string lower = to_lower(number);
    if (lower.empty() || lower.front() == '-' || lower.find('(') != lower.npos) return {};
    double value = 0;
    const char* end = lower.data() + lower.size();
    const auto [stop, error] = std::from_chars(lower.data(), end, value);
    if (stop != end || error == std::errc::invalid_argument) return {};
    if (error == std::errc::result_out_of_range) {
        const size_t exponent = lower.find('e');
        const bool tiny = exponent != lower.npos && lower[exponent + 1] == '-';
        value = tiny ? 0.0 : std::numeric_limits<double>::infinity();
    }
    return negative ? -value : value;
}

}  // namespace dak::jinja
