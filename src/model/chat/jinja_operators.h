#pragma once

#include "model/chat/jinja_ast.h"

/// Python's operators on template values, and jinja2's attribute and item access. All throw Error
/// where Python or jinja2 would raise.
namespace dak::jinja {

/// Throws Error with the undefined value's message; `value` must be Undefined.
[[noreturn]] void raise_undefined(const Value& value);

Value apply(UnaryOp op, const Value& operand);
/// `op` is not kAnd or kOr, which do not evaluate both operands.
Value apply(BinaryOp op, const Value& left, const Value& right);
bool compare(CompareOp op, const Value& left, const Value& right);
/// Python's %: `format` filled from a tuple, a dict or one value.
std::string format_percent(std::string_view format, const Value& values);

/// object.name: methods first, then keys; Undefined where there is neither.
Value get_attribute(const Value& object, std::string_view name);
/// object[index]: keys first, then methods; Undefined where there is neither.
Value get_item(const Value& object, const Value& index);
/// object[start:stop:step]; None stands for an absent bound.
Value get_slice(const Value& object, const Value& start, const Value& stop, const Value& step);

}  // namespace dak::jinja
