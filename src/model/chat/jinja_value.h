#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "model/chat/jinja_text.h"

/// The values templates compute with: Python's None, bool, int (64 bits), float, str, list, tuple
/// and dict, and jinja2's own objects. Everything but a namespace is immutable, so values share
/// their storage freely and cannot form cycles.
namespace dak::jinja {

struct Sequence;
struct Dict;
struct Namespace;
struct Loop;
struct Method;
struct Macro;

/// What an unknown name or a missing attribute gives; `message` is raised when it is used.
struct Undefined {
    std::shared_ptr<const std::string> message;
};
struct None {};
struct String {
    std::shared_ptr<const std::string> text;
    bool escaped = false;  ///< markupsafe's Markup: the result of the filters escape and safe
};
enum class Function : uint8_t { kRange, kDict, kNamespace, kRaiseException, kStrftimeNow };

/// Types that values share a pointer to.
template <typename T>
constexpr bool kIsObject =
    std::is_same_v<T, Sequence> || std::is_same_v<T, Dict> || std::is_same_v<T, Loop> ||
    std::is_same_v<T, Method> || std::is_same_v<T, Macro>;

class Value {
  public:
    Value() = default;  ///< None
    Value(bool value) : data_(value) {}
    Value(int64_t value) : data_(value) {}
    Value(double value) : data_(value) {}
    Value(Function value) : data_(value) {}
    Value(Namespace* value) : data_(value) {}  ///< not owned: the renderer owns its namespaces
    Value(std::shared_ptr<const Dict> value) : data_(std::move(value)) {}
    Value(std::shared_ptr<const Loop> value) : data_(std::move(value)) {}
    Value(std::shared_ptr<const Method> value) : data_(std::move(value)) {}
    Value(std::shared_ptr<const Macro> value) : data_(std::move(value)) {}
    Value(std::string text, bool escaped = false);
    Value(std::string_view text) : Value(std::string(text)) {}
    Value(const char* text) : Value(std::string(text)) {}
    static Value undefined(std::string message);
    static Value list(std::vector<Value> items);
    static Value tuple(std::vector<Value> items);
    /// A one-shot iterator, as most filters return: true as a condition, empty once iterated.
    static Value iterator(std::vector<Value> items);
    static Value sequence(Sequence sequence);
    static Value dict(Dict dict);
    static Value method(Value self, std::string_view name);

    /// The value as T where it is one, otherwise null. Shared objects come as their own type:
    /// as<Sequence>(), as<Dict>(), as<std::string>().
    template <typename T>
    const T* as() const {
        if constexpr (std::is_same_v<T, std::string>) {
            const auto* string = std::get_if<String>(&data_);
            return string ? string->text.get() : nullptr;
        } else if constexpr (std::is_same_v<T, Namespace>) {
            const auto* pointer = std::get_if<Namespace*>(&data_);
            return pointer ? *pointer : nullptr;
        } else if constexpr (kIsObject<T>) {
            const auto* pointer = std::get_if<std::shared_ptr<const T>>(&data_);
            return pointer ? pointer->get() : nullptr;
        } else {
            return std::get_if<T>(&data_);
        }
    }
    template <typename T>
    bool is() const {
        return as<T>() != nullptr;
    }
    Namespace* as_namespace() const;
    bool is_escaped() const;
    /// int or bool, which Python takes as an int.
    std::optional<int64_t> as_integer() const;
    /// Any number as floating point, wide enough to hold every int exactly.
    std::optional<long double> as_number() const;

    /// The address of a shared object, which is what Python compares objects by; else null.
    const void* identity() const;

    bool truth() const;
    /// Python's name of the type, for messages.
    std::string_view type_name() const;
    /// str() and repr().
    std::string text() const;
    std::string repr() const;
    /// How deeply containers nest in the value. At most kMaxValueDepth.
    int depth() const;
    /// The work of walking through the whole value: 1 for each value in it and each 32 bytes.
    int64_t weight() const;
    /// The work of walking over its own items or bytes only.
    int64_t size_cost() const;

  private:
    using Data = std::variant<None, Undefined, bool, int64_t, double, String, Function, Namespace*,
                              std::shared_ptr<const Sequence>, std::shared_ptr<const Dict>,
                              std::shared_ptr<const Loop>, std::shared_ptr<const Method>,
                              std::shared_ptr<const Macro>>;
    Data data_;
};

struct Sequence {
    enum class Kind { kList, kTuple, kRange, kView, kIterator };
    Kind kind = Kind::kList;
    std::vector<Value> items;
    std::string label = {};       ///< range: its repr; view: its type's name, such as dict_items
    mutable size_t consumed = 0;  ///< iterator: the items already taken
    int depth = 0;
    int64_t weight = 0;
};

/// Keys in the order of insertion.
struct Dict {
    std::vector<std::pair<Value, Value>> entries;
    std::unordered_map<std::string, size_t> index = {};  ///< hash_key() to the entry
    int depth = 0;
    int64_t weight = 0;

    /// Throws Error when the key is a list or a dict.
    void set(const Value& key, Value value);
    const Value* find(const Value& key) const;
};

struct Namespace {
    std::map<std::string, Value, std::less<>> attributes;
};

/// The special variable `loop`.
struct Loop {
    Value items;  ///< a list
    int64_t count = 0;
    int64_t index = 0;
};

/// A method bound to its object, such as `message.content.strip`.
struct Method {
    Value self;
    std::string name;
};

template <typename BasicJson>
Value from_json(const BasicJson& json);

/// json.dumps with its options of the same names.
struct JsonStyle {
    std::optional<std::string> indent;
    std::string item_separator = ", ";
    std::string key_separator = ": ";
    bool ensure_ascii = false;
    bool sort_keys = false;
};
/// Throws Error for what has no JSON form.
std::string to_json(const Value& value, const JsonStyle& style);

/// A string that is equal for two values exactly when they are the same dict key.
std::string hash_key(const Value& value);
bool equal(const Value& left, const Value& right);
/// Throws Error when Python has no order between the two.
bool less(const Value& left, const Value& right);
/// iter(): the items of any iterable; takes them out of an iterator. Throws Error for others.
std::vector<Value> iterate(const Value& value);
bool is_iterable(const Value& value);
/// len(), or nothing where it has none.
std::optional<int64_t> length(const Value& value);

}  // namespace dak::jinja
