#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace dak {

/// The one exception type of the library. Its message is a single line that says what is wrong,
/// where, and what the user can do about it. Caught in the CLI and in the language bindings only.
class Error : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

/// Throws Error with a formatted message.
template <typename... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
    throw Error(fmt::format(format, std::forward<Args>(args)...));
}

/// Throws Error with a formatted message unless `condition` holds.
template <typename... Args>
void require(bool condition, fmt::format_string<Args...> format, Args&&... args) {
    if (!condition) fail(format, std::forward<Args>(args)...);
}

}  // namespace dak
