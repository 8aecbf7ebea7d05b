#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace dak {

/// The candidate that `word` most likely was meant to be; nothing when none is close.
std::optional<std::string> nearest(std::string_view word,
                                   const std::vector<std::string>& candidates);

/// The complaint about the first word of the command line if that should be a subcommand of `app`
/// and is none; nothing otherwise. `arguments` are without the program's name.
std::optional<std::string> unknown_command(const CLI::App& app,
                                           const std::vector<std::string>& arguments);

/// One line that says what is wrong with the command line that `app` refused with `error`.
std::string describe_usage_error(const CLI::App& app, const CLI::ParseError& error);

/// "dak" or, when the command line got that far, "dak run".
std::string command_path(const CLI::App& app);

}  // namespace dak
