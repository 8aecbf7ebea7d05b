#include <algorithm>

#include "base/error.h"
#include "model/chat/jinja_builtins.h"
#include "model/chat/jinja_operators.h"

namespace dak::jinja {

namespace {

using Text = const std::string&;

struct StringMethod {
    std::string_view name;
    Value (*call)(Text self, Arguments& args);
};

std::optional<std::string> text_or_none(Arguments& args, std::string_view name) {
    const Value value = args.get_or(name, Value());
    if (value.is<None>()) return {};
    const auto* text = value.as<std::string>();
    require(text != nullptr, "'{}' must be a string, not {}", name, value.type_name());
    return *text;
}

template <Side side>
Value strip_method(Text self, Arguments& args) {
    return Value(strip(self, side, text_or_none(args, "chars")));
}

Value to_list(const std::vector<std::string_view>& pieces) {
    return Value::list({pieces.begin(), pieces.end()});
}

template <Side side>
Value split_method(Text self, Arguments& args) {
    const std::optional<std::string> separator = text_or_none(args, "sep");
    return to_list(split(self, separator, args.integer("maxsplit", -1), side));
}

Value join_method(Text self, Arguments& args) {
    std::string text;
    bool first = true;
    for (const Value& item : iterate(args.get("iterable"))) {
        const auto* part = item.as<std::string>();
        require(part != nullptr, "str.join takes strings, found {}", item.type_name());
        if (!std::exchange(first, false)) text += self;
        text += *part;
        check_string_size(text.size());
    }
    return Value(std::move(text));
}

template <bool at_start>
Value affix_method(Text self, Arguments& args) {
    const Value affix = args.get(at_start ? "prefix" : "suffix");
    const auto* tuple = affix.as<Sequence>();
    const bool is_tuple = tuple && tuple->kind == Sequence::Kind::kTuple;
    for (const Value& option : is_tuple ? tuple->items : std::vector<Value>{affix}) {
        const auto* text = option.as<std::string>();
        require(text != nullptr, "str.startswith and endswith take a string or a tuple of strings");
        if (at_start ? self.starts_with(*text) : self.ends_with(*text)) return true;
    }
    return false;
}

template <bool from_left, bool must_exist>
Value find_method(Text self, Arguments& args) {
    const std::string part = args.text("sub");
    const size_t found = from_left ? self.find(part) : self.rfind(part);
    require(!must_exist || found != self.npos, "substring not found");
    if (found == self.npos) return int64_t{-1};
    return char_count(std::string_view(self).substr(0, found));
}

Value count_method(Text self, Arguments& args) {
    const std::string part = args.text("sub");
    if (part.empty()) return char_count(self) + 1;
    int64_t count = 0;
    for (size_t at = self.find(part); at != self.npos; at = self.find(part, at + part.size())) {
        ++count;
    }
    return count;
}

template <bool from_left>
Value partition_method(Text self, Arguments& args) {
    const std::string separator = args.text("sep");
    require(!separator.empty(), "empty separator");
    const size_t found = from_left ? self.find(separator) : self.rfind(separator);
    if (found == self.npos) {
        return from_left ? Value::tuple({self, "", ""}) : Value::tuple({"", "", self});
    }
    return Value::tuple({self.substr(0, found), separator, self.substr(found + separator.size())});
}

template <Side side>
Value pad_method(Text self, Arguments& args) {
    const int64_t width = args.integer("width");
    const std::string fill = args.text("fillchar", " ");
    require(char_count(fill) == 1, "the fill character must be exactly one character long");
    return Value(pad(self, width, fill, side));
}

Value zfill_method(Text self, Arguments& args) {
    const size_t sign = self.starts_with('-') || self.starts_with('+');
    return Value(self.substr(0, sign) + pad(std::string_view(self).substr(sign),
                                            args.integer("width") - static_cast<int64_t>(sign), "0",
                                            Side::kLeft));
}

/// str.format with plain fields: {}, {0}, {name}.
Value format_method(Text self, Arguments& args) {
    const std::vector<Value> positional = args.rest();
    const Arguments::Keyword keyword = args.keyword_rest();
    std::string text;
    int64_t automatic = 0;
    for (size_t i = 0; i < self.size(); ++i) {
        const char c = self[i];
        if (c != '{' && c != '}') {
            text += c;
            continue;
        }
        if (i + 1 < self.size() && self[i + 1] == c) {
            text += self[i++];
            continue;
        }
        const size_t end = c == '{' ? self.find('}', i) : self.npos;
        require(end != self.npos, "single '{}' in the format string", c);
        const std::string field = self.substr(i + 1, end - i - 1);
        require(field.find_first_of(".[!:{") == field.npos,
                "the field '{{{}}}' of str.format is not supported", field);
        const auto number = field.empty() ? std::optional(automatic++) : parse_int(field, 10);
        const auto named = std::find_if(keyword.begin(), keyword.end(),
                                        [&](const auto& entry) { return entry.first == field; });
        const bool found = number
                               ? *number >= 0 && *number < static_cast<int64_t>(positional.size())
                               : named != keyword.end();
        require(found, "the field '{{{}}}' of str.format has no value", field);
        text += number ? positional[static_cast<size_t>(*number)].text() : named->second.text();
        check_string_size(text.size());
        i = end;
    }
    return Value(std::move(text));
}

constexpr StringMethod kStringMethods[] = {
    {"strip", strip_method<Side::kBoth>},
    {"lstrip", strip_method<Side::kLeft>},
    {"rstrip", strip_method<Side::kRight>},
    {"split", split_method<Side::kLeft>},
    {"rsplit", split_method<Side::kRight>},
    {"splitlines",
     [](Text self, Arguments& args) {
         return to_list(split_lines(self, args.truth_or("keepends", false)));
     }},
    {"join", join_method},
    {"startswith", affix_method<true>},
    {"endswith", affix_method<false>},
    {"removeprefix",
     [](Text self, Arguments& args) {
         const std::string prefix = args.text("prefix");
         return Value(self.starts_with(prefix) ? self.substr(prefix.size()) : self);
     }},
    {"removesuffix",
     [](Text self, Arguments& args) {
         const std::string suffix = args.text("suffix");
         return Value(self.substr(0, self.size() - (self.ends_with(suffix) ? suffix.size() : 0)));
     }},
    {"upper", [](Text self, Arguments&) { return Value(to_upper(self)); }},
    {"lower", [](Text self, Arguments&) { return Value(to_lower(self)); }},
    {"title", [](Text self, Arguments&) { return Value(to_title(self)); }},
    {"capitalize", [](Text self, Arguments&) { return Value(capitalize(self)); }},
    {"replace",
     [](Text self, Arguments& args) {
         const std::string old = args.text("old");
         const std::string with = args.text("new");
         return Value(replace(self, old, with, args.integer("count", -1)));
     }},
    {"find", find_method<true, false>},
    {"rfind", find_method<false, false>},
    {"index", find_method<true, true>},
    {"rindex", find_method<false, true>},
    {"count", count_method},
    {"partition", partition_method<true>},
    {"rpartition", partition_method<false>},
    {"ljust", pad_method<Side::kRight>},
    {"rjust", pad_method<Side::kLeft>},
    {"center", pad_method<Side::kBoth>},
    {"zfill", zfill_method},
    {"format", format_method},
};

using NameList = std::vector<std::string_view>;

bool has_name(const NameList& names, std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

const NameList kDictMethods = {"get", "items", "keys", "values", "copy"};
const NameList kListMethods = {"index", "count", "copy"};
/// Methods Python has and templates may see, but that are not supported.
const NameList kOtherStringMethods = {"casefold", "encode",       "expandtabs",  "format_map",
                                      "istitle",  "isidentifier", "isprintable", "maketrans",
                                      "swapcase", "translate"};
const NameList kOtherNumberMethods = {
    "real",      "imag",      "numerator",       "denominator", "bit_length",
    "bit_count", "conjugate", "to_bytes",        "from_bytes",  "is_integer",
    "hex",       "fromhex",   "as_integer_ratio"};
/// Methods that change their object; jinja2's immutable sandbox refuses them too.
const NameList kChangingListMethods = {"append", "clear",  "extend",  "insert",
                                       "pop",    "remove", "reverse", "sort"};
const NameList kChangingDictMethods = {"clear",   "fromkeys",   "pop",
                                       "popitem", "setdefault", "update"};

Value view(std::string_view type, std::vector<Value> items) {
    return Value::sequence({Sequence::Kind::kView, std::move(items), std::string(type)});
}

Value call_dict_method(const Method& method, const Dict& self, Arguments& args) {
    if (method.name == "copy") return method.self;
    if (method.name == "get") {
        const Value* item = self.find(args.get("key"));
        const Value fallback = args.get_or("default", Value());
        return item ? *item : fallback;
    }
    std::vector<Value> items;
    for (const auto& [key, value] : self.entries) {
        items.push_back(method.name == "items"  ? Value::tuple({key, value})
                        : method.name == "keys" ? key
                                                : value);
    }
    return view("dict_" + method.name, std::move(items));
}

Value call_list_method(const Method& method, const Sequence& self, Arguments& args) {
    if (method.name == "copy") return method.self;
    const Value item = args.get("value");
    const auto matches = [&](const Value& candidate) { return equal(candidate, item); };
    if (method.name == "count") {
        return int64_t{std::count_if(self.items.begin(), self.items.end(), matches)};
    }
    const auto found = std::find_if(self.items.begin(), self.items.end(), matches);
    require(found != self.items.end(), "the value is not in the list");
    return int64_t{found - self.items.begin()};
}

const StringMethod* find_string_method(std::string_view name) {
    const auto* found =
        std::find_if(std::begin(kStringMethods), std::end(kStringMethods),
                     [&](const StringMethod& method) { return method.name == name; });
    return found == std::end(kStringMethods) ? nullptr : found;
}

}  // namespace

bool has_method(const Value& object, std::string_view name) {
    const auto refuse_changing = [&](const NameList& methods) {
        if (!has_name(methods, name)) return;
        fail("'{}.{}' changes a value in place, which templates must not do", object.type_name(),
             name);
    };
    if (object.is<Dict>()) {
        refuse_changing(kChangingDictMethods);
        return has_name(kDictMethods, name);
    }
    if (const auto* sequence = object.as<Sequence>()) {
        const bool is_list = sequence->kind == Sequence::Kind::kList;
        if (is_list) refuse_changing(kChangingListMethods);
        return sequence->kind <= Sequence::Kind::kRange && has_name(kListMethods, name) &&
               (is_list || name != "copy");
    }
    const bool is_text = object.is<std::string>();
    if (is_text && (find_string_method(name) || classify(name, ""))) return true;
    const bool unsupported = (is_text && has_name(kOtherStringMethods, name)) ||
                             (object.as_number() && has_name(kOtherNumberMethods, name));
    require(!unsupported, "'{}.{}' is not supported", object.type_name(), name);
    return false;
}

Value call_method(const Method& method, Budget& budget, Arguments args) {
    budget.charge(method.self.size_cost());
    Value result;
    if (const auto* text = method.self.as<std::string>()) {
        require(!method.self.is_escaped(), "'str.{}' on an escaped string is not supported",
                method.name);
        const StringMethod* known = find_string_method(method.name);
        result = known ? known->call(*text, args) : Value(*classify(method.name, *text));
    } else if (const auto* dict = method.self.as<Dict>()) {
        result = call_dict_method(method, *dict, args);
    } else if (const auto* loop = method.self.as<Loop>()) {
        const std::vector<Value> options = args.rest();
        require(!options.empty(), "loop.cycle needs at least one argument");
        result = options[static_cast<size_t>(loop->index) % options.size()];
    } else {
        budget.charge(method.self.weight());
        result = call_list_method(method, *method.self.as<Sequence>(), args);
    }
    args.finish();
    budget.charge(result.size_cost());
    return result;
}

}  // namespace dak::jinja
