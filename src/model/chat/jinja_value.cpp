#include "model/chat/jinja_value.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace dak::jinja {

namespace {

/// Walking through values is recursive; twice the nesting that parse_json admits.
constexpr int kMaxValueDepth = 200;
/// Shared parts make the weight of a value grow exponentially; past this it is only "too much".
constexpr int64_t kMaxWeight = int64_t{1} << 40;

template <typename Container, typename Items>
void measure(Container& container, const Items& for_each) {
    container.depth = 1;
    container.weight = 1;
    for_each([&](const Value& item) {
        container.depth = std::max(container.depth, item.depth() + 1);
        container.weight = std::min(container.weight + item.weight(), kMaxWeight);
    });
    require(container.depth <= kMaxValueDepth, "values nest deeper than {} levels", kMaxValueDepth);
}

}  // namespace

Value::Value(std::string text, bool escaped) {
    check_string_size(text.size());
    data_ = String{std::make_shared<const std::string>(std::move(text)), escaped};
}

Value Value::undefined(std::string message) {
    Value value;
    value.data_ = Undefined{std::make_shared<const std::string>(std::move(message))};
    return value;
}

Value Value::list(std::vector<Value> items) {
    return sequence({Sequence::Kind::kList, std::move(items)});
}

Value Value::tuple(std::vector<Value> items) {
    return sequence({Sequence::Kind::kTuple, std::move(items)});
}

Value Value::iterator(std::vector<Value> items) {
    return sequence({Sequence::Kind::kIterator, std::move(items)});
}

Value Value::sequence(Sequence sequence) {
    measure(sequence, [&](auto visit) {
        for (const Value& item : sequence.items) visit(item);
    });
    Value value;
    value.data_ = std::make_shared<const Sequence>(std::move(sequence));
    return value;
}

Value Value::dict(Dict dict) {
    measure(dict, [&](auto visit) {
        for (const auto& [key, item] : dict.entries) {
            visit(key);
            visit(item);
        }
    });
    return std::make_shared<const Dict>(std::move(dict));
}

Value Value::method(Value self, std::string_view name) {
    return std::make_shared<const Method>(Method{std::move(self), std::string(name)});
}

Namespace* Value::as_namespace() const {
    const auto* pointer = std::get_if<Namespace*>(&data_);
    return pointer ? *pointer : nullptr;
}

bool Value::is_escaped() const {
    const auto* string = std::get_if<String>(&data_);
    return string && string->escaped;
}

std::optional<int64_t> Value::as_integer() const {
    if (const auto* boolean = as<bool>()) return *boolean;
    if (const auto* integer = as<int64_t>()) return *integer;
    return {};
}

std::optional<long double> Value::as_number() const {
    if (const auto integer = as_integer()) return *integer;
    if (const auto* number = as<double>()) return *number;
    return {};
}

const void* Value::identity() const {
    return std::visit(
        [](const auto& data) -> const void* {
            if constexpr (requires { data.get(); }) {
                return data.get();
            } else if constexpr (std::is_pointer_v<std::remove_cvref_t<decltype(data)>>) {
                return data;
            } else {
                return nullptr;
            }
        },
        data_);
}

bool Value::truth() const {
    if (is<None>() || is<Undefined>()) return false;
    if (const auto number = as_number()) return *number != 0;
    if (const auto* string = as<std::string>()) return !string->empty();
    if (const auto* sequence = as<Sequence>()) {
        return sequence->kind == Sequence::Kind::kIterator || !sequence->items.empty();
    }
    if (const auto count = length(*this)) return *count != 0;
    return true;
}

std::string_view Value::type_name() const {
    if (is<None>()) return "NoneType";
    if (is<Undefined>()) return "Undefined";
    if (is<bool>()) return "bool";
    if (is<int64_t>()) return "int";
    if (is<double>()) return "float";
    if (is<std::string>()) return "str";
    if (is<Dict>()) return "dict";
    if (is<Namespace>()) return "namespace";
    if (is<Loop>()) return "loop";
    if (is<Method>()) return "method";
    if (is<Macro>()) return "macro";
    const auto* sequence = as<Sequence>();
    if (!sequence) return "function";
    switch (sequence->kind) {
        case Sequence::Kind::kList:
            return "list";
        case Sequence::Kind::kTuple:
            return "tuple";
        case Sequence::Kind::kRange:
            return "range";
        case Sequence::Kind::kView:
            return sequence->label;
        case Sequence::Kind::kIterator:
            return "iterator";
    }
    return "?";
}

int Value::depth() const {
    if (const auto* sequence = as<Sequence>()) return sequence->depth;
    if (const auto* dict = as<Dict>()) return dict->depth;
    if (const auto* loop = as<Loop>()) return loop->items.depth() + 1;
    if (const auto* method = as<Method>()) return method->self.depth() + 1;
    return 0;
}

int64_t Value::size_cost() const {
    // 32 bytes are scanned or copied in about the time of one step of the evaluator.
    if (const auto* text = as<std::string>()) return 1 + static_cast<int64_t>(text->size() / 32);
    if (const auto* sequence = as<Sequence>()) {
        return 1 + static_cast<int64_t>(sequence->items.size());
    }
    if (const auto* dict = as<Dict>()) return 1 + static_cast<int64_t>(dict->entries.size());
    return 1;
}

int64_t Value::weight() const {
    if (const auto* sequence = as<Sequence>()) return sequence->weight;
    if (const auto* dict = as<Dict>()) return dict->weight;
    return size_cost();
}

namespace {

std::string join_reprs(const std::vector<Value>& items) {
    std::string text;
    for (const Value& item : items) {
        if (!text.empty()) text += ", ";
        text += item.repr();
        check_string_size(text.size());
    }
    return text;
}

std::string repr_of(const Sequence& sequence) {
    switch (sequence.kind) {
        case Sequence::Kind::kList:
            return fmt::format("[{}]", join_reprs(sequence.items));
        case Sequence::Kind::kTuple:
            return fmt::format("({}{})", join_reprs(sequence.items),
                               sequence.items.size() == 1 ? "," : "");
        case Sequence::Kind::kRange:
            return sequence.label;
        case Sequence::Kind::kView:
            return fmt::format("{}([{}])", sequence.label, join_reprs(sequence.items));
        case Sequence::Kind::kIterator:
            break;
    }
    fail("cannot print an iterator; pass it through the filter 'list' or 'join'");
}

std::string repr_of(const Dict& dict) {
    std::string text;
    for (const auto& [key, item] : dict.entries) {
        if (!text.empty()) text += ", ";
        text += key.repr() + ": " + item.repr();
        check_string_size(text.size());
    }
    return fmt::format("{{{}}}", text);
}

}  // namespace

std::string Value::text() const {
    if (const auto* string = as<std::string>()) return *string;
    if (is<Undefined>()) return {};
    return repr();
}

std::string Value::repr() const {
    if (is<None>()) return "None";
    if (is<Undefined>()) return "Undefined";
    if (const auto* boolean = as<bool>()) return *boolean ? "True" : "False";
    if (const auto* integer = as<int64_t>()) return std::to_string(*integer);
    if (const auto* number = as<double>()) return float_text(*number);
    if (const auto* string = as<std::string>()) {
        return is_escaped() ? fmt::format("Markup({})", quote(*string)) : quote(*string);
    }
    if (const auto* sequence = as<Sequence>()) return repr_of(*sequence);
    if (const auto* dict = as<Dict>()) return repr_of(*dict);
    if (const auto* loop = as<Loop>()) {
        return fmt::format("<LoopContext {}/{}>", loop->index + 1, loop->count);
    }
    fail("cannot print a {}", type_name());
}

void Dict::set(const Value& key, Value value) {
    const auto [it, inserted] = index.emplace(hash_key(key), entries.size());
    if (inserted) {
        entries.emplace_back(key, std::move(value));
    } else {
        entries[it->second].second = std::move(value);
    }
}

const Value* Dict::find(const Value& key) const {
    const auto it = index.find(hash_key(key));
    return it == index.end() ? nullptr : &entries[it->second].second;
}

std::string hash_key(const Value& value) {
    if (const auto* text = value.as<std::string>()) return fmt::format("s{}", *text);
    if (const auto integer = value.as_integer()) return fmt::format("n{}", *integer);
    if (const auto* number = value.as<double>()) {
        const bool integral = *number == std::floor(*number) && std::abs(*number) < 0x1p63;
        return "n" +
               (integral ? std::to_string(static_cast<int64_t>(*number)) : float_text(*number));
    }
    if (value.is<None>()) return "none";
    if (value.is<Undefined>()) return "undefined";
    const auto* sequence = value.as<Sequence>();
    const bool is_view = sequence && sequence->kind == Sequence::Kind::kView;
    const bool is_list = sequence && sequence->kind == Sequence::Kind::kList;
    if (is_view || is_list || value.is<Dict>()) fail("unhashable type: '{}'", value.type_name());
    if (!sequence || sequence->kind != Sequence::Kind::kTuple) {
        return fmt::format("o{}", value.identity());
    }
    std::string key = "t";
    for (const Value& item : sequence->items) {
        const std::string item_key = hash_key(item);
        key += fmt::format("{}:{}", item_key.size(), item_key);
        check_string_size(key.size());
    }
    return key;
}

template <typename BasicJson>
Value from_json(const BasicJson& json) {
    // nlohmann's values are destroyed recursively and parse_json bounds their depth, so recursion
    // is safe here too.
    if (json.is_null()) return Value();
    if (json.is_boolean()) return json.template get<bool>();
    if (json.is_number_unsigned() && json.template get<uint64_t>() > INT64_MAX) {
        fail("integers past 64 bits are not supported, found {}", json.template get<uint64_t>());
    }
    if (json.is_number_integer()) return json.template get<int64_t>();
    if (json.is_number_float()) return json.template get<double>();
    if (json.is_string()) return json.template get<std::string>();
    if (json.is_array()) {
        std::vector<Value> items;
        for (const auto& item : json) items.push_back(from_json(item));
        return Value::list(std::move(items));
    }
    require(json.is_object(), "a JSON {} cannot be passed to a template", json.type_name());
    Dict dict;
    for (const auto& [key, item] : json.items()) dict.set(Value(key), from_json(item));
    return Value::dict(std::move(dict));
}

template Value from_json(const nlohmann::json& json);
template Value from_json(const nlohmann::ordered_json& json);

namespace {

class JsonWriter {
  public:
    explicit JsonWriter(const JsonStyle& style) : style_(style) {}

    std::string write(const Value& value) {
        write_value(value);
        return std::move(out_);
    }

  private:
    void write_value(const Value& value) {
        check_string_size(out_.size());
        const auto* sequence = value.as<Sequence>();
        if (const auto* text = value.as<std::string>()) {
            out_ += json_quote(*text, style_.ensure_ascii);
        } else if (const auto* dict = value.as<Dict>()) {
            write_dict(*dict);
        } else if (sequence && sequence->kind <= Sequence::Kind::kTuple) {
            write_items('[', ']', sequence->items, [&](const Value& item) { write_value(item); });
        } else {
            out_ += scalar(value);
        }
    }

    /// `write_item` writes one element; brackets, separators and new lines are written here.
    template <typename Items, typename WriteItem>
    void write_items(char open, char close, const Items& items, WriteItem write_item) {
        out_ += open;
        ++level_;
        bool first = true;
        for (const auto& item : items) {
            if (!first) out_ += style_.item_separator;
            first = false;
            new_line();
            write_item(item);
        }
        --level_;
        if (!first) new_line();
        out_ += close;
    }

    void write_dict(const Dict& dict) {
        auto entries = dict.entries;
        if (style_.sort_keys) {
            std::stable_sort(entries.begin(), entries.end(),
                             [](const auto& a, const auto& b) { return less(a.first, b.first); });
        }
        write_items('{', '}', entries, [&](const auto& entry) {
            const auto* key = entry.first.template as<std::string>();
            out_ += json_quote(key ? *key : scalar(entry.first), style_.ensure_ascii);
            out_ += style_.key_separator;
            write_value(entry.second);
        });
    }

    void new_line() {
        if (style_.indent) out_.append("\n").append(repeat(*style_.indent, level_));
    }

    static std::string scalar(const Value& value) {
        if (value.is<None>()) return "null";
        if (const auto* boolean = value.as<bool>()) return *boolean ? "true" : "false";
        const auto* number = value.as<double>();
        if (number && std::isnan(*number)) return "NaN";
        if (number && std::isinf(*number)) return *number > 0 ? "Infinity" : "-Infinity";
        if (!value.as_number()) fail("a value of type {} has no JSON form", value.type_name());
        return value.repr();
    }

    const JsonStyle& style_;
    std::string out_;
    int64_t level_ = 0;
};

}  // namespace

std::string to_json(const Value& value, const JsonStyle& style) {
    return JsonWriter(style).write(value);
}

bool equal(const Value& left, const Value& right) {
    if (left.as_number() && right.as_number()) return *left.as_number() == *right.as_number();
    if (left.is<std::string>() && right.is<std::string>()) {
        return *left.as<std::string>() == *right.as<std::string>();
    }
    if (left.is<None>() || left.is<Undefined>()) {
        return left.type_name() == right.type_name();
    }
    if (const auto* a = left.as<Sequence>()) {
        const auto* b = right.as<Sequence>();
        if (!b || a->kind != b->kind) return false;
        if (a->kind > Sequence::Kind::kRange) return a == b;
        return std::equal(a->items.begin(), a->items.end(), b->items.begin(), b->items.end(),
                          equal);
    }
    if (const auto* a = left.as<Dict>()) {
        const auto* b = right.as<Dict>();
        if (!b || a->entries.size() != b->entries.size()) return false;
        return std::all_of(a->entries.begin(), a->entries.end(), [&](const auto& entry) {
            const Value* other = b->find(entry.first);
            return other && equal(entry.second, *other);
        });
    }
    return left.identity() != nullptr && left.identity() == right.identity();
}

bool less(const Value& left, const Value& right) {
    if (left.as_number() && right.as_number()) return *left.as_number() < *right.as_number();
    if (left.is<std::string>() && right.is<std::string>()) {
        return *left.as<std::string>() < *right.as<std::string>();
    }
    const auto* a = left.as<Sequence>();
    const auto* b = right.as<Sequence>();
    if (a && b && a->kind == b->kind && a->kind <= Sequence::Kind::kTuple) {
        const auto [x, y] = std::mismatch(a->items.begin(), a->items.end(), b->items.begin(),
                                          b->items.end(), equal);
        return y != b->items.end() && (x == a->items.end() || less(*x, *y));
    }
    if (left.is<Undefined>()) fail("{}", *left.as<Undefined>()->message);
    if (right.is<Undefined>()) fail("{}", *right.as<Undefined>()->message);
    fail("cannot order values of types {} and {}", left.type_name(), right.type_name());
}

std::vector<Value> iterate(const Value& value) {
    if (const auto* sequence = value.as<Sequence>()) {
        if (sequence->kind != Sequence::Kind::kIterator) return sequence->items;
        const auto first = sequence->items.begin() + static_cast<ptrdiff_t>(sequence->consumed);
        sequence->consumed = sequence->items.size();
        return {first, sequence->items.end()};
    }
    std::vector<Value> items;
    if (const auto* dict = value.as<Dict>()) {
        for (const auto& [key, item] : dict->entries) items.push_back(key);
    } else if (const auto* text = value.as<std::string>()) {
        for (size_t position = 0; position < text->size();) {
            const size_t size = byte_offset(std::string_view(*text).substr(position), 1);
            items.emplace_back(text->substr(position, size));
            position += size;
        }
    } else if (!value.is<Undefined>()) {
        fail("a value of type {} cannot be iterated over", value.type_name());
    }
    return items;
}

bool is_iterable(const Value& value) {
    return value.is<Sequence>() || value.is<Dict>() || value.is<std::string>() ||
           value.is<Undefined>();
}

std::optional<int64_t> length(const Value& value) {
    if (value.is<Undefined>()) return 0;
    if (const auto* text = value.as<std::string>()) return char_count(*text);
    if (const auto* dict = value.as<Dict>()) return static_cast<int64_t>(dict->entries.size());
    if (const auto* loop = value.as<Loop>()) return loop->count;
    const auto* sequence = value.as<Sequence>();
    if (!sequence || sequence->kind == Sequence::Kind::kIterator) return {};
    return static_cast<int64_t>(sequence->items.size());
}

}  // namespace dak::jinja
