#include "model/chat/jinja_expression_parser.h"

#include <algorithm>

#include "base/error.h"
#include "model/chat/jinja_builtins.h"

namespace dak::jinja {

namespace {

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

}  // namespace

bool is_reserved(std::string_view word) {
    static constexpr std::string_view kWords[] = {"true", "True", "false", "False", "none",
                                                  "None", "and",  "or",    "not",   "if",
                                                  "else", "in",   "is"};
    return std::find(std::begin(kWords), std::end(kWords), word) != std::end(kWords);
}

ExprPtr ExpressionParser::parse_tuple(bool with_conditional) {
    const int line = peek().line;
    const auto parse = [&] { return with_conditional ? parse_expression() : parse_or(); };
    ExprPtr first = parse();
    if (!at_operator(",")) return first;
    std::vector<ExprPtr> items;
    items.push_back(std::move(first));
    while (accept_operator(",")) {
        if (peek().kind == Kind::kOutputEnd || peek().kind == Kind::kTagEnd || at_operator(")")) {
            break;
        }
        items.push_back(parse());
    }
    const int height = max_height(items);
    return make(line, height, Items{std::move(items), true});
}

ExprPtr ExpressionParser::parse_expression() {
    const Nested nested(*this);
    ExprPtr result = parse_or();
    while (at_word("if")) {
        const int line = take().line;
        ExprPtr condition = parse_or();
        ExprPtr otherwise = accept_word("else") ? parse_expression() : nullptr;
        const int height = max_height(result, condition, otherwise);
        result = make(line, height,
                      Conditional{std::move(condition), std::move(result), std::move(otherwise)});
    }
    return result;
}

ExprPtr ExpressionParser::make_binary(int line, BinaryOp op, ExprPtr left, ExprPtr right) {
    const int height = max_height(left, right);
    return make(line, height, Binary{op, std::move(left), std::move(right)});
}

ExprPtr ExpressionParser::parse_or() {
    ExprPtr left = parse_and();
    while (at_word("or")) {
        const int line = take().line;
        left = make_binary(line, BinaryOp::kOr, std::move(left), parse_and());
    }
    return left;
}

ExprPtr ExpressionParser::parse_and() {
    ExprPtr left = parse_not();
    while (at_word("and")) {
        const int line = take().line;
        left = make_binary(line, BinaryOp::kAnd, std::move(left), parse_not());
    }
    return left;
}

ExprPtr ExpressionParser::parse_not() {
    if (!at_word("not")) return parse_compare();
    const Nested nested(*this);
    const int line = take().line;
    return make_unary(line, UnaryOp::kNot, parse_not());
}

ExprPtr ExpressionParser::make_unary(int line, UnaryOp op, ExprPtr operand) {
    const int height = max_height(operand);
    return make(line, height, Unary{op, std::move(operand)});
}

std::optional<CompareOp> ExpressionParser::accept_comparison() {
    static constexpr std::pair<std::string_view, CompareOp> kOperators[] = {
        {"==", CompareOp::kEq}, {"!=", CompareOp::kNe}, {"<=", CompareOp::kLe},
        {">=", CompareOp::kGe}, {"<", CompareOp::kLt},  {">", CompareOp::kGt}};
    for (const auto& [text, op] : kOperators) {
        if (accept_operator(text)) return op;
    }
    if (accept_word("in")) return CompareOp::kIn;
    if (!at_word("not") || !at_word("in", 1)) return {};
    take();
    take();
    return CompareOp::kNotIn;
}

ExprPtr ExpressionParser::parse_compare() {
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

ExprPtr ExpressionParser::parse_operators(int level) {
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

ExprPtr ExpressionParser::parse_concat() {
    const int line = peek().line;
    std::vector<ExprPtr> parts;
    do {
        parts.push_back(parse_operators(2));
    } while (accept_operator("~"));
    if (parts.size() == 1) return std::move(parts.front());
    const int height = max_height(parts);
    return make(line, height, Concat{std::move(parts)});
}

ExprPtr ExpressionParser::parse_unary(bool with_filters) {
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

ExprPtr ExpressionParser::parse_primary() {
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

ExprPtr ExpressionParser::parse_name_or_constant() {
    const int line = peek().line;
    const std::string& word = peek().text;
    if (word == "true" || word == "True" || word == "false" || word == "False") {
        const bool value = word == "true" || word == "True";
        take();
        return make(line, 0, Literal{value});
    }
    if (word == "none" || word == "None") {
        take();
        return make(line, 0, Literal{});
    }
    const bool is_macro_word = word == "varargs" || word == "kwargs" || word == "caller";
    if (in_macro_ && is_macro_word) error(line, "'{}' in a macro is not supported", word);
    if (word == "self" || word == "super") error(line, "'{}' is not supported", word);
    if (is_reserved(word)) unexpected();
    return make(line, 0, Name{take().text});
}

ExprPtr ExpressionParser::parse_list(int line) {
    std::vector<ExprPtr> items;
    while (!accept_operator("]")) {
        if (!items.empty()) expect_operator(",");
        if (!items.empty() && accept_operator("]")) break;
        items.push_back(parse_expression());
    }
    const int height = max_height(items);
    return make(line, height, Items{std::move(items), false});
}

ExprPtr ExpressionParser::parse_dict(int line) {
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

ExprPtr ExpressionParser::parse_postfix(ExprPtr object) {
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

ExprPtr ExpressionParser::parse_attribute(int line, ExprPtr object) {
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

ExprPtr ExpressionParser::parse_subscript(int line, ExprPtr object) {
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

ExprPtr ExpressionParser::parse_call(int line, ExprPtr callee) {
    CallArguments arguments = parse_arguments();
    const int height = std::max(max_height(callee), max_height(arguments));
    return make(line, height, Call{std::move(callee), std::move(arguments)});
}

CallArguments ExpressionParser::parse_arguments() {
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
        const bool named =
            peek().kind == Kind::kName && peek(1).kind == Kind::kOperator && peek(1).text == "=";
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

ExprPtr ExpressionParser::parse_filters(ExprPtr subject) {
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

ExprPtr ExpressionParser::parse_filter(ExprPtr subject) {
    const int line = peek().line;
    if (peek().kind != Kind::kName) unexpected("the name of a filter");
    const std::string& name = take().text;
    const FilterEntry* filter = find_filter(name);
    if (!filter) error(line, "the filter '{}' is not supported", name);
    CallArguments arguments = at_operator("(") ? parse_arguments() : CallArguments{};
    const int height = std::max(max_height(subject), max_height(arguments));
    return make(line, height, Filter{std::move(subject), filter, std::move(arguments)});
}

ExprPtr ExpressionParser::parse_test(ExprPtr subject) {
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

bool ExpressionParser::at_test_argument() const {
    const Token& token = peek();
    if (token.kind == Kind::kName) {
        return token.text != "else" && token.text != "or" && token.text != "and";
    }
    return token.kind == Kind::kString || token.kind == Kind::kInteger ||
           token.kind == Kind::kFloat || at_operator("[") || at_operator("{");
}

ExprPtr ExpressionParser::parse_filter_chain(ExprPtr subject) {
    while (accept_operator("|")) subject = parse_filter(std::move(subject));
    return subject;
}

}  // namespace dak::jinja
