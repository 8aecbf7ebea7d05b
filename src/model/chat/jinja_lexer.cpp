#include "model/chat/jinja_lexer.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "model/chat/jinja_text.h"

namespace dak::jinja {

namespace {

using Kind = Token::Kind;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_name_char(char c) {
    return is_digit(c) || c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/// New lines become \n, and the last one of the source is dropped.
std::string normalize_lines(std::string_view source) {
    std::string text;
    text.reserve(source.size());
    for (size_t i = 0; i < source.size(); ++i) {
        if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n') continue;
        text += source[i] == '\r' ? '\n' : source[i];
    }
    if (text.ends_with('\n')) text.pop_back();
    return text;
}

class Lexer {
  public:
    Lexer(std::string_view source, std::string_view where)
        : source_(normalize_lines(source)), where_(where) {}

    std::vector<Token> run() {
        while (position_ < source_.size()) lex_text();
        add(Kind::kEnd);
        return std::move(tokens_);
    }

  private:
    [[noreturn]] void error(std::string_view message) {
        fail("{}, line {}: {}", where_, line_at(position_), message);
    }

    /// Positions only grow, so lines are counted once.
    int line_at(size_t position) {
        for (; counted_ < position; ++counted_) line_ += source_[counted_] == '\n';
        return line_;
    }

    Token& add(Kind kind, std::string text = {}) {
        tokens_.push_back({kind, line_at(position_), std::move(text)});
        return tokens_.back();
    }

    bool at(std::string_view text) const {
        return std::string_view(source_).substr(position_).starts_with(text);
    }

    void skip_space() {
        const std::string_view rest = std::string_view(source_).substr(position_);
        position_ += rest.size() - strip(rest, Side::kLeft).size();
    }

    /// The sign after an opening delimiter; moves past both.
    char open(size_t delimiter_size) {
        position_ += delimiter_size;
        const char sign = position_ < source_.size() ? source_[position_] : '\0';
        if (sign != '-' && sign != '+') return '\0';
        ++position_;
        return sign;
    }

    /// Moves past a closing delimiter and the white space that it removes.
    void close(char sign, std::string_view delimiter, bool trim_line) {
        position_ += delimiter.size() + (sign != '\0');
        if (sign == '-') skip_space();
        if (sign == '\0' && trim_line && at("\n")) ++position_;
    }

    /// `text` runs up to a tag opened with `sign`: its white space before the tag is removed.
    void add_text(std::string_view text, char sign, bool is_output) {
        const bool starts_line = position_ == 0 || source_[position_ - 1] == '\n';
        if (sign == '-') {
            text = strip(text, Side::kRight);
        } else if (sign == '\0' && !is_output) {
            const size_t line_start = text.rfind('\n') + 1;  // npos + 1 == 0
            if ((line_start > 0 || starts_line) &&
                strip(text.substr(line_start), Side::kLeft).empty()) {
                text = text.substr(0, line_start);
            }
        }
        if (!text.empty()) add(Kind::kText, std::string(text));
    }

    void lex_text() {
        static constexpr std::string_view kTagStarts = "{%#";
        const std::string_view source = source_;
        size_t tag = source.find('{', position_);
        while (tag != source.npos &&
               (tag + 1 == source.size() || kTagStarts.find(source[tag + 1]) == source.npos)) {
            tag = source.find('{', tag + 1);
        }
        if (tag == source.npos) {
            add(Kind::kText, std::string(source.substr(position_)));
            position_ = source.size();
            return;
        }
        const char type = source[tag + 1];
        const size_t text_start = position_;
        position_ = tag;
        const char sign = open(2);
        const size_t inside = position_;
        position_ = text_start;
        add_text(source.substr(text_start, tag - text_start), sign, type == '{');
        position_ = inside;
        if (type == '#') return lex_comment();
        if (type == '{') return lex_tag(Kind::kOutputBegin, Kind::kOutputEnd, "}}");
        if (!lex_raw()) lex_tag(Kind::kTagBegin, Kind::kTagEnd, "%}");
    }

    void lex_comment() {
        const size_t end = source_.find("#}", position_);
        if (end == source_.npos) error("a comment '{#' is never closed");
        const char last = end > position_ ? source_[end - 1] : '\0';
        const char sign = last == '-' || last == '+' ? last : '\0';
        position_ = end - (sign != '\0');
        close(sign, "#}", true);
    }

    /// Moves past `word` and the end of its tag when they come next.
    bool skip_raw_tag(std::string_view word, bool trim_line) {
        const size_t start = position_;
        skip_space();
        if (at(word)) {
            position_ += word.size();
            skip_space();
            const char sign = at("-%}") ? '-' : (at("+%}") && trim_line ? '+' : '\0');
            if (sign != '\0' || at("%}")) {
                close(sign, "%}", trim_line);
                return true;
            }
        }
        position_ = start;
        return false;
    }

    /// After `{%`: a raw block, or nothing moved. jinja2 keeps the new line after `{% raw %}`.
    bool lex_raw() {
        const size_t opened = position_;
        if (!skip_raw_tag("raw", false)) return false;
        const size_t start = position_;
        for (size_t tag = start;; ++tag) {
            tag = source_.find("{%", tag);
            if (tag == source_.npos) {
                position_ = opened;
                error("a raw block is never closed");
            }
            position_ = tag;
            const char sign = open(2);
            if (!skip_raw_tag("endraw", true)) continue;
            const size_t end = position_;
            position_ = start;
            add_text(std::string_view(source_).substr(start, tag - start), sign, false);
            position_ = end;
            return true;
        }
    }

    void lex_tag(Kind begin, Kind end, std::string_view delimiter) {
        add(begin);
        std::string open_brackets;
        while (true) {
            skip_space();
            if (position_ == source_.size()) error(fmt::format("'{}' is missing", delimiter));
            if (open_brackets.empty()) {
                const char first = source_[position_];
                const char sign =
                    first == '-' || (first == '+' && end == Kind::kTagEnd) ? first : '\0';
                if (source_.compare(position_ + (sign != '\0'), 2, delimiter) == 0) {
                    add(end);
                    return close(sign, delimiter, end == Kind::kTagEnd);
                }
            }
            const char c = source_[position_];
            if (is_digit(c)) {
                lex_number();
            } else if (is_name_char(c)) {
                size_t stop = position_;
                while (stop < source_.size() && is_name_char(source_[stop])) ++stop;
                add(Kind::kName, source_.substr(position_, stop - position_));
                position_ = stop;
            } else if (c == '\'' || c == '"') {
                lex_string(c);
            } else {
                lex_operator(open_brackets);
            }
        }
    }

    void lex_operator(std::string& open_brackets) {
        static constexpr std::array<std::string_view, 6> kLong = {
            "//", "**", "==", "!=", "<=", ">="};
        static constexpr std::string_view kShort = "+-/*%~[](){}<>=.:|,";
        for (const std::string_view text : kLong) {
            if (!at(text)) continue;
            add(Kind::kOperator, std::string(text));
            position_ += text.size();
            return;
        }
        const char c = source_[position_];
        if (kShort.find(c) == kShort.npos) {
            const std::string_view rest = std::string_view(source_).substr(position_);
            error(fmt::format("unexpected character {}",
                              quote(rest.substr(0, byte_offset(rest, 1)))));
        }
        if (c == '(' || c == '[' || c == '{') open_brackets += c;
        if (c == ')' || c == ']' || c == '}') {
            const char opening = c == ')' ? '(' : static_cast<char>(c - 2);  // ASCII: [ \ ], { | }
            if (!open_brackets.ends_with(opening)) error(fmt::format("unexpected '{}'", c));
            open_brackets.pop_back();
        }
        add(Kind::kOperator, std::string(1, c));
        ++position_;
    }

    /// The end of digits, which single underscores may separate.
    size_t skip_digits(size_t start) const {
        size_t end = start;
        while (
            end < source_.size() &&
            (is_digit(source_[end]) || (source_[end] == '_' && end > start && digit_at(end + 1)))) {
            ++end;
        }
        return end;
    }

    bool digit_at(size_t index) const { return index < source_.size() && is_digit(source_[index]); }

    void lex_number() {
        const char prefix = at("0") && position_ + 1 < source_.size()
                                ? static_cast<char>(source_[position_ + 1] | 0x20)
                                : '\0';
        size_t end = skip_digits(position_);
        bool is_float = false;
        if (prefix == 'x' || prefix == 'o' || prefix == 'b') {
            end = position_ + 2;
            while (end < source_.size() && is_name_char(source_[end])) ++end;
        } else if (position_ == 0 || source_[position_ - 1] != '.') {
            if (end < source_.size() && source_[end] == '.' && digit_at(end + 1)) {
                is_float = true;
                end = skip_digits(end + 1);
            }
            if (end < source_.size() && (source_[end] | 0x20) == 'e') {
                const bool has_sign = end + 1 < source_.size() &&
                                      (source_[end + 1] == '+' || source_[end + 1] == '-');
                if (digit_at(end + 1 + has_sign)) {
                    is_float = true;
                    end = skip_digits(end + 1 + has_sign);
                }
            }
        }
        const std::string text = source_.substr(position_, end - position_);
        Token& token = add(is_float ? Kind::kFloat : Kind::kInteger, text);
        const auto integer = is_float ? std::optional<int64_t>(0) : read_integer(text);
        const auto number = is_float ? parse_float(text) : std::optional<double>(0.0);
        if (!integer || !number) error(fmt::format("'{}' is no number", text));
        token.integer = *integer;
        token.number = *number;
        position_ = end;
    }

    std::optional<int64_t> read_integer(const std::string& text) {
        try {
            return parse_int(text, 0);
        } catch (const Error& failure) {
            error(failure.what());
        }
    }

    void lex_string(char mark) {
        Token& token = add(Kind::kString);
        const size_t start = position_++;
        while (position_ < source_.size() && source_[position_] != mark) {
            if (source_[position_] == '\\') {
                lex_escape(token.text);
            } else {
                token.text += source_[position_++];
            }
        }
        if (position_ >= source_.size()) {
            position_ = start;
            error("a string is never closed");
        }
        ++position_;
    }

    void lex_escape(std::string& text) {
        static constexpr std::string_view kLetters = "\n\\'\"abfnrtv";
        static constexpr std::string_view kValues = "\n\\'\"\a\b\f\n\r\t\v";
        const char c = position_ + 1 < source_.size() ? source_[position_ + 1] : '\0';
        const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
        if (digits > 0) {
            const std::string hex = source_.substr(std::min(position_ + 2, source_.size()), digits);
            const bool complete =
                hex.size() == digits && hex.find_first_not_of("0123456789abcdefABCDEF") == hex.npos;
            const auto code = complete ? std::stoul(hex, nullptr, 16) : 0x110000;
            if (code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) {
                error(fmt::format("the string escape '\\{}{}' is no character", c, hex));
            }
            append_char(text, static_cast<char32_t>(code));
            position_ += 2 + digits;
        } else if (c >= '0' && c <= '7') {
            uint32_t code = 0;
            size_t end = position_ + 1;
            for (; end < position_ + 4 && end < source_.size(); ++end) {
                if (source_[end] < '0' || source_[end] > '7') break;
                code = code * 8 + static_cast<uint32_t>(source_[end] - '0');
            }
            append_char(text, code);
            position_ = end;
        } else if (c == 'N') {
            error("the string escape '\\N' is not supported");
        } else {
            const size_t known = kLetters.find(c);
            if (known == kLetters.npos) text += '\\';
            if (c != '\n') text += known == kLetters.npos ? c : kValues[known];
            position_ += 2;
        }
    }

    const std::string source_;
    const std::string_view where_;
    std::vector<Token> tokens_;
    size_t position_ = 0;
    size_t counted_ = 0;
    int line_ = 1;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source, std::string_view where) {
    return Lexer(source, where).run();
}

}  // namespace dak::jinja
