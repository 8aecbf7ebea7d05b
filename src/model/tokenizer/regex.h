#pragma once

#include <unicode/uregex.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace dak {

/// A match in a text, as byte offsets [begin, end).
struct Match {
    size_t begin = 0;
    size_t end = 0;
};

/// Rewrites a pattern in the Oniguruma dialect, in which tokenizer files are written, as one for
/// ICU. Throws Error naming `where` and the pattern when it uses what cannot be carried over.
std::string translate_regex(std::string_view pattern, std::string_view where);

struct CloseRegex {
    void operator()(URegularExpression* regex) const { uregex_close(regex); }
};
using IcuRegex = std::unique_ptr<URegularExpression, CloseRegex>;

/// What a Split or Replace step looks for: a literal string or a regular expression. Immutable and
/// thread-safe.
class Pattern {
  public:
    /// From {"String": text} or {"Regex": pattern}. Throws Error naming a pattern that cannot be
    /// compiled.
    static Pattern parse(const Json& pattern, std::string_view where);

    /// From an Oniguruma regular expression.
    static Pattern regex(std::string_view pattern, std::string_view where);

    static Pattern literal(std::string text, std::string_view where);

    /// Finds matches in one text after another. Not thread-safe; its Pattern must outlive it.
    class Searcher {
      public:
        explicit Searcher(const Pattern& pattern);

        /// All matches in valid UTF-8, left to right, none overlapping. An empty match right
        /// behind another match does not count. Throws Error when a regular expression needs
        /// unreasonable time or memory on this text. The result stands until the next call.
        const std::vector<Match>& find_all(std::string_view text);

      private:
        void find_literal(std::string_view text);
        void find_regex(std::string_view text);

        const Pattern* pattern_;
        IcuRegex regex_;
        std::u16string utf16_;
        std::vector<Match> matches_;
    };

  private:
    std::string source_;
    IcuRegex regex_;  // null for a literal
};

}  // namespace dak
