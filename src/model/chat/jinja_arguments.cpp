#include "model/chat/jinja_arguments.h"

#include <algorithm>

#include "base/error.h"

namespace dak::jinja {

void Budget::charge(int64_t units) {
    left_ -= units;
    require(left_ >= 0, "the template does too much work for the given conversation");
}

const Value* Arguments::take(std::string_view name) {
    if (has_positional()) return &positional_[next_++];
    const auto found = std::find_if(keyword_.begin(), keyword_.end(),
                                    [&](const auto& entry) { return entry.first == name; });
    if (found == keyword_.end()) return nullptr;
    // Kept among the positional ones, where finish() does not look.
    positional_.push_back(std::move(found->second));
    keyword_.erase(found);
    return &positional_[next_++];
}

Value Arguments::get(std::string_view name) {
    const Value* value = take(name);
    require(value != nullptr, "the argument '{}' is missing", name);
    return *value;
}

Value Arguments::get_or(std::string_view name, Value fallback) {
    const Value* value = take(name);
    return value ? *value : fallback;
}

int64_t Arguments::integer(std::string_view name, std::optional<int64_t> fallback) {
    const Value value = fallback ? get_or(name, *fallback) : get(name);
    const auto integer = value.as_integer();
    require(integer.has_value(), "the argument '{}' must be an integer, not {}", name,
            value.type_name());
    return *integer;
}

std::string Arguments::text(std::string_view name, std::optional<std::string> fallback) {
    const Value value = fallback ? get_or(name, Value(*fallback)) : get(name);
    const auto* text = value.as<std::string>();
    require(text != nullptr, "the argument '{}' must be a string, not {}", name, value.type_name());
    return *text;
}

bool Arguments::truth_or(std::string_view name, bool fallback) {
    return get_or(name, fallback).truth();
}

bool Arguments::has_keyword(std::string_view name) const {
    return std::any_of(keyword_.begin(), keyword_.end(),
                       [&](const auto& entry) { return entry.first == name; });
}

std::vector<Value> Arguments::rest() {
    const auto first =
        positional_.begin() + static_cast<ptrdiff_t>(std::exchange(next_, positional_.size()));
    return {first, positional_.end()};
}

Arguments::Keyword Arguments::keyword_rest() { return std::exchange(keyword_, {}); }

void Arguments::finish() const {
    require(!has_positional(), "there are too many arguments");
    if (!keyword_.empty()) fail("unexpected argument '{}'", keyword_.front().first);
}

std::string text_of(Budget& budget, const Value& value) {
    budget.charge(value.weight());
    return value.text();
}

}  // namespace dak::jinja
