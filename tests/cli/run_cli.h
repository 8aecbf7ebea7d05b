#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace dak {

struct CliResult {
    int status = 0;  // exit status
    int signal = 0;  // that ended the program, 0 for none
    std::string out;
    std::string err;
};

namespace run_cli_detail {

using TemporaryFile = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

inline TemporaryFile temporary_file(std::string_view content = {}) {
    TemporaryFile file(std::tmpfile(), std::fclose);
    // An empty view may have no data at all, which fwrite() must not be given.
    const bool written = content.empty() || (file && std::fwrite(content.data(), 1, content.size(),
                                                                 file.get()) == content.size());
    if (!file || !written) {
        throw std::runtime_error(std::string("cannot make a temporary file: ") +
                                 std::strerror(errno));
    }
    std::rewind(file.get());  // also flushes
    return file;
}

inline std::string content_of(std::FILE* file) {
    std::string text;
    std::rewind(file);
    for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) text += static_cast<char>(c);
    return text;
}

}  // namespace run_cli_detail

/// Runs the program with these arguments and waits for its end. `input` is its standard input.
/// Standard output goes to the descriptor `output` where given, otherwise into the result.
inline CliResult run_cli(const std::vector<std::string>& arguments, std::string_view input = {},
                         int output = -1) {
    using namespace run_cli_detail;
    const TemporaryFile in = temporary_file(input);
    const TemporaryFile out = temporary_file();
    const TemporaryFile err = temporary_file();
    std::vector<std::string> words = {DAK_BINARY};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);

    const pid_t child = ::fork();
    if (child < 0) throw std::runtime_error(std::string("cannot fork: ") + std::strerror(errno));
    if (child == 0) {
        ::dup2(::fileno(in.get()), STDIN_FILENO);
        ::dup2(output >= 0 ? output : ::fileno(out.get()), STDOUT_FILENO);
        ::dup2(::fileno(err.get()), STDERR_FILENO);
        ::execv(argv[0], argv.data());
        ::_exit(127);
    }
    int state = 0;
    while (::waitpid(child, &state, 0) < 0 && errno == EINTR) {
    }
    return {WIFEXITED(state) ? WEXITSTATUS(state) : -1, WIFSIGNALED(state) ? WTERMSIG(state) : 0,
            content_of(out.get()), content_of(err.get())};
}

/// Puts a directory before the loader's search path for programs started during its life.
class ScopedLibraryPath {
  public:
    explicit ScopedLibraryPath(const std::string& directory) {
        if (const char* value = std::getenv(kName)) before_ = value;
        ::setenv(kName, (before_.empty() ? directory : directory + ":" + before_).c_str(), 1);
    }
    ScopedLibraryPath(const ScopedLibraryPath&) = delete;
    ScopedLibraryPath& operator=(const ScopedLibraryPath&) = delete;
    ~ScopedLibraryPath() {
        before_.empty() ? ::unsetenv(kName) : ::setenv(kName, before_.c_str(), 1);
    }

  private:
    static constexpr const char* kName = "LD_LIBRARY_PATH";
    std::string before_;
};

}  // namespace dak
