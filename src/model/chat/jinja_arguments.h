#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/chat/jinja_value.h"

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

/// str(value), with the work of walking through it charged.
std::string text_of(Budget& budget, const Value& value);

}  // namespace dak::jinja
