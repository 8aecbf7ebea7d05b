#include <fmt/format.h>

#include <utility>
#include <vector>

#include "base/error.h"
#include "model/tokenizer/regex.h"
#include "model/tokenizer/utf8.h"

namespace dak {

namespace {

// Oniguruma's classes in ICU's words. Each is one set, so that it may stand inside another.
constexpr std::string_view kSpace = "\\p{White_Space}";
constexpr std::string_view kDigit = "\\p{Nd}";
constexpr std::string_view kWordInSet = "[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}]";
// Outside a set, Latin-1's superscripts and fractions count too.
constexpr std::string_view kWord =
    "[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}]";
constexpr std::string_view kHexDigit = "[0-9A-Fa-f]";

/// Property names that Oniguruma reads in its own way, in lower case. Every other property name
/// means the same to both, or ICU refuses it.
constexpr std::pair<std::string_view, std::string_view> kProperties[] = {
    {"alnum", "[\\p{Alphabetic}\\p{Nd}]"},
    {"alpha", "\\p{Alphabetic}"},
    {"blank", "[\\p{Zs}\\x{9}]"},
    {"cntrl", "\\p{Cc}"},
    {"digit", kDigit},
    {"lower", "\\p{Lowercase}"},
    {"punct", "\\p{P}"},
    {"space", kSpace},
    {"upper", "\\p{Uppercase}"},
    {"xdigit", kHexDigit},
};
constexpr std::string_view kUnsupportedProperties[] = {"ascii", "graph", "print"};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
bool is_letter(char c) { return is_lower(c) || (c >= 'A' && c <= 'Z'); }
bool is_hex_digit(char c) {
    return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

std::string negated(std::string_view set) { return fmt::format("[^{}]", set); }

/// One pass over the pattern, from left to right, that writes ICU's form of it.
class Translator {
  public:
    Translator(std::string_view pattern, std::string_view where)
        : pattern_(pattern), where_(where) {}

    std::string run() {
        if (pattern_.size() > kMaxPatternBytes) {
            fail("{}: the regular expression is longer than {} bytes", where_, kMaxPatternBytes);
        }
        while (!at_end()) term();
        return std::move(out_);
    }

  private:
    [[noreturn]] void refuse(std::string_view what) const {
        fail("{}: {} in the regular expression '{}' is not supported", where_, what, pattern_);
    }

    bool at_end() const { return pos_ == pattern_.size(); }
    bool next_is(std::string_view text) const { return pattern_.substr(pos_).starts_with(text); }

    bool accept(std::string_view text) {
        if (!next_is(text)) return false;
        pos_ += text.size();
        return true;
    }

    char take(std::string_view construct) {
        if (at_end()) refuse(fmt::format("an unfinished {}", construct));
        return pattern_[pos_++];
    }

    char32_t take_code_point() { return next_code_point(pattern_, pos_); }

    void emit_atom(std::string_view text) {
        atom_ = out_.size();
        out_ += text;
    }

    static std::string literal(char32_t code_point) {
        return fmt::format("\\x{{{:X}}}", static_cast<uint32_t>(code_point));
    }

    void term() {
        if (accept("\\")) return escape();
        if (accept("[")) return emit_atom(set());
        if (accept("(")) return open_group();
        if (accept(")")) return close_group();
        if (accept("|")) {
            out_ += '|';
            atom_ = kNoAtom;
        } else if (next_is("*") || next_is("+") || next_is("?")) {
            simple_quantifier();
        } else if (next_is("{")) {
            interval();
        } else if (next_is(".") || next_is("^") || next_is("$")) {
            emit_atom(pattern_.substr(pos_++, 1));
        } else {
            const size_t begin = pos_;
            const char32_t code_point = take_code_point();
            // Runs of plain text stay readable; all else is spelled as a number.
            emit_atom(code_point >= 0x80 || is_letter(pattern_[begin]) ||
                              is_digit(pattern_[begin]) || pattern_[begin] == ' '
                          ? std::string(pattern_.substr(begin, pos_ - begin))
                          : literal(code_point));
        }
    }

    void open_group() {
        groups_.push_back(out_.size());
        atom_ = kNoAtom;
        for (const std::string_view opening : {"?:", "?=", "?!", "?>", "?<=", "?<!"}) {
            if (accept(opening)) {
                out_ += '(';
                out_ += opening;
                return;
            }
        }
        if (!next_is("?")) {
            out_ += "(?:";  // nothing refers to a group: back references are refused
            return;
        }
        const size_t begin = pos_++;
        std::string flags = "(?";
        for (;;) {
            const char c = take("group");
            if (c == ':' || c == ')') {
                if (c == ')' && !out_.empty()) refuse("a flag other than at the beginning");
                out_ += flags + c;
                if (c == ')') groups_.pop_back();
                return;
            }
            if (c == 'i' || c == '-') {
                flags += c;
            } else if (c == 'm') {
                flags += 's';  // both: . matches a line's end
            } else {
                refuse(fmt::format("'({}'", pattern_.substr(begin, pos_ - begin)));
            }
        }
    }

    void close_group() {
        if (groups_.empty()) refuse("a ')' without '('");
        out_ += ')';
        atom_ = groups_.back();
        groups_.pop_back();
    }

    void require_atom() const {
        if (atom_ == kNoAtom) refuse("a quantifier of nothing");
    }

    /// Makes what stands since the last atom one atom, for a quantifier of a quantified atom.
    void enclose_atom() {
        out_.insert(atom_, "(?:");
        out_ += ')';
    }

    void simple_quantifier() {
        require_atom();
        out_ += pattern_[pos_++];
        if (next_is("?") || next_is("+")) out_ += pattern_[pos_++];
        if (next_is("*") || next_is("+") || next_is("?") || next_is("{")) enclose_atom();
    }

    /// {n}, {n,}, {n,m} or {,m}; any other { is a plain character.
    void interval() {
        size_t end = pos_ + 1;
        const auto number = [&] {
            const size_t begin = end;
            while (end < pattern_.size() && is_digit(pattern_[end])) ++end;
            return pattern_.substr(begin, end - begin);
        };
        const std::string_view low = number();
        const bool exact = end >= pattern_.size() || pattern_[end] != ',';
        if (!exact) ++end;
        const std::string_view high = exact ? low : number();
        const bool closed = end < pattern_.size() && pattern_[end] == '}';
        if (!closed || (low.empty() && high.empty())) {
            ++pos_;
            return emit_atom(literal('{'));
        }
        require_atom();
        pos_ = end + 1;
        out_ += exact ? fmt::format("{{{}}}", low)
                      : fmt::format("{{{},{}}}", low.empty() ? "0" : low, high);
        // Lazy only as a range, and never possessive: Oniguruma reads {n}? and {n,m}+ as a
        // quantifier of a quantified atom.
        if (!exact && accept("?")) out_ += '?';
        if (next_is("*") || next_is("+") || next_is("?") || next_is("{")) enclose_atom();
    }

    void escape() {
        if (accept("b") || accept("B")) {
            const bool boundary = pattern_[pos_ - 1] == 'b';
            return emit_atom(fmt::format("(?:(?<={0})(?{1}{0})|(?<!{0})(?{2}{0}))", kWord,
                                         boundary ? "!" : "=", boundary ? "=" : "!"));
        }
        for (const std::string_view anchor : {"A", "z", "Z", "R"}) {
            if (accept(anchor)) return emit_atom(fmt::format("\\{}", anchor));
        }
        if (!at_end() && pattern_[pos_] >= '1' && pattern_[pos_] <= '9') refuse("a back reference");
        const std::string set = class_escape();
        emit_atom(set.empty() ? literal(character_escape()) : set);
    }

    std::string_view word() const { return set_depth_ > 0 ? kWordInSet : kWord; }

    /// The set that the escape at hand names, or nothing when it names none.
    std::string class_escape() {
        const std::pair<char, std::string_view> sets[] = {
            {'s', kSpace},
            {'d', kDigit},
            {'w', word()},
            {'h', kHexDigit},
        };
        if (accept("p{") || accept("P{")) return property(pattern_[pos_ - 2] == 'P');
        if (at_end()) return {};
        for (const auto& [name, set] : sets) {
            if (pattern_[pos_] == name) return ++pos_, std::string(set);
            if (pattern_[pos_] == name - 'a' + 'A') return ++pos_, negated(set);
        }
        return {};
    }

    std::string property(bool negative) {
        if (accept("^")) negative = !negative;
        std::string name;
        for (char c = take("property"); c != '}'; c = take("property")) name += c;
        return named_set(name, negative);
    }

    std::string named_set(std::string_view name, bool negative) const {
        std::string key;
        for (const char c : name) {
            const bool plain = is_letter(c) || is_digit(c) || c == '_' || c == ' ' || c == '-';
            if (!plain) refuse(fmt::format("the property '{}'", name));
            if (is_letter(c) || is_digit(c)) key += is_digit(c) || is_lower(c) ? c : c - 'A' + 'a';
        }
        for (const std::string_view unsupported : kUnsupportedProperties) {
            if (key == unsupported) refuse(fmt::format("the property '{}'", name));
        }
        if (key == "word") return negative ? negated(word()) : std::string(word());
        for (const auto& [known, set] : kProperties) {
            if (key == known) return negative ? negated(set) : std::string(set);
        }
        return fmt::format("\\{}{{{}}}", negative ? 'P' : 'p', name);
    }

    /// The character that the escape at hand stands for.
    char32_t character_escape() {
        constexpr std::pair<char, char32_t> controls[] = {
            {'t', '\t'}, {'n', '\n'}, {'r', '\r'}, {'f', '\f'},
            {'v', '\v'}, {'a', '\a'}, {'e', 0x1B},
        };
        if (at_end()) refuse("a lone \\");
        const char c = pattern_[pos_];
        for (const auto& [name, code_point] : controls) {
            if (c == name) return ++pos_, code_point;
        }
        if (accept("x{")) {
            const char32_t code_point = number(8, 16);
            if (take("\\x{") != '}') refuse("an unfinished \\x{");
            return code_point;
        }
        if (accept("x")) return number(2, 16);
        if (accept("u")) return number(4, 16);
        if (c == '0') return number(3, 8);
        if (is_letter(c) || is_digit(c)) refuse(fmt::format("'\\{}'", c));
        return take_code_point();
    }

    char32_t number(int max_digits, uint32_t base) {
        uint32_t value = 0;
        int digits = 0;
        for (; digits < max_digits && !at_end() && is_hex_digit(pattern_[pos_]); ++digits, ++pos_) {
            const char c = pattern_[pos_];
            const uint32_t digit = is_digit(c) ? c - '0' : (c | 0x20) - 'a' + 10;
            if (digit >= base) break;
            value = value * base + digit;
        }
        const bool surrogate = value >= 0xD800 && value < 0xE000;
        if (digits == 0 || value > 0x10FFFF || surrogate) refuse("a malformed character number");
        return value;
    }

    /// The set after its opening bracket.
    std::string set() {
        if (++set_depth_ > kMaxSetDepth) refuse("a deeply nested set");
        const bool negative = accept("^");
        std::vector<std::string> parts(1);  // what && separates
        if (accept("]")) parts.back() += literal(']');
        while (!accept("]")) {
            if (at_end()) refuse("an unfinished set");
            if (accept("&&")) {
                parts.emplace_back();
            } else {
                parts.back() += set_item();
            }
        }
        --set_depth_;
        std::string united;
        for (const std::string& part : parts) {
            if (part.empty()) refuse("an empty set");
            if (!united.empty()) united += "&&";
            united += parts.size() == 1 ? part : fmt::format("[{}]", part);
        }
        return fmt::format("[{}{}]", negative ? "^" : "", united);
    }

    std::string set_item() {
        if (accept("[:")) return posix_class();
        if (accept("[")) return set();
        if (next_is("\\")) {
            ++pos_;
            std::string named = class_escape();
            if (!named.empty()) {
                if (next_is("-") && !next_is("-]")) refuse("a range that begins with a class");
                return named;
            }
            --pos_;
        }
        const char32_t first = set_character();
        if (!next_is("-") || next_is("-]") || next_is("-&&")) return literal(first);
        ++pos_;
        if (next_is("[")) refuse("a range that ends with a set");
        const char32_t last = set_character();
        if (last < first) refuse("an empty range");
        return fmt::format("{}-{}", literal(first), literal(last));
    }

    char32_t set_character() {
        if (at_end()) refuse("an unfinished set");
        if (!accept("\\")) return take_code_point();
        if (accept("b")) return '\b';
        return character_escape();
    }

    std::string posix_class() {
        const bool negative = accept("^");
        std::string name;
        while (!next_is(":]")) name += take("[:class:]");
        pos_ += 2;
        // In brackets, and only there, symbols are punctuation.
        if (name == "punct") return negative ? "[^\\p{P}\\p{S}]" : "[\\p{P}\\p{S}]";
        return named_set(name, negative);
    }

    static constexpr size_t kMaxPatternBytes = size_t{64} << 10;  // real ones stay under 4 KiB
    static constexpr int kMaxSetDepth = 20;  // bounds the recursion; real patterns nest once
    static constexpr size_t kNoAtom = std::string::npos;

    std::string_view pattern_;
    std::string_view where_;
    size_t pos_ = 0;
    std::string out_;
    size_t atom_ = kNoAtom;       // where the last atom begins in out_
    std::vector<size_t> groups_;  // where the open groups begin in out_
    int set_depth_ = 0;
};

}  // namespace

std::string translate_regex(std::string_view pattern, std::string_view where) {
    return Translator(pattern, where).run();
}

}  // namespace dak
