#include <algorithm>

#include "base/error.h"
#include "model/chat/jinja_builtins.h"
#include "model/chat/jinja_operators.h"

namespace dak::jinja {

namespace {

template <CompareOp op>
bool compare_test(Budget& budget, const Value& subject, Arguments& args) {
    const Value other = args.get("other");
    budget.charge(subject.weight() + other.weight());
    return compare(op, subject, other);
}

template <bool wanted>
bool bool_test(Budget&, const Value& subject, Arguments&) {
    return subject.is<bool>() && *subject.as<bool>() == wanted;
}

template <typename T>
bool type_test(Budget&, const Value& subject, Arguments&) {
    return subject.is<T>();
}

Value modulo(const Value& subject, const Value& divisor) {
    return apply(BinaryOp::kModulo, subject, divisor);
}

bool sequence_test(Budget&, const Value& subject, Arguments&) {
    const auto* sequence = subject.as<Sequence>();
    if (sequence) return sequence->kind <= Sequence::Kind::kRange;
    return subject.is<Dict>() || subject.is<std::string>() || subject.is<Undefined>();
}

bool callable_test(Budget&, const Value& subject, Arguments&) {
    return subject.is<Function>() || subject.is<Method>() || subject.is<Macro>() ||
           subject.is<Loop>() || subject.is<Undefined>();
}

bool sameas_test(Budget&, const Value& subject, Arguments& args) {
    const Value other = args.get("other");
    const auto is_single = [](const Value& value) { return value.is<None>() || value.is<bool>(); };
    require(is_single(subject) || is_single(other),
            "the test 'sameas' is supported for none, true and false only");
    return subject.type_name() == other.type_name() && equal(subject, other);
}

constexpr TestEntry kTests[] = {
    {"boolean", type_test<bool>},
    {"callable", callable_test},
    {"defined", [](Budget&, const Value& v, Arguments&) { return !v.is<Undefined>(); }},
    {"divisibleby", [](Budget&, const Value& v,
                       Arguments& args) { return equal(modulo(v, args.get("num")), int64_t{0}); }},
    {"eq", compare_test<CompareOp::kEq>},
    {"equalto", compare_test<CompareOp::kEq>},
    {"==", compare_test<CompareOp::kEq>},
    {"escaped", [](Budget&, const Value& v, Arguments&) { return v.is_escaped(); }},
    {"even",
     [](Budget&, const Value& v, Arguments&) { return equal(modulo(v, int64_t{2}), int64_t{0}); }},
    {"false", bool_test<false>},
    {"float", type_test<double>},
    {"ge", compare_test<CompareOp::kGe>},
    {">=", compare_test<CompareOp::kGe>},
    {"greaterthan", compare_test<CompareOp::kGt>},
    {"gt", compare_test<CompareOp::kGt>},
    {">", compare_test<CompareOp::kGt>},
    {"in", compare_test<CompareOp::kIn>},
    {"integer", type_test<int64_t>},
    {"iterable", [](Budget&, const Value& v, Arguments&) { return is_iterable(v); }},
    {"le", compare_test<CompareOp::kLe>},
    {"<=", compare_test<CompareOp::kLe>},
    {"lessthan", compare_test<CompareOp::kLt>},
    {"lower", [](Budget& budget, const Value& v,
                 Arguments&) { return *classify("islower", text_of(budget, v)); }},
    {"lt", compare_test<CompareOp::kLt>},
    {"<", compare_test<CompareOp::kLt>},
    {"mapping", type_test<Dict>},
    {"ne", compare_test<CompareOp::kNe>},
    {"!=", compare_test<CompareOp::kNe>},
    {"none", type_test<None>},
    {"number", [](Budget&, const Value& v, Arguments&) { return v.as_number().has_value(); }},
    {"odd",
     [](Budget&, const Value& v, Arguments&) { return equal(modulo(v, int64_t{2}), int64_t{1}); }},
    {"sameas", sameas_test},
    {"sequence", sequence_test},
    {"string", type_test<std::string>},
    {"true", bool_test<true>},
    {"undefined", type_test<Undefined>},
    {"upper", [](Budget& budget, const Value& v,
                 Arguments&) { return *classify("isupper", text_of(budget, v)); }},
};

}  // namespace

const TestEntry* find_test(std::string_view name) {
    const auto* found = std::find_if(std::begin(kTests), std::end(kTests),
                                     [&](const TestEntry& entry) { return entry.name == name; });
    return found == std::end(kTests) ? nullptr : found;
}

bool call_test(const TestEntry& test, Budget& budget, const Value& subject, Arguments args) {
    const bool result = test.apply(budget, subject, args);
    args.finish();
    return result;
}

}  // namespace dak::jinja
