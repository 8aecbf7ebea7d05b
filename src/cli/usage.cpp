#include "cli/usage.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <numeric>

namespace dak {

namespace {

/// Number of insertions, deletions, replacements and swaps of neighbours between two words.
size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<size_t> before(b.size() + 1);  // row i - 2
    std::vector<size_t> above(b.size() + 1);   // row i - 1
    std::vector<size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), size_t{0});
    for (size_t i = 1; i <= a.size(); ++i) {
        before.swap(above);
        above.swap(row);
        row[0] = i;
        for (size_t j = 1; j <= b.size(); ++j) {
            row[j] = std::min({above[j] + 1, row[j - 1] + 1,
                               above[j - 1] + static_cast<size_t>(a[i - 1] != b[j - 1])});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                row[j] = std::min(row[j], before[j - 2] + 1);
            }
        }
    }
    return row[b.size()];
}

/// The subcommand that was asked for, or the program itself.
const CLI::App& active_command(const CLI::App& app) {
    const auto chosen = app.get_subcommands();
    return chosen.empty() ? app : *chosen.front();
}

std::string suggestion(std::string_view word, const std::vector<std::string>& candidates) {
    const auto match = nearest(word, candidates);
    return match ? fmt::format("; did you mean '{}'?", *match) : std::string();
}

std::vector<std::string> option_names(const CLI::App& command) {
    std::vector<std::string> names;
    for (const CLI::Option* option : command.get_options()) {
        for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
    return names;
}

}  // namespace

std::optional<std::string> nearest(std::string_view word,
                                   const std::vector<std::string>& candidates) {
    // A third of the letters may be wrong, but a short word has room for one slip.
    const size_t tolerance = std::max<size_t>(1, word.size() / 3);
    std::optional<std::string> best;
    size_t best_distance = tolerance + 1;
    for (const std::string& candidate : candidates) {
        const size_t distance = edit_distance(word, candidate);
        if (distance < best_distance) {
            best = candidate;
            best_distance = distance;
        }
    }
    return best;
}

std::optional<std::string> unknown_command(const CLI::App& app,
                                           const std::vector<std::string>& arguments) {
    const auto word = std::find_if(arguments.begin(), arguments.end(),
                                   [](const auto& text) { return !text.starts_with('-'); });
    if (word == arguments.end()) return {};
    std::vector<std::string> names;
    for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
    if (std::find(names.begin(), names.end(), *word) != names.end()) return {};
    return fmt::format("unknown command '{}'{}", *word, suggestion(*word, names));
}

std::string describe_usage_error(const CLI::App& app, const CLI::ParseError& error) {
    // A misspelt option also makes CLI11 report as missing the one that was meant: say the cause.
    const auto unexpected = app.remaining(true);
    if (!unexpected.empty()) {
        const auto option = std::find_if(unexpected.begin(), unexpected.end(),
                                         [](const auto& text) { return text.starts_with('-'); });
        if (option == unexpected.end()) {
            return fmt::format("unexpected argument '{}'", unexpected.front());
        }
        const std::string name = option->substr(0, option->find('='));
        return fmt::format("unknown option '{}'{}", name,
                           suggestion(name, option_names(active_command(app))));
    }
    return error.what();
}

std::string command_path(const CLI::App& app) {
    const CLI::App& command = active_command(app);
    return &command == &app ? app.get_name()
                            : fmt::format("{} {}", app.get_name(), command.get_name());
}

}  // namespace dak
