#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "model/chat/jinja_lexer.h"

namespace dak::jinja {

/// Reads the tokens of a template one by one; the base of the parsers.
class TokenReader {
  protected:
    using Kind = Token::Kind;

    TokenReader(std::string_view source, std::string_view where)
        : where_(where), tokens_(tokenize(source, where)) {}

    const Token& peek(size_t ahead = 0) const {
        return tokens_[std::min(next_ + ahead, tokens_.size() - 1)];
    }
    const Token& take() {
        const Token& token = peek();
        ++next_;
        return token;
    }
    bool at_operator(std::string_view text) const {
        return peek().kind == Kind::kOperator && peek().text == text;
    }
    bool at_word(std::string_view text, size_t ahead = 0) const {
        return peek(ahead).kind == Kind::kName && peek(ahead).text == text;
    }
    bool accept_operator(std::string_view text) {
        const bool found = at_operator(text);
        next_ += found;
        return found;
    }
    bool accept_word(std::string_view text) {
        const bool found = at_word(text);
        next_ += found;
        return found;
    }
    void expect_operator(std::string_view text) {
        if (!accept_operator(text)) unexpected(fmt::format("'{}'", text));
    }
    void expect_word(std::string_view text) {
        if (!accept_word(text)) unexpected(fmt::format("'{}'", text));
    }
    void expect(Kind kind, std::string_view what) {
        if (take().kind == kind) return;
        --next_;
        unexpected(what);
    }

    template <typename... Args>
    [[noreturn]] void error(int line, fmt::format_string<Args...> format, Args&&... args) const {
        fail("{}, line {}: {}", where_, line, fmt::format(format, std::forward<Args>(args)...));
    }
    /// Says which token was found in place of what was `expected`.
    [[noreturn]] void unexpected(std::string_view expected = "an expression") const;

    /// Counts nesting while it lives.
    class Nested {
      public:
        explicit Nested(TokenReader& reader) : reader_(reader) {
            if (++reader_.nesting_ > kMaxNesting) {
                reader_.error(reader_.peek().line, "nested deeper than {} levels", kMaxNesting);
            }
        }
        ~Nested() { --reader_.nesting_; }
        Nested(const Nested&) = delete;
        Nested& operator=(const Nested&) = delete;

      private:
        TokenReader& reader_;
    };

    /// Bounds the recursion of the parsers, of the evaluator and of the tree's destruction.
    /// Published templates stay below 40.
    static constexpr int kMaxNesting = 150;

  private:
    std::string_view where_;
    std::vector<Token> tokens_;
    size_t next_ = 0;
    int nesting_ = 0;
};

}  // namespace dak::jinja
