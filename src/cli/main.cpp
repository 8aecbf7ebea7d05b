#include <fcntl.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/usage.h"

namespace {

constexpr int kFailure = 1;
constexpr int kUsageError = 2;
constexpr int kInterrupted = 130;

constexpr std::string_view kCannotWrite = "cannot write to standard output";

/// One line whatever names from a model's files it quotes: control characters are spelled out.
std::string on_one_line(std::string_view message) {
    std::string line;
    for (const char c : message) {
        const auto byte = static_cast<unsigned char>(c);
        line += byte < 0x20 || byte == 0x7f ? fmt::format("\\x{:02x}", byte) : std::string(1, c);
    }
    return line;
}

/// A standard error that cannot be written is no reason to fail.
void complain(const std::string& text) { std::fputs(text.c_str(), stderr); }

int report_failure(std::string_view message) {
    complain(fmt::format("dak: error: {}\n", on_one_line(message)));
    return kFailure;
}

int report_usage_error(std::string_view message, std::string_view command) {
    complain(fmt::format("dak: error: {}\nTry '{} --help'.\n", message, command));
    return kUsageError;
}

/// Help texts end in one newline whatever version of CLI11 made them.
void print_text(std::FILE* stream, std::string_view text) {
    const size_t end = text.find_last_not_of('\n') + 1;  // npos + 1 == 0
    fmt::print(stream, "{}\n", text.substr(0, end));
}

void describe(CLI::App& app) {
    app.get_formatter()->label("SUBCOMMAND", "COMMAND");
    app.set_version_flag("--version", "dak " DAK_VERSION, "Print the version and exit");
    app.require_subcommand(1);
    app.footer(
        "'dak COMMAND --help' shows the options of a command with examples.\n"
        "Exit status: 0 success, 1 failure, 2 wrong usage, 130 interrupted.");
    dak::add_run(app);
    dak::add_plan(app);
    dak::add_bench(app);
    dak::add_profile(app);
    dak::add_info(app);
}

int run(int argc, char** argv) {
    CLI::App app{"Runs large language models whose weights and KV cache exceed GPU memory.", "dak"};
    describe(app);
    if (argc < 2) {
        print_text(stderr, app.help());
        return kUsageError;
    }
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    if (const auto complaint = dak::unknown_command(app, arguments)) {
        return report_usage_error(*complaint, "dak");
    }
    try {
        app.parse(argc, argv);
    } catch (const CLI::Success& help_or_version) {
        std::ostringstream text;
        app.exit(help_or_version, text, text);
        print_text(stdout, text.str());
        return 0;
    } catch (const CLI::ParseError& error) {
        return report_usage_error(dak::describe_usage_error(app, error), dak::command_path(app));
    }
    return 0;
}

int run_and_report(int argc, char** argv) {
    try {
        return run(argc, argv);
    } catch (const dak::Interrupted& interrupted) {
        report_failure(interrupted.what());
        return kInterrupted;
    } catch (const dak::Error& error) {
        return report_failure(error.what());
    } catch (const std::bad_alloc&) {
        return report_failure(
            "out of host memory; 'dak info' shows how much there is and what limits it");
    } catch (const std::exception& error) {
        // fmt throws where standard output cannot be written.
        if (std::ferror(stdout) != 0) return report_failure(kCannotWrite);
        return report_failure(fmt::format("internal error: {}; please report it", error.what()));
    }
}

/// A file opened later must not take the place of a closed standard stream, or messages for the one
/// would go into the other.
void open_standard_streams() {
    for (int descriptor = 0; descriptor <= 2; ++descriptor) {
        if (::fcntl(descriptor, F_GETFD) == -1) ::open("/dev/null", O_RDWR);
    }
}

}  // namespace

int main(int argc, char** argv) {
    open_standard_streams();
    // End quietly when the reader of a pipe goes away, even where the parent ignores the signal:
    // nobody would see the rest of the output.
    std::signal(SIGPIPE, SIG_DFL);
    const int status = run_and_report(argc, argv);
    if ((std::fflush(stdout) != 0 || std::ferror(stdout)) && status == 0) {
        return report_failure(fmt::format("{}: {}", kCannotWrite, std::strerror(errno)));
    }
    return status;
}
