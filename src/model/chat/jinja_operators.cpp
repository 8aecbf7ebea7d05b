#include "model/chat/jinja_operators.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "model/chat/jinja_builtins.h"

namespace dak::jinja {

void raise_undefined(const Value& value) { fail("{}", *value.as<Undefined>()->message); }

namespace {

[[noreturn]] void raise_overflow() { fail("integers past 64 bits are not supported"); }

[[noreturn]] void raise_operands(std::string_view op, const Value& left, const Value& right) {
    fail("operator {} does not take {} and {}", op, left.type_name(), right.type_name());
}

std::vector<Value> concatenate(const std::vector<Value>& left, const std::vector<Value>& right) {
    std::vector<Value> items = left;
    items.insert(items.end(), right.begin(), right.end());
    return items;
}

Value repeat_items(const Sequence& sequence, int64_t times) {
    std::vector<Value> items;
    if (!sequence.items.empty()) {
        // The items take at least as much memory as a string of as many bytes.
        check_string_size(static_cast<size_t>(std::max<int64_t>(times, 0)));
        check_string_size(sequence.items.size() * static_cast<size_t>(std::max<int64_t>(times, 0)));
    }
    for (; times > 0 && !sequence.items.empty(); --times) {
        items.insert(items.end(), sequence.items.begin(), sequence.items.end());
    }
    return Value::sequence({sequence.kind, std::move(items)});
}

/// A list or tuple, which + and * take; otherwise null.
const Sequence* as_array(const Value& value) {
    const auto* sequence = value.as<Sequence>();
    return sequence && sequence->kind <= Sequence::Kind::kTuple ? sequence : nullptr;
}

Value add_objects(const Value& left, const Value& right) {
    const auto* a = left.as<std::string>();
    const auto* b = right.as<std::string>();
    if (a && b) {
        const bool escaped = left.is_escaped() || right.is_escaped();
        return Value((escaped && !left.is_escaped() ? escape_html(*a) : *a) +
                         (escaped && !right.is_escaped() ? escape_html(*b) : *b),
                     escaped);
    }
    const auto* x = as_array(left);
    const auto* y = as_array(right);
    if (!x || !y || x->kind != y->kind) raise_operands("+", left, right);
    return Value::sequence({x->kind, concatenate(x->items, y->items)});
}

Value multiply_objects(const Value& left, const Value& right) {
    const Value& object = left.as_integer() ? right : left;
    const auto times = left.as_integer() ? left.as_integer() : right.as_integer();
    if (times) {
        if (const auto* text = object.as<std::string>()) {
            return Value(repeat(*text, *times), object.is_escaped());
        }
        if (const auto* items = as_array(object)) return repeat_items(*items, *times);
    }
    raise_operands("*", left, right);
}

int64_t power(int64_t base, int64_t exponent) {
    int64_t result = 1;
    while (exponent > 0) {
        if ((exponent & 1) && __builtin_mul_overflow(result, base, &result)) raise_overflow();
        exponent >>= 1;
        if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) raise_overflow();
    }
    return result;
}

int64_t floor_divide(int64_t left, int64_t right) {
    if (left == INT64_MIN && right == -1) raise_overflow();
    return left / right - (left % right != 0 && (left < 0) != (right < 0));
}

Value integer_arithmetic(BinaryOp op, int64_t left, int64_t right) {
    int64_t result = 0;
    switch (op) {
        case BinaryOp::kAdd:
            if (__builtin_add_overflow(left, right, &result)) raise_overflow();
            return result;
        case BinaryOp::kSubtract:
            if (__builtin_sub_overflow(left, right, &result)) raise_overflow();
            return result;
        case BinaryOp::kMultiply:
            if (__builtin_mul_overflow(left, right, &result)) raise_overflow();
            return result;
        case BinaryOp::kFloorDivide:
            return floor_divide(left, right);
        case BinaryOp::kModulo:
            return right == -1 ? int64_t{0} : left - floor_divide(left, right) * right;
        default:
            return power(left, right);
    }
}

double integer_divide(int64_t left, int64_t right) {
    // Both operands are exact in double up to 2^53, beyond that in long double only.
    constexpr int64_t kExact = int64_t{1} << 53;
    if (left >= -kExact && left <= kExact && right >= -kExact && right <= kExact) {
        return static_cast<double>(left) / static_cast<double>(right);
    }
    return static_cast<double>(static_cast<long double>(left) / static_cast<long double>(right));
}

double float_modulo(double left, double right) {
    const double rest = std::fmod(left, right);
    if (rest == 0) return std::copysign(0.0, right);
    return (rest < 0) != (right < 0) ? rest + right : rest;
}

double float_floor_divide(double left, double right) {
    const double quotient = (left - float_modulo(left, right)) / right;
    if (quotient == 0) return std::copysign(0.0, left / right);
    // The division is exact but for rounding, so the nearest integer is the floor.
    return std::floor(quotient) + (quotient - std::floor(quotient) > 0.5 ? 1.0 : 0.0);
}

double float_power(double left, double right) {
    require(left != 0 || right >= 0, "0.0 cannot be raised to a negative power");
    const double result = std::pow(left, right);
    require(!std::isnan(result) || std::isnan(left) || std::isnan(right),
            "complex numbers are not supported");
    require(!std::isinf(result) || std::isinf(left) || std::isinf(right),
            "the result of ** is too large");
    return result;
}

Value arithmetic(BinaryOp op, const Value& left, const Value& right) {
    const bool divides =
        op == BinaryOp::kDivide || op == BinaryOp::kFloorDivide || op == BinaryOp::kModulo;
    if (divides && *right.as_number() == 0) fail("division by zero");
    const auto a = left.as_integer();
    const auto b = right.as_integer();
    const bool integral = a && b && op != BinaryOp::kDivide && !(op == BinaryOp::kPower && *b < 0);
    if (integral) return integer_arithmetic(op, *a, *b);
    if (a && b && op == BinaryOp::kDivide) return integer_divide(*a, *b);
    const auto x = static_cast<double>(*left.as_number());
    const auto y = static_cast<double>(*right.as_number());
    switch (op) {
        case BinaryOp::kAdd:
            return x + y;
        case BinaryOp::kSubtract:
            return x - y;
        case BinaryOp::kMultiply:
            return x * y;
        case BinaryOp::kDivide:
            return x / y;
        case BinaryOp::kFloorDivide:
            return float_floor_divide(x, y);
        case BinaryOp::kModulo:
            return float_modulo(x, y);
        default:
            return float_power(x, y);
    }
}

}  // namespace

Value apply(UnaryOp op, const Value& operand) {
    if (op == UnaryOp::kNot) return !operand.truth();
    if (operand.is<Undefined>()) raise_undefined(operand);
    if (const auto integer = operand.as_integer()) {
        return op == UnaryOp::kPlus ? *integer
                                    : integer_arithmetic(BinaryOp::kSubtract, 0, *integer);
    }
    const auto* number = operand.as<double>();
    if (!number)
        fail("unary {} does not take {}", op == UnaryOp::kMinus ? "-" : "+", operand.type_name());
    return op == UnaryOp::kMinus ? -*number : *number;
}

Value apply(BinaryOp op, const Value& left, const Value& right) {
    static constexpr std::string_view kSymbols[] = {"and", "or", "+", "-", "*",
                                                    "/",   "//", "%", "**"};
    if (left.as_number() && right.as_number()) return arithmetic(op, left, right);
    if (const auto* format = left.as<std::string>(); format && op == BinaryOp::kModulo) {
        require(!left.is_escaped(), "operator % on an escaped string is not supported");
        return Value(format_percent(*format, right));
    }
    if (left.is<Undefined>()) raise_undefined(left);
    if (right.is<Undefined>()) raise_undefined(right);
    if (op == BinaryOp::kAdd) return add_objects(left, right);
    if (op == BinaryOp::kMultiply) return multiply_objects(left, right);
    raise_operands(kSymbols[static_cast<size_t>(op)], left, right);
}

namespace {

bool contains(const Value& container, const Value& item) {
    if (const auto* text = container.as<std::string>()) {
        const auto* part = item.as<std::string>();
        require(part != nullptr, "'in' a string takes a string, not {}", item.type_name());
        return text->find(*part) != text->npos;
    }
    if (const auto* dict = container.as<Dict>()) return dict->find(item) != nullptr;
    const std::vector<Value> items = iterate(container);
    return std::any_of(items.begin(), items.end(),
                       [&](const Value& candidate) { return equal(candidate, item); });
}

}  // namespace

bool compare(CompareOp op, const Value& left, const Value& right) {
    const bool numbers = left.as_number() && right.as_number();
    switch (op) {
        case CompareOp::kEq:
            return equal(left, right);
        case CompareOp::kNe:
            return !equal(left, right);
        case CompareOp::kLt:
            return less(left, right);
        case CompareOp::kGt:
            return less(right, left);
        // Not the negation of the opposite, which NaN would make wrong.
        case CompareOp::kLe:
            return numbers ? *left.as_number() <= *right.as_number() : !less(right, left);
        case CompareOp::kGe:
            return numbers ? *left.as_number() >= *right.as_number() : !less(left, right);
        case CompareOp::kIn:
            return contains(right, left);
        case CompareOp::kNotIn:
            return !contains(right, left);
    }
    fail("internal error: unknown comparison");
}

namespace {

Value missing_attribute(const Value& object, std::string_view name) {
    return Value::undefined(
        fmt::format("'{} object' has no attribute {}", object.type_name(), quote(name)));
}

Value loop_attribute(const Value& value, const Loop& loop, std::string_view name) {
    const int64_t index = loop.index;
    const auto& items = loop.items.as<Sequence>()->items;
    if (name == "index") return index + 1;
    if (name == "index0") return index;
    if (name == "revindex") return loop.count - index;
    if (name == "revindex0") return loop.count - index - 1;
    if (name == "first") return index == 0;
    if (name == "last") return index + 1 == loop.count;
    if (name == "length") return loop.count;
    if (name == "depth") return int64_t{1};  // more in recursive loops only
    if (name == "depth0") return int64_t{0};
    if (name == "cycle") return Value::method(value, name);
    if (name == "changed") fail("'loop.changed' is not supported");
    if (name == "previtem") {
        if (index == 0) return Value::undefined("there is no previous item");
        return items[static_cast<size_t>(index - 1)];
    }
    if (name == "nextitem") {
        if (index + 1 == loop.count) return Value::undefined("there is no next item");
        return items[static_cast<size_t>(index + 1)];
    }
    return missing_attribute(value, name);
}

/// Python resolves indices and slice bounds from the end when they are negative.
int64_t clamp_bound(const Value& bound, int64_t fallback, int64_t length, bool backwards) {
    if (bound.is<None>()) return fallback;
    int64_t index = *bound.as_integer();
    if (index < 0) index = index < -length ? -1 : index + length;
    return std::clamp<int64_t>(index, backwards ? -1 : 0, backwards ? length - 1 : length);
}

}  // namespace

Value get_attribute(const Value& object, std::string_view name) {
    if (object.is<Undefined>()) raise_undefined(object);
    if (const auto* space = object.as<Namespace>()) {
        const auto it = space->attributes.find(name);
        return it == space->attributes.end() ? missing_attribute(object, name) : it->second;
    }
    if (const auto* loop = object.as<Loop>()) return loop_attribute(object, *loop, name);
    if (object.is<Macro>()) fail("attributes of a macro are not supported ('{}')", name);
    if (has_method(object, name)) return Value::method(object, name);
    if (const auto* dict = object.as<Dict>()) {
        if (const Value* item = dict->find(Value(name))) return *item;
    }
    return missing_attribute(object, name);
}

Value get_item(const Value& object, const Value& index) {
    if (object.is<Undefined>()) raise_undefined(object);
    if (const auto* dict = object.as<Dict>()) {
        const auto* items = index.as<Sequence>();
        const bool hashable = items ? items->kind == Sequence::Kind::kTuple : !index.is<Dict>();
        const Value* item = hashable ? dict->find(index) : nullptr;
        if (item) return *item;
    }
    if (const auto* name = index.as<std::string>()) return get_attribute(object, *name);
    const Value missing = Value::undefined(
        fmt::format("'{} object' has no element of that index", object.type_name()));
    const auto* sequence = object.as<Sequence>();
    const auto* text = object.as<std::string>();
    const bool indexed = text || (sequence && sequence->kind <= Sequence::Kind::kRange);
    const auto number = index.as_integer();
    if (!indexed || !number) return missing;
    const int64_t count = *length(object);
    const int64_t position = *number < 0 ? *number + count : *number;
    if (position < 0 || position >= count) return missing;
    if (sequence) return sequence->items[static_cast<size_t>(position)];
    const std::string_view rest = std::string_view(*text).substr(byte_offset(*text, position));
    return Value(std::string(rest.substr(0, byte_offset(rest, 1))), object.is_escaped());
}

Value get_slice(const Value& object, const Value& start, const Value& stop, const Value& step) {
    if (object.is<Undefined>()) raise_undefined(object);
    const auto* sequence = object.as<Sequence>();
    const auto* text = object.as<std::string>();
    const auto is_bound = [](const Value& value) { return value.is<None>() || value.as_integer(); };
    const bool sliceable = text || (sequence && sequence->kind <= Sequence::Kind::kRange);
    if (!sliceable || !is_bound(start) || !is_bound(stop) || !is_bound(step)) {
        fail("a {} cannot be sliced with {}, {} and {}", object.type_name(), start.type_name(),
             stop.type_name(), step.type_name());
    }
    if (sequence && sequence->kind == Sequence::Kind::kRange)
        fail("slices of a range are not supported");
    const int64_t stride = step.as_integer().value_or(1);
    require(stride != 0, "the step of a slice cannot be 0");
    const int64_t count = *length(object);
    const bool backwards = stride < 0;
    int64_t index = clamp_bound(start, backwards ? count - 1 : 0, count, backwards);
    const int64_t end = clamp_bound(stop, backwards ? -1 : count, count, backwards);
    if (text && stride == 1) {
        const size_t first = byte_offset(*text, index);
        const size_t last = std::max(first, byte_offset(*text, end));
        return Value(text->substr(first, last - first), object.is_escaped());
    }
    const std::vector<Value> items = text ? iterate(object) : sequence->items;
    std::vector<Value> chosen;
    while (backwards ? index > end : index < end) {
        chosen.push_back(items[static_cast<size_t>(index)]);
        if (__builtin_add_overflow(index, stride, &index)) break;
    }
    if (sequence) return Value::sequence({sequence->kind, std::move(chosen)});
    std::string joined;
    for (const Value& character : chosen) joined += *character.as<std::string>();
    return Value(std::move(joined), object.is_escaped());
}

}  // namespace dak::jinja
