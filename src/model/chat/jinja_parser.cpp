#include "model/chat/jinja_parser.h"

#include <initializer_list>

#include "base/error.h"
#include "model/chat/jinja_expression_parser.h"

namespace dak::jinja {

namespace {

using Words = std::initializer_list<std::string_view>;

/// The largest published templates are some 20 KB.
constexpr size_t kMaxTemplateBytes = size_t{1} << 20;

class Parser : ExpressionParser {
  public:
    Parser(std::string_view source, std::string_view where) : ExpressionParser(source, where) {}

    Body run() {
        Body body = parse_body({});
        if (peek().kind != Kind::kEnd) unexpected();
        return body;
    }

  private:
    /// Statements up to a tag that begins with one of `ends`, which is left to be taken, or up to
    /// the end of the template where there are none.
    Body parse_body(Words ends) {
        const Nested nested(*this);
        const int opened = peek().line;
        Body body;
        while (peek().kind != Kind::kEnd) {
            const Token& token = take();
            if (token.kind == Kind::kText) {
                body.push_back({token.line, Text{token.text}});
            } else if (token.kind == Kind::kOutputBegin) {
                body.push_back({token.line, Output{parse_tuple()}});
                expect(Kind::kOutputEnd, "'}}'");
            } else {
                for (const std::string_view end : ends) {
                    if (at_word(end)) return body;
                }
                body.push_back(parse_tag());
            }
        }
        if (ends.size() > 0) error(opened, "the tag before this has no '{}'", *(ends.end() - 1));
        return body;
    }

    Body parse_block(Words ends) {
        accept_operator(":");
        expect(Kind::kTagEnd, "'%}'");
        return parse_body(ends);
    }

    /// A body that break and continue cannot leave, up to the tag `end`.
    Body parse_closed_block(std::string_view end) {
        const int outer_loops = std::exchange(loops_, 0);
        Body body = parse_block({end});
        loops_ = outer_loops;
        end_tag(end);
        return body;
    }

    void end_tag(std::string_view word) {
        expect_word(word);
        expect(Kind::kTagEnd, "'%}'");
    }

    Stmt parse_tag() {
        const int line = peek().line;
        if (peek().kind != Kind::kName) unexpected("a tag name");
        const std::string tag = take().text;
        if (tag == "if") return {line, parse_if()};
        if (tag == "for") return {line, parse_for()};
        if (tag == "set") return parse_set(line);
        if (tag == "macro") return {line, parse_macro()};
        if (tag == "with") return {line, parse_with()};
        if (tag == "generation") return {line, Scoped{{}, parse_closed_block("endgeneration")}};
        if (tag == "filter") {
            ExprPtr value = parse_filter_chain(parse_filter(make(line, 0, Name{kCapturedBody})));
            return {line, Capture{{}, std::move(value), parse_closed_block("endfilter")}};
        }
        if (tag == "break" || tag == "continue") {
            if (loops_ == 0) error(line, "'{}' outside of a loop's own body", tag);
            expect(Kind::kTagEnd, "'%}'");
            return {line, tag == "break" ? LoopExit::kBreak : LoopExit::kContinue};
        }
        if (tag.starts_with("end") || tag == "else" || tag == "elif") {
            error(line, "unexpected tag '{}'", tag);
        }
        error(line, "the tag '{}' is not supported", tag);
    }

    If parse_if() {
        If result;
        do {
            ExprPtr condition = parse_tuple(false);
            result.branches.emplace_back(std::move(condition),
                                         parse_block({"elif", "else", "endif"}));
        } while (accept_word("elif"));
        if (accept_word("else")) result.otherwise = parse_block({"endif"});
        end_tag("endif");
        return result;
    }

    For parse_for() {
        For result;
        result.target = parse_targets(false);
        expect_word("in");
        result.iterable = parse_tuple(false);
        if (accept_word("if")) result.condition = parse_expression();
        if (at_word("recursive")) error(peek().line, "recursive loops are not supported");
        ++loops_;
        result.body = parse_block({"else", "endfor"});
        --loops_;
        if (accept_word("else")) result.otherwise = parse_block({"endfor"});
        end_tag("endfor");
        return result;
    }

    Stmt parse_set(int line) {
        Target target = parse_targets(true);
        if (accept_operator("=")) {
            Set set{std::move(target), parse_tuple()};
            expect(Kind::kTagEnd, "'%}'");
            return {line, std::move(set)};
        }
        ExprPtr value = parse_filter_chain(make(line, 0, Name{kCapturedBody}));
        return {line, Capture{std::move(target), std::move(value), parse_closed_block("endset")}};
    }

    Scoped parse_with() {
        Scoped result;
        while (peek().kind != Kind::kTagEnd && !at_operator(":")) {
            if (!result.assignments.empty()) expect_operator(",");
            Target target = parse_target(false);
            expect_operator("=");
            result.assignments.emplace_back(std::move(target), parse_expression());
        }
        result.body = parse_block({"endwith"});
        end_tag("endwith");
        return result;
    }

    MacroDefinition parse_macro() {
        MacroDefinition macro{parse_name(), {}, {}};
        expect_operator("(");
        while (!accept_operator(")")) {
            if (!macro.parameters.empty()) expect_operator(",");
            std::string name = parse_name();
            ExprPtr fallback = accept_operator("=") ? parse_expression() : nullptr;
            const bool after_default = !macro.parameters.empty() && macro.parameters.back().second;
            if (after_default && !fallback) {
                error(peek().line, "parameter '{}' needs a default, as the one before it", name);
            }
            macro.parameters.emplace_back(std::move(name), std::move(fallback));
        }
        const bool outer_macro = std::exchange(in_macro_, true);
        macro.body = parse_closed_block("endmacro");
        in_macro_ = outer_macro;
        return macro;
    }

    /// A name that can be assigned to.
    std::string parse_name() {
        if (peek().kind != Kind::kName || is_reserved(peek().text)) unexpected("a name");
        return take().text;
    }

    Target parse_target(bool with_attribute) {
        const Nested nested(*this);
        if (accept_operator("(")) {
            Target target = parse_targets(with_attribute);
            expect_operator(")");
            return target;
        }
        Target target{parse_name()};
        if (with_attribute && accept_operator(".")) target.attribute = parse_name();
        return target;
    }

    Target parse_targets(bool with_attribute) {
        Target first = parse_target(with_attribute);
        if (!at_operator(",")) return first;
        Target target;
        target.items.push_back(std::move(first));
        while (accept_operator(",") && !at_operator(")")) {
            target.items.push_back(parse_target(with_attribute));
        }
        return target;
    }

    int loops_ = 0;  ///< loops that break and continue could leave here
};

}  // namespace

Body parse_template(std::string_view source, std::string_view where) {
    require(source.size() <= kMaxTemplateBytes, "{}: the template is longer than {} MiB", where,
            kMaxTemplateBytes >> 20);
    return Parser(source, where).run();
}

}  // namespace dak::jinja
