#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "model/chat/jinja_ast.h"
#include "model/chat/jinja_token_reader.h"

namespace dak::jinja {

/// Words that cannot name a variable.
bool is_reserved(std::string_view word);

/// Parses jinja2's expressions by recursive descent, from the loosest operator to the tightest.
class ExpressionParser : protected TokenReader {
  protected:
    using TokenReader::TokenReader;

    /// One expression, or a tuple where commas follow.
    ExprPtr parse_tuple(bool with_conditional = true);
    ExprPtr parse_expression();
    /// `subject` through the filters that follow, each after a `|`.
    ExprPtr parse_filter_chain(ExprPtr subject);
    /// The filter that comes next, without its `|`.
    ExprPtr parse_filter(ExprPtr subject);
    /// A node above others, of which the highest is `height` high.
    template <typename Node>
    ExprPtr make(int line, int height, Node node) const {
        if (height >= kMaxNesting) {
            error(line,
                  "an expression of more than {} parts in a row; set a variable to some of it",
                  kMaxNesting);
        }
        return std::make_unique<const Expr>(Expr{line, height + 1, std::move(node)});
    }

    /// While true, the names that a macro's body would find its extra arguments by are refused.
    bool in_macro_ = false;

  private:
    ExprPtr make_binary(int line, BinaryOp op, ExprPtr left, ExprPtr right);
    ExprPtr parse_or();
    ExprPtr parse_and();
    ExprPtr parse_not();
    ExprPtr make_unary(int line, UnaryOp op, ExprPtr operand);
    std::optional<CompareOp> accept_comparison();
    ExprPtr parse_compare();
    /// Arithmetic: levels 0 (+ -), 1 (~), 2 (* / // %) and 3 (**); jinja2's ** groups to the left.
    ExprPtr parse_operators(int level);
    ExprPtr parse_concat();
    ExprPtr parse_unary(bool with_filters);
    ExprPtr parse_primary();
    ExprPtr parse_name_or_constant();
    ExprPtr parse_list(int line);
    ExprPtr parse_dict(int line);
    ExprPtr parse_postfix(ExprPtr object);
    ExprPtr parse_attribute(int line, ExprPtr object);
    ExprPtr parse_subscript(int line, ExprPtr object);
    ExprPtr parse_call(int line, ExprPtr callee);
    CallArguments parse_arguments();
    ExprPtr parse_filters(ExprPtr subject);
    ExprPtr parse_test(ExprPtr subject);
    /// Whether the argument of a test follows without parentheses, as in `is divisibleby 3`.
    bool at_test_argument() const;
};

}  // namespace dak::jinja
