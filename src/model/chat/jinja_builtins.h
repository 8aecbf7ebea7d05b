#pragma once

#include <string_view>

#include "model/chat/jinja_arguments.h"

/// The filters, tests and methods that templates may use.
namespace dak::jinja {

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
