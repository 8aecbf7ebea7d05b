#include "model/chat/jinja_parser.h"

#include <algorithm>
#include <initializer_list>

#include "base/error.h"
#include "model/chat/jinja_builtins.h"
#include "model/chat/jinja_lexer.h"

namespace dak::jinja {

namespace {

using Kind = Token::Kind;
using Words = std::initializer_list<std::string_view>;

/// Bounds the recursion of the parser, of the evaluator and of the tree's destruction. Published
/// templates stay below 40.
constexpr int kMaxHeight = 150;
/// The largest published templates are some 20 KB.
constexpr size_t kMaxTemplateBytes = size_t{1} << 20;

int height_of(const ExprPtr& expr) { return expr ? expr->height : 0; }

template <typename... Parts>
int max_height(const Parts&... parts) {
    return std::max({0, height_of(parts)...});
}

int max_height(const std::vector<ExprPtr>& parts) {
    int height = 0;
    for (const ExprPtr& part : parts) height = std::max(height, height_of(part));
    return height;
}

int max_height(const CallArguments& arguments) {
    int height = max_height(arguments.positional);
    for (const auto& [name, value] : arguments.keyword) height = std::max(height, height_of(value));
    return height;
}

bool is_reserved(std::string_view word) {
    static constexpr std::string_view kWords[] = {"true", "True", "false", "False", "none",
                                                  "None", "and",  "or",    "not",   "if",
                                                  "else", "in",   "is"};
    return std::find(std::begin(kWords), std::end(kWords), word) != std::end(kWords);
}

class Parser {
  public:
    Parser(std::string_view source, std::string_view where)
        : where_(where), tokens_(tokenize(source, where)) {}

    Body run() {
        Body body = parse_body({});
        if (peek().kind != Kind::kEnd) unexpected();
        return body;
    }

  private:
    // --- tokens ---

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
    [[noreturn]] void unexpected(std::string_view expected = "an expression") const {
        const Token& token = peek();
        const bool quoted = token.kind == Kind::kName || token.kind == Kind::kOperator ||
                            token.kind == Kind::kInteger || token.kind == Kind::kFloat;
        const std::string found = quoted                        ? "'" + token.text + "'"
                                  : token.kind == Kind::kString ? quote(token.text)
                                  : token.kind == Kind::kEnd    ? "the end of the template"
                                                                : "the end of the tag";
        error(token.line, "expected {}, found {}", expected, found);
    }

    /// Counts nesting while it lives.
    class Nested {
      public:
        explicit Nested(Parser& parser) : parser_(parser) {
            if (++parser_.nesting_ > kMaxHeight) {
                parser_.error(parser_.peek().line, "nested deeper than {} levels", kMaxHeight);
            }
        }
        ~Nested() { --parser_.nesting_; }
        Nested(const Nested&) = delete;
        Nested& operator=(const Nested&) = delete;

      private:
        Parser& parser_;
    };

    template <typename Node>
    ExprPtr make(int line, int height, Node node) const {
        if (height >= kMaxHeight) {
            error(line,
                  "an expression of more than {} parts in a row; add parentheses or "
                  "variables",
                  kMaxHeight);
        }
        return std::make_unique<const Expr>(Expr{line, height + 1, std::move(node)});
    }

    // --- statements ---

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
            ExprPtr value = parse_filter(make(line, 0, Name{kCapturedBody}));
            value = parse_filters(std::move(value));
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
        ExprPtr value = parse_filters(make(line, 0, Name{kCapturedBody}));
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

    // --- expressions, from the loosest operator to the tightest ---

    /// One expression, or a tuple where commas follow.
    ExprPtr parse_tuple(bool with_conditional = true) {
        const int line = peek().line;
        const auto parse = [&] { return with_conditional ? parse_expression() : parse_or(); };
        ExprPtr first = parse();
        if (!at_operator(",")) return first;
        std::vector<ExprPtr> items;
        items.push_back(std::move(first));
        while (accept_operator(",")) {
            if (peek().kind == Kind::kOutputEnd || peek().kind == Kind::kTagEnd ||
                at_operator(")")) {
                break;
            }
            items.push_back(parse());
        }
        const int height = max_height(items);
        return make(line, height, Items{std::move(items), true});
    }

    ExprPtr parse_expression() {
        const Nested nested(*this);
        ExprPtr result = parse_or();
        while (at_word("if")) {
            const int line = take().line;
            ExprPtr condition = parse_or();
            ExprPtr otherwise = accept_word("else") ? parse_expression() : nullptr;
            const int height = max_height(result, condition, otherwise);
            result =
                make(line, height,
                     Conditional{std::move(condition), std::move(result), std::move(otherwise)});
        }
        return result;
    }

    ExprPtr make_binary(int line, BinaryOp op, ExprPtr left, ExprPtr right) {
        const int height = max_height(left, right);
        return make(line, height, Binary{op, std::move(left), std::move(right)});
    }

    ExprPtr parse_or() {
        ExprPtr left = parse_and();
        while (at_word("or")) {
            const int line = take().line;
            left = make_binary(line, BinaryOp::kOr, std::move(left), parse_and());
        }
        return left;
    }

    ExprPtr parse_and() {
        ExprPtr left = parse_not();
        while (at_word("and")) {
            const int line = take().line;
            left = make_binary(line, BinaryOp::kAnd, std::move(left), parse_not());
        }
        return left;
    }

    ExprPtr parse_not() {
        if (!at_word("not")) return parse_compare();
        const Nested nested(*this);
        const int line = take().line;
        return make_unary(line, UnaryOp::kNot, parse_not());
    }

    ExprPtr make_unary(int line, UnaryOp op, ExprPtr operand) {
        const int height = max_height(operand);
        return make(line, height, Unary{op, std::move(operand)});
    }

    std::optional<CompareOp> accept_comparison() {
        static constexpr std::pair<std::string_view, CompareOp> kOperators[] = {
            {"==", CompareOp::kEq}, {"!=", CompareOp::kNe}, {"<=", CompareOp::kLe},
            {">=", CompareOp::kGe}, {"<", CompareOp::kLt},  {">", CompareOp::kGt}};
        for (const auto& [text, op] : kOperators) {
            if (accept_operator(text)) return op;
        }
        if (accept_word("in")) return CompareOp::kIn;
        if (!at_word("not") || !at_word("in", 1)) return {};
        next_ += 2;
        return CompareOp::kNotIn;
    }

    ExprPtr parse_compare() {
        const int line = peek().line;
        ExprPtr first = parse_operators(0);
        std::vector<std::pair<CompareOp, ExprPtr>> rest;
        int height = max_height(first);
        while (const auto op = accept_comparison()) {
            rest.emplace_back(*op, parse_operators(0));
            height = std::max(height, max_height(rest.back().second));
        }
        if (rest.empty()) return first;
        return make(line, height, Compare{std::move(first), std::move(rest)});
    }

    /// Arithmetic: levels 0 (+ -), 1 (~), 2 (* / // %) and 3 (**); jinja2's ** groups to the left.
    ExprPtr parse_operators(int level) {
        struct Operator {
            int level;
            std::string_view text;
            BinaryOp op;
        };
        static constexpr Operator kOperators[] = {
            {0, "+", BinaryOp::kAdd},          {0, "-", BinaryOp::kSubtract},
            {2, "*", BinaryOp::kMultiply},     {2, "/", BinaryOp::kDivide},
            {2, "//", BinaryOp::kFloorDivide}, {2, "%", BinaryOp::kModulo},
            {3, "**", BinaryOp::kPower}};
        if (level == 4) return parse_unary(true);
        if (level == 1) return parse_concat();
        ExprPtr left = parse_operators(level + 1);
        while (true) {
            const auto* found = std::find_if(
                std::begin(kOperators), std::end(kOperators),
                [&](const Operator& op) { return op.level == level && at_operator(op.text); });
            if (found == std::end(kOperators)) return left;
            const int line = take().line;
            left = make_binary(line, found->op, std::move(left), parse_operators(level + 1));
        }
    }

    ExprPtr parse_concat() {
        const int line = peek().line;
        std::vector<ExprPtr> parts;
        do {
            parts.push_back(parse_operators(2));
        } while (accept_operator("~"));
        if (parts.size() == 1) return std::move(parts.front());
        const int height = max_height(parts);
        return make(line, height, Concat{std::move(parts)});
    }

    ExprPtr parse_unary(bool with_filters) {
        const int line = peek().line;
        ExprPtr result;
        if (at_operator("-") || at_operator("+")) {
            const Nested nested(*this);
            const UnaryOp op = take().text == "-" ? UnaryOp::kMinus : UnaryOp::kPlus;
            result = make_unary(line, op, parse_unary(false));
        } else {
            result = parse_primary();
        }
        result = parse_postfix(std::move(result));
        return with_filters ? parse_filters(std::move(result)) : std::move(result);
    }

    ExprPtr parse_primary() {
        const int line = peek().line;
        if (peek().kind == Kind::kName) return parse_name_or_constant();
        if (peek().kind == Kind::kInteger) return make(line, 0, Literal{take().integer});
        if (peek().kind == Kind::kFloat) return make(line, 0, Literal{take().number});
        if (peek().kind == Kind::kString) {
            std::string text;
            while (peek().kind == Kind::kString) text += take().text;
            return make(line, 0, Literal{std::move(text)});
        }
        if (accept_operator("(")) {
            if (accept_operator(")")) return make(line, 0, Items{{}, true});
            ExprPtr inner = parse_tuple();
            expect_operator(")");
            return inner;
        }
        if (accept_operator("[")) return parse_list(line);
        if (accept_operator("{")) return parse_dict(line);
        unexpected();
    }

    ExprPtr parse_name_or_constant() {
        const int line = peek().line;
        const std::string& word = peek().text;
        if (word == "true" || word == "True" || word == "false" || word == "False") {
            const bool value = word == "true" || word == "True";
            ++next_;
            return make(line, 0, Literal{value});
        }
        if (word == "none" || word == "None") {
            ++next_;
            return make(line, 0, Literal{});
        }
        const bool is_macro_word = word == "varargs" || word == "kwargs" || word == "caller";
        if (in_macro_ && is_macro_word) error(line, "'{}' in a macro is not supported", word);
        if (word == "self" || word == "super") error(line, "'{}' is not supported", word);
        if (is_reserved(word)) unexpected();
        return make(line, 0, Name{take().text});
    }

    ExprPtr parse_list(int line) {
        std::vector<ExprPtr> items;
        while (!accept_operator("]")) {
            if (!items.empty()) expect_operator(",");
            if (!items.empty() && accept_operator("]")) break;
            items.push_back(parse_expression());
        }
        const int height = max_height(items);
        return make(line, height, Items{std::move(items), false});
    }

    ExprPtr parse_dict(int line) {
        DictDisplay dict;
        int height = 0;
        while (!accept_operator("}")) {
            if (!dict.entries.empty()) expect_operator(",");
            if (!dict.entries.empty() && accept_operator("}")) break;
            ExprPtr key = parse_expression();
            expect_operator(":");
            ExprPtr value = parse_expression();
            height = std::max(height, max_height(key, value));
            dict.entries.emplace_back(std::move(key), std::move(value));
        }
        return make(line, height, std::move(dict));
    }

    ExprPtr parse_postfix(ExprPtr object) {
        while (true) {
            const int line = peek().line;
            if (accept_operator(".")) {
                object = parse_attribute(line, std::move(object));
            } else if (accept_operator("[")) {
                object = parse_subscript(line, std::move(object));
            } else if (at_operator("(")) {
                object = parse_call(line, std::move(object));
            } else {
                return object;
            }
        }
    }

    ExprPtr parse_attribute(int line, ExprPtr object) {
        const int height = max_height(object);
        if (peek().kind == Kind::kInteger) {
            ExprPtr index = make(line, 0, Literal{take().integer});
            return make(line, height, Subscript{std::move(object), std::move(index)});
        }
        if (peek().kind != Kind::kName) unexpected("an attribute name");
        if (peek().text.starts_with("__")) {
            error(line, "access to the attribute '{}' is not allowed", peek().text);
        }
        return make(line, height, Attribute{std::move(object), take().text});
    }

    ExprPtr parse_subscript(int line, ExprPtr object) {
        const auto at_end = [&] { return at_operator(":") || at_operator("]"); };
        ExprPtr start = at_operator(":") ? nullptr : parse_expression();
        if (accept_operator("]")) {
            const int height = max_height(object, start);
            return make(line, height, Subscript{std::move(object), std::move(start)});
        }
        if (at_operator(",")) error(line, "subscripts with a comma are not supported");
        expect_operator(":");
        ExprPtr stop = at_end() ? nullptr : parse_expression();
        ExprPtr step = accept_operator(":") && !at_end() ? parse_expression() : nullptr;
        expect_operator("]");
        const int height = max_height(object, start, stop, step);
        return make(line, height,
                    Slice{std::move(object), std::move(start), std::move(stop), std::move(step)});
    }

    ExprPtr parse_call(int line, ExprPtr callee) {
        CallArguments arguments = parse_arguments();
        const int height = std::max(max_height(callee), max_height(arguments));
        return make(line, height, Call{std::move(callee), std::move(arguments)});
    }

    CallArguments parse_arguments() {
        CallArguments arguments;
        expect_operator("(");
        bool first = true;
        while (!accept_operator(")")) {
            if (!first) expect_operator(",");
            if (!first && accept_operator(")")) break;
            first = false;
            if (at_operator("*") || at_operator("**")) {
                error(peek().line, "unpacking arguments with '{}' is not supported", peek().text);
            }
            const bool named = peek().kind == Kind::kName && peek(1).kind == Kind::kOperator &&
                               peek(1).text == "=";
            if (!named && !arguments.keyword.empty()) {
                error(peek().line, "a positional argument follows a keyword argument");
            }
            if (!named) {
                arguments.positional.push_back(parse_expression());
                continue;
            }
            std::string name = take().text;
            expect_operator("=");
            arguments.keyword.emplace_back(std::move(name), parse_expression());
        }
        return arguments;
    }

    ExprPtr parse_filters(ExprPtr subject) {
        while (true) {
            if (accept_operator("|")) {
                subject = parse_filter(std::move(subject));
            } else if (accept_word("is")) {
                subject = parse_test(std::move(subject));
            } else if (at_operator("(")) {
                subject = parse_call(peek().line, std::move(subject));
            } else {
                return subject;
            }
        }
    }

    ExprPtr parse_filter(ExprPtr subject) {
        const int line = peek().line;
        if (peek().kind != Kind::kName) unexpected("the name of a filter");
        const std::string& name = take().text;
        const FilterEntry* filter = find_filter(name);
        if (!filter) error(line, "the filter '{}' is not supported", name);
        CallArguments arguments = at_operator("(") ? parse_arguments() : CallArguments{};
        const int height = std::max(max_height(subject), max_height(arguments));
        return make(line, height, Filter{std::move(subject), filter, std::move(arguments)});
    }

    ExprPtr parse_test(ExprPtr subject) {
        const int line = peek().line;
        const bool negated = accept_word("not");
        if (peek().kind != Kind::kName) unexpected("the name of a test");
        const std::string& name = take().text;
        const TestEntry* test = find_test(name);
        if (!test) error(line, "the test '{}' is not supported", name);
        CallArguments arguments;
        if (at_operator("(")) {
            arguments = parse_arguments();
        } else if (at_test_argument()) {
            arguments.positional.push_back(parse_postfix(parse_primary()));
        }
        const int height = std::max(max_height(subject), max_height(arguments));
        ExprPtr result = make(line, height, Test{std::move(subject), test, std::move(arguments)});
        return negated ? make_unary(line, UnaryOp::kNot, std::move(result)) : std::move(result);
    }

    /// Whether the argument of a test follows without parentheses, as in `is divisibleby 3`.
    bool at_test_argument() const {
        const Token& token = peek();
        if (token.kind == Kind::kName) {
            return token.text != "else" && token.text != "or" && token.text != "and";
        }
        return token.kind == Kind::kString || token.kind == Kind::kInteger ||
               token.kind == Kind::kFloat || at_operator("[") || at_operator("{");
    }

    std::string_view where_;
    std::vector<Token> tokens_;
    size_t next_ = 0;
    int nesting_ = 0;
    int loops_ = 0;  ///< loops that break and continue could leave here
    bool in_macro_ = false;
};

}  // namespace

Body parse_template(std::string_view source, std::string_view where) {
    require(source.size() <= kMaxTemplateBytes, "{}: the template is longer than {} MiB", where,
            kMaxTemplateBytes >> 20);
    return Parser(source, where).run();
}

}  // namespace dak::jinja
