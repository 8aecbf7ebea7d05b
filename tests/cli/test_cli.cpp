#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>

#include "run_cli.h"

namespace dak {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

TEST(Cli, HelpNamesEveryCommand) {
    const CliResult result = run_cli({"--help"});
    EXPECT_EQ(result.status, 0);
    EXPECT_THAT(result.err, IsEmpty());
    EXPECT_THAT(result.out, AllOf(HasSubstr("Usage: dak"), HasSubstr("info"),
                                  HasSubstr("COMMAND --help"), EndsWith("interrupted.\n")));
}

TEST(Cli, Version) {
    const CliResult result = run_cli({"--version"});
    EXPECT_EQ(result.status, 0);
    EXPECT_EQ(result.out, "dak " DAK_VERSION "\n");
}

TEST(Cli, NoCommandShowsTheHelpAsAnError) {
    const CliResult result = run_cli({});
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(result.out, IsEmpty());
    EXPECT_THAT(result.err, HasSubstr("Usage: dak"));
}

TEST(Cli, UnknownCommandSuggestsTheNearest) {
    const CliResult result = run_cli({"inof", "--json"});
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(result.out, IsEmpty());
    EXPECT_EQ(result.err,
              "dak: error: unknown command 'inof'; did you mean 'info'?\nTry 'dak --help'.\n");
    EXPECT_EQ(run_cli({"quantize"}).err,
              "dak: error: unknown command 'quantize'\nTry 'dak --help'.\n");
}

TEST(Cli, UnknownOptionSuggestsTheNearest) {
    const CliResult result = run_cli({"info", "--jsn"});
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(result.out, IsEmpty());
    EXPECT_EQ(
        result.err,
        "dak: error: unknown option '--jsn'; did you mean '--json'?\nTry 'dak info --help'.\n");
    EXPECT_THAT(run_cli({"--wrong"}).err, StartsWith("dak: error: unknown option '--wrong'\n"));
    EXPECT_EQ(run_cli({"--wrong"}).status, 2);
}

TEST(Cli, UnexpectedArgument) {
    const CliResult result = run_cli({"info", "now"});
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(result.err, StartsWith("dak: error: unexpected argument 'now'\n"));
}

/// A pipe whose reading end is closed already.
class ClosedPipe {
  public:
    ClosedPipe() {
        int ends[2];
        if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
        ::close(ends[0]);
        writer_ = ends[1];
    }
    ClosedPipe(const ClosedPipe&) = delete;
    ClosedPipe& operator=(const ClosedPipe&) = delete;
    ~ClosedPipe() { ::close(writer_); }
    int writer() const { return writer_; }

  private:
    int writer_;
};

TEST(Cli, EndsQuietlyWhenNobodyReads) {
    const ClosedPipe pipe;
    for (const std::vector<std::string>& arguments :
         {std::vector<std::string>{"info"}, {"info", "--json"}, {"--help"}, {"--version"}}) {
        const CliResult result = run_cli(arguments, {}, pipe.writer());
        EXPECT_EQ(result.signal, SIGPIPE);
        EXPECT_THAT(result.err, IsEmpty());
    }
}

TEST(Cli, EndsQuietlyWhereTheParentIgnoresSigpipe) {
    const ClosedPipe pipe;
    const auto before = ::signal(SIGPIPE, SIG_IGN);
    const CliResult result = run_cli({"info"}, {}, pipe.writer());
    ::signal(SIGPIPE, before);
    EXPECT_EQ(result.signal, SIGPIPE);
    EXPECT_THAT(result.err, IsEmpty());
}

TEST(Cli, FullDiskIsAnError) {
    const int full = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
    ASSERT_GE(full, 0);
    for (const char* argument : {"info", "--help"}) {
        const CliResult result = run_cli({argument}, {}, full);
        EXPECT_EQ(result.status, 1);
        EXPECT_EQ(result.err,
                  "dak: error: cannot write to standard output: No space left on device\n");
    }
    ::close(full);
}

}  // namespace
}  // namespace dak
