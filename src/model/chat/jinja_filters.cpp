#include <algorithm>
#include <cmath>
#include <functional>
#include <unordered_set>

#include "base/error.h"
#include "model/chat/jinja_builtins.h"
#include "model/chat/jinja_operators.h"

namespace dak::jinja {

namespace {

template <auto function>
Value text_filter(Budget& budget, const Value& subject, Arguments&) {
    return Value(function(text_of(budget, subject)));
}

/// The title filter: letters after white space, hyphens and opening brackets become upper case.
std::string title_words(std::string_view text) {
    std::string result;
    size_t position = 0;
    const auto boundary = [&](size_t at) {
        const std::string_view rest = text.substr(at);
        return is_space(to_chars(rest.substr(0, byte_offset(rest, 1)))[0]) ||
               std::string_view("-({[<").find(rest[0]) != std::string_view::npos;
    };
    while (position < text.size()) {
        const size_t start = position;
        const bool is_boundary = boundary(position);
        while (position < text.size() && boundary(position) == is_boundary) {
            position += byte_offset(text.substr(position), 1);
        }
        const std::string_view run = text.substr(start, position - start);
        const size_t first = byte_offset(run, 1);
        result += to_upper(run.substr(0, first)) + to_lower(run.substr(first));
    }
    return result;
}

/// The value at a dotted path, such as 'function.name' or 'items.0'; None is the item itself.
Value resolve_path(Value item, const Value& path, const Value* fallback = nullptr) {
    if (path.is<None>()) return item;
    std::vector<Value> parts = {path};
    if (const auto* text = path.as<std::string>()) {
        parts.clear();
        for (const std::string_view part : split(*text, ".", -1, Side::kLeft)) {
            const bool number = *classify("isdigit", part);
            parts.push_back(number ? Value(parse_int(part, 10).value_or(-1)) : Value(part));
        }
    }
    for (const Value& part : parts) {
        item = get_item(item, part);
        if (fallback && item.is<Undefined>()) item = *fallback;
    }
    return item;
}

Value ignore_case(const Value& value) {
    const auto* text = value.as<std::string>();
    return text ? Value(to_lower(*text)) : value;
}

Value default_filter(Budget&, const Value& subject, Arguments& args) {
    const Value fallback = args.get_or("default_value", "");
    const bool boolean = args.truth_or("boolean", false);
    return subject.is<Undefined>() || (boolean && !subject.truth()) ? fallback : subject;
}

Value length_filter(Budget&, const Value& subject, Arguments&) {
    const auto count = length(subject);
    require(count.has_value(), "a value of type {} has no length", subject.type_name());
    return *count;
}

Value join_filter(Budget& budget, const Value& subject, Arguments& args) {
    const std::string separator = text_of(budget, args.get_or("d", ""));
    const Value attribute = args.get_or("attribute", Value());
    std::string text;
    bool first = true;
    for (const Value& item : iterate(subject)) {
        if (!std::exchange(first, false)) text += separator;
        text += text_of(budget, resolve_path(item, attribute));
        check_string_size(text.size());
    }
    return Value(std::move(text));
}

Value first_filter(Budget&, const Value& subject, Arguments&) {
    const auto* sequence = subject.as<Sequence>();
    if (sequence && sequence->kind == Sequence::Kind::kIterator) {
        if (sequence->consumed < sequence->items.size())
            return sequence->items[sequence->consumed++];
    } else if (const std::vector<Value> items = iterate(subject); !items.empty()) {
        return items.front();
    }
    return Value::undefined("No first item, sequence was empty.");
}

Value last_filter(Budget&, const Value& subject, Arguments&) {
    require(length(subject).has_value(), "the filter 'last' does not take {}", subject.type_name());
    const std::vector<Value> items = iterate(subject);
    return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.back();
}

Value reverse_filter(Budget&, const Value& subject, Arguments&) {
    if (subject.is<std::string>()) return get_slice(subject, Value(), Value(), int64_t{-1});
    const bool reversible = length(subject).has_value();
    std::vector<Value> items = iterate(subject);
    std::reverse(items.begin(), items.end());
    return reversible ? Value::iterator(std::move(items)) : Value::list(std::move(items));
}

Value items_filter(Budget& budget, const Value& subject, Arguments& args) {
    if (subject.is<Undefined>()) return Value::iterator({});
    require(subject.is<Dict>(), "the filter 'items' takes a mapping, not {}", subject.type_name());
    return Value::iterator(iterate(call_method({subject, "items"}, budget, std::move(args))));
}

Value sorted(Budget& budget, const std::vector<Value>& items, bool reverse,
             const std::function<Value(const Value&)>& key_of) {
    std::vector<std::pair<Value, Value>> keyed;
    for (const Value& item : items) {
        keyed.emplace_back(key_of(item), item);
        // Each key takes part in about log2(n) comparisons, and n is below 2^20.
        budget.charge(20 * keyed.back().first.weight());
    }
    std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
        return reverse ? less(b.first, a.first) : less(a.first, b.first);
    });
    std::vector<Value> result;
    for (auto& [key, item] : keyed) result.push_back(std::move(item));
    return Value::list(std::move(result));
}

Value sort_filter(Budget& budget, const Value& subject, Arguments& args) {
    const bool reverse = args.truth_or("reverse", false);
    const bool case_sensitive = args.truth_or("case_sensitive", false);
    const Value attribute = args.get_or("attribute", Value());
    std::vector<Value> paths = {attribute};
    if (const auto* names = attribute.as<std::string>()) {
        paths.clear();
        for (const std::string_view name : split(*names, ",", -1, Side::kLeft))
            paths.push_back(name);
    }
    return sorted(budget, iterate(subject), reverse, [&](const Value& item) {
        std::vector<Value> keys;
        for (const Value& path : paths) {
            const Value key = resolve_path(item, path);
            keys.push_back(case_sensitive ? key : ignore_case(key));
        }
        return Value::list(std::move(keys));
    });
}

Value dictsort_filter(Budget& budget, const Value& subject, Arguments& args) {
    const bool case_sensitive = args.truth_or("case_sensitive", false);
    const std::string by = args.text("by", "key");
    const bool reverse = args.truth_or("reverse", false);
    require(by == "key" || by == "value", "the filter 'dictsort' sorts by 'key' or 'value'");
    require(subject.is<Dict>(), "the filter 'dictsort' takes a mapping, not {}",
            subject.type_name());
    const std::vector<Value> items = iterate(call_method({subject, "items"}, budget, {{}, {}}));
    return sorted(budget, items, reverse, [&](const Value& item) {
        const Value& key = item.as<Sequence>()->items[by == "key" ? 0 : 1];
        return case_sensitive ? key : ignore_case(key);
    });
}

Value unique_filter(Budget& budget, const Value& subject, Arguments& args) {
    const bool case_sensitive = args.truth_or("case_sensitive", false);
    const Value attribute = args.get_or("attribute", Value());
    std::unordered_set<std::string> seen;
    std::vector<Value> result;
    for (const Value& item : iterate(subject)) {
        const Value key = resolve_path(item, attribute);
        budget.charge(key.weight());
        if (seen.insert(hash_key(case_sensitive ? key : ignore_case(key))).second) {
            result.push_back(item);
        }
    }
    return Value::iterator(std::move(result));
}

template <bool want_less>
Value extreme_filter(Budget& budget, const Value& subject, Arguments& args) {
    const bool case_sensitive = args.truth_or("case_sensitive", false);
    const Value attribute = args.get_or("attribute", Value());
    std::optional<std::pair<Value, Value>> best;
    for (const Value& item : iterate(subject)) {
        const Value value = resolve_path(item, attribute);
        const Value key = case_sensitive ? value : ignore_case(value);
        budget.charge(key.weight());
        if (!best || (want_less ? less(key, best->first) : less(best->first, key))) {
            best = {key, item};
        }
    }
    return best ? best->second : Value::undefined("No aggregated item, sequence was empty.");
}

Value sum_filter(Budget& budget, const Value& subject, Arguments& args) {
    const Value attribute = args.get_or("attribute", Value());
    Value total = args.get_or("start", int64_t{0});
    for (const Value& item : iterate(subject)) {
        total = apply(BinaryOp::kAdd, total, resolve_path(item, attribute));
        budget.charge(total.size_cost());
    }
    return total;
}

Value map_filter(Budget& budget, const Value& subject, Arguments& args) {
    std::vector<Value> result;
    if (!args.has_positional() && args.has_keyword("attribute")) {
        const Value attribute = args.get("attribute");
        const Value fallback = args.get_or("default", Value());
        if (!subject.truth()) return Value::iterator({});
        for (const Value& item : iterate(subject)) {
            result.push_back(
                resolve_path(item, attribute, fallback.is<None>() ? nullptr : &fallback));
        }
        return Value::iterator(std::move(result));
    }
    const std::string name = args.text("filter");
    const FilterEntry* filter = find_filter(name);
    require(filter != nullptr, "the filter '{}' is not supported", name);
    const Arguments inner(args.rest(), args.keyword_rest());
    if (!subject.truth()) return Value::iterator({});
    for (const Value& item : iterate(subject)) {
        result.push_back(call_filter(*filter, budget, item, inner));
    }
    return Value::iterator(std::move(result));
}

/// select, reject, selectattr and rejectattr: the items, or those whose attribute, pass a test.
template <bool by_attribute, bool keep>
Value select_filter(Budget& budget, const Value& subject, Arguments& args) {
    // Not `by_attribute ? ... : Value()`: GCC 12 leaves that uninitialised for a constant
    // condition.
    Value attribute;
    if (by_attribute) attribute = args.get("attribute");
    const TestEntry* test = nullptr;
    if (args.has_positional()) {
        const std::string name = args.text("test");
        test = find_test(name);
        require(test != nullptr, "the test '{}' is not supported", name);
    }
    const Arguments inner(args.rest(), args.keyword_rest());
    if (!subject.truth()) return Value::iterator({});  // even where it is no iterable
    std::vector<Value> result;
    for (const Value& item : iterate(subject)) {
        const Value value = resolve_path(item, attribute);
        budget.charge(1);
        if ((test ? call_test(*test, budget, value, inner) : value.truth()) == keep) {
            result.push_back(item);
        }
    }
    return Value::iterator(std::move(result));
}

Value replace_filter(Budget& budget, const Value& subject, Arguments& args) {
    const std::string old = text_of(budget, args.get("old"));
    const std::string with = text_of(budget, args.get("new"));
    const Value count = args.get_or("count", Value());
    require(count.is<None>() || count.as_integer(), "the argument 'count' must be an integer");
    return Value(replace(text_of(budget, subject), old, with, count.as_integer().value_or(-1)));
}

Value trim_filter(Budget& budget, const Value& subject, Arguments& args) {
    const Value chars = args.get_or("chars", Value());
    const auto* set = chars.as<std::string>();
    require(set || chars.is<None>(), "the argument 'chars' must be a string");
    const std::string text = text_of(budget, subject);
    return Value(
        strip(text, Side::kBoth, set ? std::optional<std::string_view>(*set) : std::nullopt));
}

Value indent_filter(Budget&, const Value& subject, Arguments& args) {
    const Value width = args.get_or("width", int64_t{4});
    const bool indent_first = args.truth_or("first", false);
    const bool indent_blank = args.truth_or("blank", false);
    const auto* text = subject.as<std::string>();
    require(text != nullptr, "the filter 'indent' takes a string, not {}", subject.type_name());
    const auto* prefix = width.as<std::string>();
    require(prefix || width.as_integer(), "the argument 'width' must be an integer or a string");
    const std::string indent = prefix ? *prefix : repeat(" ", *width.as_integer());
    std::string result = indent_first ? indent : "";
    bool first = true;
    const std::string lines = *text + "\n";
    for (const std::string_view line : split_lines(lines, false)) {
        if (!first) result += "\n";
        if (!first && (indent_blank || !line.empty())) result += indent;
        result += line;
        first = false;
        check_string_size(result.size());
    }
    return Value(std::move(result));
}

Value int_filter(Budget&, const Value& subject, Arguments& args) {
    const Value fallback = args.get_or("default", int64_t{0});
    const int64_t base = args.integer("base", 10);
    if (subject.is<Undefined>()) raise_undefined(subject);
    if (const auto integer = subject.as_integer()) return *integer;
    const auto* text = subject.as<std::string>();
    if (text) {
        if (const auto integer = parse_int(*text, base)) return *integer;
    }
    const auto* given = subject.as<double>();
    const auto number = text ? parse_float(*text) : given ? std::optional(*given) : std::nullopt;
    if (given) require(!std::isinf(*given), "cannot convert float infinity to integer");
    if (!number || !std::isfinite(*number)) return fallback;
    require(std::abs(*number) < 0x1p63, "integers past 64 bits are not supported");
    return static_cast<int64_t>(*number);
}

Value float_filter(Budget&, const Value& subject, Arguments& args) {
    const Value fallback = args.get_or("default", 0.0);
    if (subject.is<Undefined>()) raise_undefined(subject);
    if (const auto number = subject.as_number()) return static_cast<double>(*number);
    const auto* text = subject.as<std::string>();
    const auto number = text ? parse_float(*text) : std::nullopt;
    return number ? Value(*number) : fallback;
}

Value abs_filter(Budget&, const Value& subject, Arguments&) {
    require(subject.as_number().has_value(), "the filter 'abs' takes a number, not {}",
            subject.type_name());
    return *subject.as_number() < 0 ? apply(UnaryOp::kMinus, subject)
                                    : apply(UnaryOp::kPlus, subject);
}

Value round_filter(Budget&, const Value& subject, Arguments& args) {
    const int64_t precision = args.integer("precision", 0);
    const std::string method = args.text("method", "common");
    require(method == "common" || method == "ceil" || method == "floor",
            "the filter 'round' knows the methods 'common', 'ceil' and 'floor', not '{}'", method);
    require(subject.as_number().has_value(), "the filter 'round' takes a number, not {}",
            subject.type_name());
    // A double has no decimals past the 1074th, and its products with 10^308 overflow.
    require(precision >= 0 && precision <= 300, "the filter 'round' takes a precision of 0 to 300");
    const auto number = static_cast<double>(*subject.as_number());
    if (method == "common") {
        if (const auto integer = subject.as_integer()) return *integer;
        if (!std::isfinite(number)) return number;
        return *parse_float(fmt::format("{:.{}f}", number, precision));
    }
    const double scale = std::pow(10.0, static_cast<double>(precision));
    const double scaled = number * scale;
    require(std::isfinite(scaled), "the filter 'round' cannot round {}", float_text(number));
    return (method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale;
}

Value tojson_filter(Budget& budget, const Value& subject, Arguments& args) {
    JsonStyle style;
    style.ensure_ascii = args.truth_or("ensure_ascii", false);
    const Value indent = args.get_or("indent", Value());
    const Value separators = args.get_or("separators", Value());
    style.sort_keys = args.truth_or("sort_keys", false);
    if (!indent.is<None>()) {
        const auto* text = indent.as<std::string>();
        require(text || indent.as_integer(),
                "the argument 'indent' must be an integer or a string");
        style.indent = text ? *text : repeat(" ", *indent.as_integer());
        style.item_separator = ",";
    }
    if (!separators.is<None>()) {
        const std::vector<Value> pair = iterate(separators);
        require(pair.size() == 2 && pair[0].is<std::string>() && pair[1].is<std::string>(),
                "the argument 'separators' must be two strings");
        style.item_separator = *pair[0].as<std::string>();
        style.key_separator = *pair[1].as<std::string>();
    }
    budget.charge(subject.weight());
    return Value(to_json(subject, style));
}

Value format_filter(Budget& budget, const Value& subject, Arguments& args) {
    std::vector<Value> positional = args.rest();
    Dict named;
    for (auto& [name, value] : args.keyword_rest()) named.set(Value(name), std::move(value));
    require(positional.empty() || named.entries.empty(),
            "the filter 'format' takes positional or keyword arguments, not both");
    const Value values =
        named.entries.empty() ? Value::tuple(std::move(positional)) : Value::dict(std::move(named));
    budget.charge(values.weight());
    return Value(format_percent(text_of(budget, subject), values));
}

Value string_filter(Budget& budget, const Value& subject, Arguments&) {
    return subject.is<std::string>() ? subject : Value(text_of(budget, subject));
}

Value escape_filter(Budget& budget, const Value& subject, Arguments&) {
    return subject.is_escaped() ? subject : Value(escape_html(text_of(budget, subject)), true);
}

Value safe_filter(Budget& budget, const Value& subject, Arguments&) {
    return Value(text_of(budget, subject), true);
}

Value list_filter(Budget&, const Value& subject, Arguments&) {
    return Value::list(iterate(subject));
}

constexpr FilterEntry kFilters[] = {
    {"abs", abs_filter},
    {"capitalize", text_filter<capitalize>},
    {"count", length_filter, true},
    {"d", default_filter, true},
    {"default", default_filter, true},
    {"dictsort", dictsort_filter},
    {"e", escape_filter, true},
    {"escape", escape_filter, true},
    {"first", first_filter},
    {"float", float_filter},
    {"format", format_filter},
    {"indent", indent_filter},
    {"int", int_filter},
    {"items", items_filter},
    {"join", join_filter},
    {"last", last_filter},
    {"length", length_filter, true},
    {"list", list_filter},
    {"lower", text_filter<to_lower>},
    {"map", map_filter},
    {"max", extreme_filter<false>},
    {"min", extreme_filter<true>},
    {"reject", select_filter<false, false>},
    {"rejectattr", select_filter<true, false>},
    {"replace", replace_filter, true},
    {"reverse", reverse_filter},
    {"round", round_filter},
    {"safe", safe_filter, true},
    {"select", select_filter<false, true>},
    {"selectattr", select_filter<true, true>},
    {"sort", sort_filter},
    {"string", string_filter, true},
    {"sum", sum_filter},
    {"title", text_filter<title_words>},
    {"tojson", tojson_filter, true},
    {"trim", trim_filter},
    {"unique", unique_filter},
    {"upper", text_filter<to_upper>},
};

}  // namespace

const FilterEntry* find_filter(std::string_view name) {
    const auto* found = std::find_if(std::begin(kFilters), std::end(kFilters),
                                     [&](const FilterEntry& entry) { return entry.name == name; });
    return found == std::end(kFilters) ? nullptr : found;
}

Value call_filter(const FilterEntry& filter, Budget& budget, const Value& subject, Arguments args) {
    require(!subject.is_escaped() || filter.takes_escaped,
            "the filter '{}' on an escaped string is not supported", filter.name);
    budget.charge(subject.size_cost());
    Value result = filter.apply(budget, subject, args);
    args.finish();
    budget.charge(result.size_cost());
    return result;
}

}  // namespace dak::jinja
