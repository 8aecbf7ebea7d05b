#include <gtest/gtest.h>

#include <CLI/CLI.hpp>

#include "cli/usage.h"

namespace dak {
namespace {

TEST(Usage, NearestAllowsFewSlips) {
    const std::vector<std::string> commands = {"run", "info", "bench", "plan", "profile"};
    EXPECT_EQ(nearest("rnu", commands), "run");          // swapped
    EXPECT_EQ(nearest("inf", commands), "info");         // one missing
    EXPECT_EQ(nearest("benchh", commands), "bench");     // one too many
    EXPECT_EQ(nearest("porfiel", commands), "profile");  // two swaps
    EXPECT_EQ(nearest("xyz", commands), std::nullopt);
    EXPECT_EQ(nearest("help", commands), std::nullopt);
    EXPECT_EQ(nearest("run", {}), std::nullopt);
}

class UsageOfApp : public testing::Test {
  protected:
    UsageOfApp() {
        app_.require_subcommand(1);
        app_.add_flag("--version");
        CLI::App* run = app_.add_subcommand("run", "");
        run->add_option("--model", model_)->required();
        run->add_option("--batch-size", batch_size_);
    }

    /// The complaint about this command line.
    std::string complaint(std::vector<std::string> arguments) {
        std::reverse(arguments.begin(), arguments.end());  // the order CLI11 takes them in
        try {
            app_.parse(arguments);
        } catch (const CLI::ParseError& error) {
            return describe_usage_error(app_, error);
        }
        return "";
    }

    CLI::App app_{"", "dak"};
    std::string model_;
    int batch_size_ = 0;
};

TEST_F(UsageOfApp, KnownCommandIsFine) {
    EXPECT_EQ(unknown_command(app_, {"--version"}), std::nullopt);
    EXPECT_EQ(unknown_command(app_, {"run", "x"}), std::nullopt);
    EXPECT_EQ(unknown_command(app_, {"rum"}), "unknown command 'rum'; did you mean 'run'?");
}

TEST_F(UsageOfApp, MisspeltOptionIsTheCauseOfTheMissingOne) {
    EXPECT_EQ(complaint({"run", "--modle", "x"}),
              "unknown option '--modle'; did you mean '--model'?");
    EXPECT_EQ(command_path(app_), "dak run");
}

TEST_F(UsageOfApp, ValueWrittenIntoTheOption) {
    EXPECT_EQ(complaint({"run", "--model", "x", "--batch-szie=4"}),
              "unknown option '--batch-szie'; did you mean '--batch-size'?");
}

TEST_F(UsageOfApp, MissingAndMalformedValues) {
    EXPECT_NE(complaint({"run"}).find("--model is required"), std::string::npos);
    EXPECT_NE(complaint({"run", "--model", "x", "--batch-size", "many"}).find("many"),
              std::string::npos);
    EXPECT_EQ(complaint({"run", "--model", "x", "--batch-size", "4"}), "");
}

TEST_F(UsageOfApp, PathWithoutCommand) {
    complaint({"--wrong"});
    EXPECT_EQ(command_path(app_), "dak");
}

}  // namespace
}  // namespace dak
