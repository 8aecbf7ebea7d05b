#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/chat/jinja_value.h"

/// The filters, tests and methods that templates may use.
namespace dak::jinja {

/// The work a rendering may still do. A unit is one step of the evaluator, one item or 32 bytes.
class Budget {
  public:
    explicit Budget(int64_t units) : left_(units) {}
    /// Throws Error when the work is used up.
    void charge(int64_t units);

  private:
    int64_t left_;
};

/// The arguments of one call, taken one by one in the order of the callee's parameters.
class Arguments {
  public:
    using Keyword = std::vector<std::pair<std::string, Value>>;
    Arguments(std::vector<Value> positional, Keyword keyword)
        : positional_(std::move(positional)), keyword_(std::move(keyword)) {}

    /// The next positional argument or the keyword argument `name`; null when there is neither.
    const Value* take(std::string_view name);
    /// As take; throws Error where the argument is missing or has another type.
    Value get(std::string_view name);
    Value get_or(std::string_view name, Value fallback);
    int64_t integer(std::string_view name, std::optional<int64_t> fallback = {});
    std::string text(std::string_view name, std::optional<std::string> fallback = {});
    bool truth_or(std::string_view name, bool fallback);

    bool has_positional() const { return next_ < positional_.size(); }
    bool has_keyword(std::string_view name) const;
    /// Every argument not taken yet.
    std::vector<Value> rest();
    Keyword keyword_rest();
    /// Throws Error when an argument was not taken.
    void finish() const;

  private:
    std::vector<Value> positional_;
    Keyword keyword_;
    size_t next_ = 0;
};

struct FilterEntry {
    std::string_view name;
    Value (*apply)(Budget&, const Value& subject, Arguments&);
    bool takes_escaped = false;  ///< treats escaped strings as jinja2 does
};
struct TestEntry {
    std::string_view name;
    bool (*apply)(Budget&, const Value& subject, Arguments&);
};

/// Null when there is none of that name.
const FilterEntry* find_filter(std::string_view name);
const TestEntry* find_test(std::string_view name);

Value call_filter(const FilterEntry& filter, Budget& budget, const Value& subject, Arguments args);
bool call_test(const TestEntry& test, Budget& budget, const Value& subject, Arguments args);

/// Whether Python's object has a method `name`. Throws Error when it has one that is not supported
/// or that changes the object.
bool has_method(const Value& object, std::string_view name);
Value call_method(const Method& method, Budget& budget, Arguments args);

}  // namespace dak::jinja
