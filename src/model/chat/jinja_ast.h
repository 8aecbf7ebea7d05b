#pragma once

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "model/chat/jinja_value.h"

/// The syntax tree of a template: immutable after parsing, so renderings may share it.
namespace dak::jinja {

struct Expr;
struct Stmt;
struct FilterEntry;
struct TestEntry;
using ExprPtr = std::unique_ptr<const Expr>;
using Body = std::vector<Stmt>;

enum class UnaryOp { kNot, kMinus, kPlus };
enum class BinaryOp {
    kAnd,
    kOr,
    kAdd,
    kSubtract,
    kMultiply,
    kDivide,
    kFloorDivide,
    kModulo,
    kPower
};
enum class CompareOp { kEq, kNe, kLt, kLe, kGt, kGe, kIn, kNotIn };

struct CallArguments {
    std::vector<ExprPtr> positional;
    std::vector<std::pair<std::string, ExprPtr>> keyword;
};

struct Literal {
    Value value;
};
struct Name {
    std::string name;
};
struct Items {  ///< a list or tuple display
    std::vector<ExprPtr> items;
    bool is_tuple;
};
struct DictDisplay {
    std::vector<std::pair<ExprPtr, ExprPtr>> entries;
};
struct Unary {
    UnaryOp op;
    ExprPtr operand;
};
struct Binary {
    BinaryOp op;
    ExprPtr left, right;
};
struct Compare {  ///< first op operand [op operand ...], each compared with its neighbour
    ExprPtr first;
    std::vector<std::pair<CompareOp, ExprPtr>> rest;
};
struct Concat {
    std::vector<ExprPtr> parts;
};
struct Conditional {
    ExprPtr condition, then, otherwise;  ///< otherwise may be null
};
struct Attribute {
    ExprPtr object;
    std::string name;
};
struct Subscript {
    ExprPtr object, index;
};
struct Slice {
    ExprPtr object, start, stop, step;  ///< the last three may be null
};
struct Call {
    ExprPtr callee;
    CallArguments arguments;
};
struct Filter {
    ExprPtr subject;
    const FilterEntry* filter;
    CallArguments arguments;
};
struct Test {
    ExprPtr subject;
    const TestEntry* test;
    CallArguments arguments;
};

struct Expr {
    int line;
    /// Nodes on the longest path down from here; bounded by the parser, since evaluation recurses.
    int height;
    std::variant<Literal, Name, Items, DictDisplay, Unary, Binary, Compare, Concat, Conditional,
                 Attribute, Subscript, Slice, Call, Filter, Test>
        node;
};

/// What an assignment writes to: a name, an attribute of a namespace, or several targets.
struct Target {
    std::string name;
    std::string attribute = {};
    std::vector<Target> items = {};
};

struct Text {
    std::string text;
};
struct Output {
    ExprPtr value;
};
struct If {
    std::vector<std::pair<ExprPtr, Body>> branches;
    Body otherwise;
};
struct For {
    Target target;
    ExprPtr iterable, condition;  ///< condition may be null
    Body body, otherwise;
};
struct Set {
    Target target;
    ExprPtr value;
};
/// `{% set x %}`, `{% filter f %}`: the body's output, through the filters of `value`, is assigned
/// to the target or printed where there is none. `value` reads it as the variable kCapturedBody.
struct Capture {
    std::optional<Target> target;
    ExprPtr value;
    Body body;
};
/// `{% with %}` and `{% generation %}`: a body with its own variables.
struct Scoped {
    std::vector<std::pair<Target, ExprPtr>> assignments;
    Body body;
};
struct MacroDefinition {
    std::string name;
    std::vector<std::pair<std::string, ExprPtr>> parameters;  ///< the default may be null
    Body body;
};
enum class LoopExit { kBreak, kContinue };

struct Stmt {
    int line;
    std::variant<Text, Output, If, For, Set, Capture, Scoped, MacroDefinition, LoopExit> node;
};

/// No template can spell this name.
constexpr const char* kCapturedBody = "(body)";

}  // namespace dak::jinja
