#include "model/tokenizer/regex.h"

#include <limits>

#include "base/error.h"
#include "model/tokenizer/utf8.h"

namespace dak {

namespace {

// How many states a search may save, in ICU's ticks of 10,000: some 10 million, as Oniguruma allows
// for a match, and 1,000 a byte. Real patterns need one or two a byte.
constexpr int64_t kTicks = 1000;
constexpr int64_t kBytesPerTick = 10;

UBool spend_tick(const void* ticks_left, int32_t) {
    return --*static_cast<int64_t*>(const_cast<void*>(ticks_left)) > 0;
}

void to_utf16(std::string_view text, std::u16string& utf16) {
    utf16.clear();
    utf16.reserve(text.size());
    for (size_t pos = 0; pos < text.size();) {
        const char32_t code_point = next_code_point(text, pos);
        if (code_point < 0x10000) {
            utf16 += static_cast<char16_t>(code_point);
        } else {
            utf16 += static_cast<char16_t>(0xD7C0 + (code_point >> 10));
            utf16 += static_cast<char16_t>(0xDC00 + (code_point & 0x3FF));
        }
    }
}

/// Turns ascending UTF-16 offsets into UTF-8 offsets.
class OffsetCursor {
  public:
    explicit OffsetCursor(std::u16string_view utf16) : utf16_(utf16) {}

    size_t utf8_offset(size_t utf16_offset) {
        for (; utf16_pos_ < utf16_offset; ++utf16_pos_) {
            const char16_t unit = utf16_[utf16_pos_];
            const bool surrogate = unit >= 0xD800 && unit < 0xE000;  // two make four bytes
            utf8_pos_ += unit < 0x80 ? 1 : unit < 0x800 || surrogate ? 2 : 3;
        }
        return utf8_pos_;
    }

  private:
    std::u16string_view utf16_;
    size_t utf16_pos_ = 0;
    size_t utf8_pos_ = 0;
};

}  // namespace

Pattern Pattern::parse(const Json& pattern, std::string_view where) {
    const JsonFields fields(pattern, std::string(where));
    if (auto text = fields.maybe<std::string>("String")) return literal(*std::move(text), where);
    if (auto source = fields.maybe<std::string>("Regex")) return regex(*source, where);
    fail("{}: a pattern must be {{\"String\": ...}} or {{\"Regex\": ...}}", where);
}

Pattern Pattern::literal(std::string text, std::string_view where) {
    require(!text.empty(), "{}: the pattern is empty", where);
    Pattern pattern;
    pattern.source_ = std::move(text);
    return pattern;
}

Pattern Pattern::regex(std::string_view source, std::string_view where) {
    Pattern pattern;
    pattern.source_ = source;
    std::u16string utf16;
    to_utf16(translate_regex(source, where), utf16);
    UParseError position{};
    UErrorCode status = U_ZERO_ERROR;
    // Oniguruma's ^ and $ match at every line, and only \n ends one.
    pattern.regex_.reset(uregex_open(utf16.data(), static_cast<int32_t>(utf16.size()),
                                     UREGEX_MULTILINE | UREGEX_UNIX_LINES, &position, &status));
    require(U_SUCCESS(status), "{}: the regular expression '{}' is not supported ({})", where,
            source, u_errorName(status));
    return pattern;
}

Pattern::Searcher::Searcher(const Pattern& pattern) : pattern_(&pattern) {
    if (!pattern.regex_) return;
    UErrorCode status = U_ZERO_ERROR;
    regex_.reset(uregex_clone(pattern.regex_.get(), &status));
    require(U_SUCCESS(status), "cannot prepare the regular expression '{}' ({})", pattern.source_,
            u_errorName(status));
}

const std::vector<Match>& Pattern::Searcher::find_all(std::string_view text) {
    matches_.clear();
    if (regex_) {
        find_regex(text);
    } else {
        find_literal(text);
    }
    return matches_;
}

void Pattern::Searcher::find_literal(std::string_view text) {
    const std::string_view literal = pattern_->source_;
    for (size_t begin = text.find(literal); begin != std::string_view::npos;
         begin = text.find(literal, begin + literal.size())) {
        matches_.push_back({begin, begin + literal.size()});
    }
}

void Pattern::Searcher::find_regex(std::string_view text) {
    if (text.empty()) return;
    to_utf16(text, utf16_);
    require(utf16_.size() <= INT32_MAX, "cannot search a text of {} bytes", text.size());
    UErrorCode status = U_ZERO_ERROR;
    uregex_setText(regex_.get(), utf16_.data(), static_cast<int32_t>(utf16_.size()), &status);
    int64_t ticks_left = kTicks + static_cast<int64_t>(text.size()) / kBytesPerTick;
    uregex_setMatchCallback(regex_.get(), spend_tick, &ticks_left, &status);
    OffsetCursor cursor(utf16_);
    size_t previous_end = std::numeric_limits<size_t>::max();
    while (uregex_findNext(regex_.get(), &status)) {
        const auto begin = static_cast<size_t>(uregex_start(regex_.get(), 0, &status));
        const auto end = static_cast<size_t>(uregex_end(regex_.get(), 0, &status));
        if (begin == end && begin == previous_end) continue;
        previous_end = end;
        const size_t utf8_begin = cursor.utf8_offset(begin);
        matches_.push_back({utf8_begin, cursor.utf8_offset(end)});
    }
    require(U_SUCCESS(status),
            "the tokenizer's regular expression '{}' needs too much time or memory on a text of "
            "{} bytes ({})",
            pattern_->source_, text.size(), u_errorName(status));
}

}  // namespace dak
