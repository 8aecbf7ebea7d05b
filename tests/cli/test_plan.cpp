#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "base/json.h"
#include "hardware/profile.h"
#include "run_cli.h"

namespace dak {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

CliResult plan(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "plan");
    return run_cli(arguments);
}

/// Of a refused command: its only output, one line.
std::string refusal(const std::vector<std::string>& arguments, int status = 1) {
    const CliResult result = plan(arguments);
    EXPECT_EQ(result.status, status);
    EXPECT_THAT(result.out, IsEmpty());
    return result.err;
}

TEST(CliPlan, TableOfABuiltInModelOnABuiltInMachine) {
    const CliResult result =
        plan({"opt-30b", "--hardware", "h200-pcie", "--gpu-memory", "40GiB", "--batch", "8"});
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_THAT(result.err, IsEmpty());
    EXPECT_THAT(result.out, AllOf(HasSubstr("opt-30b on h200-pcie"), HasSubstr("layers.*.up"),
                                  HasSubstr("TPOT"), HasSubstr("of 40.0 GiB"), HasSubstr("why")));
}

TEST(CliPlan, SweepPeaksAtTheTurningPoint) {
    const auto plot = std::filesystem::path(testing::TempDir()) / "dak-sweep.svg";
    const std::vector<std::string> base = {"opt-30b", "--batch",    "8",     "--prompt", "32",
                                           "--sweep", "--hardware", "gh200", "--plot",   plot};
    const CliResult text = plan(base);
    ASSERT_EQ(text.status, 0) << text.err;
    EXPECT_THAT(text.out, testing::ContainsRegex("10\\.1%.*peak"));
    EXPECT_THAT(read_text_file(plot), HasSubstr("peak at 10.1%"));
    std::filesystem::remove(plot);

    std::vector<std::string> with_json = base;
    with_json.emplace_back("--json");
    const Json json = parse_json(plan(with_json).out, "sweep");
    EXPECT_EQ(json.front().at("offload_ratio"), 0.0);
    EXPECT_EQ(json.back().at("offload_ratio"), 1.0);
    std::filesystem::remove(plot);
}

TEST(CliPlan, EveryOptionReachesThePlanner) {
    const CliResult result = plan({"llama-3-8b",
                                   "--hardware",
                                   "h200-pcie",
                                   "--batch",
                                   "4",
                                   "--prompt",
                                   "100",
                                   "--output",
                                   "28",
                                   "--gpu-memory",
                                   "40GiB",
                                   "--place",
                                   "layers.*=local",
                                   "--place",
                                   "kv=0.5",
                                   "--kv-dtype",
                                   "fp16",
                                   "--offload-ratio",
                                   "0.1",
                                   "--transport",
                                   "staged",
                                   "--json",
                                   "--host-memory",
                                   "64GB",
                                   "--prefill-chunk",
                                   "256",
                                   "--remote",
                                   "host"});
    ASSERT_EQ(result.status, 0) << result.err;
    const Json json = parse_json(result.out, "plan");
    EXPECT_EQ(json.at("model"), "llama-3-8b");
    EXPECT_EQ(json.at("batch"), 4);
    EXPECT_EQ(json.at("gpu_budget_bytes"), int64_t{40} << 30);
    EXPECT_EQ(json.at("remote_budget_bytes"), 64'000'000'000);
    EXPECT_EQ(json.at("kv_remote_pages"), 4);
    EXPECT_EQ(json.at("kv_local_pages"), 4);
    EXPECT_NEAR(json.at("offload_ratio").get<double>(), 0.1, 1e-6);
    for (const Json& operation : json.at("operations")) {
        if (operation.at("name").get<std::string>().starts_with("layers.")) {
            EXPECT_EQ(operation.at("remote_bytes"), 0);
        }
    }
}

TEST(CliPlan, ReadsAProfileFileAndAModelFolder) {
    const auto path = std::filesystem::path(testing::TempDir()) / "dak-machine.json";
    HardwareProfile profile = hardware_preset("gh200");
    profile.name = "my machine";
    write_hardware_profile(path, profile);
    const CliResult result =
        plan({DAK_TEST_DATA "/golden/mistral", "--hardware", path, "--prompt", "8"});
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("on my machine"));
    std::filesystem::remove(path);
}

TEST(CliPlan, DtypeStandsInForOneThatConfigJsonLacks) {
    const auto folder = std::filesystem::path(testing::TempDir()) / "dak-plan-no-dtype";
    std::filesystem::create_directories(folder);
    Json config = parse_json(
        read_text_file(std::filesystem::path(DAK_TEST_DATA) / "golden/mistral/config.json"), "");
    config.erase("torch_dtype");
    config.erase("dtype");
    std::ofstream(folder / "config.json") << config.dump();
    const CliResult result =
        plan({folder, "--hardware", "gh200", "--prompt", "8", "--dtype", "fp16"});
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_THAT(refusal({folder, "--hardware", "gh200", "--prompt", "8"}),
                HasSubstr("no weights there"));
    std::filesystem::remove_all(folder);
}

TEST(CliPlan, RefusesInOneLine) {
    EXPECT_THAT(refusal({"opt-30b", "--hardware", "gh200", "--gpu-memory", "1GiB"}),
                HasSubstr("opt-30b with batch 8"));
    EXPECT_THAT(refusal({"opt-31b", "--hardware", "gh200"}), HasSubstr("built-in model"));
    EXPECT_THAT(refusal({"opt-30b", "--hardware", "gh201"}), HasSubstr("built-in machine"));
    EXPECT_THAT(refusal({"opt-30b", "--hardware", "gh200", "--gpu-memory", "1GiB"}),
                HasSubstr("smallest GPU budget that would do"));
    EXPECT_THAT(refusal({"opt-30b", "--hardware", "gh200", "--gpu-memory", "much"}),
                HasSubstr("--gpu-memory"));
    EXPECT_THAT(refusal({"opt-30b", "--hardware", "gh200", "--prompt", "2048"}),
                HasSubstr("context of 2048"));
    EXPECT_THAT(refusal({"opt-30b", "--hardware", "gh200", "--place", "up"}),
                HasSubstr("PATTERN=remote"));
    EXPECT_THAT(refusal({"opt-30b", "--hardware", "gh200", "--plot", "x.svg"}),
                HasSubstr("--sweep"));
    EXPECT_THAT(refusal({"opt-30b", "--hardware", "gh200", "--sweep", "--offload-ratio", "0.1"}),
                HasSubstr("--offload-ratio"));
    EXPECT_THAT(refusal({"opt-30b", "--hardware", "gh200", "--remote", "peer:1"}),
                HasSubstr("remote tier host"));
    EXPECT_THAT(refusal({"opt-30b", "--remote", "disk"}), HasSubstr("peer:N"));
    {
        const ScopedLibraryPath two_gpus(DAK_FAKE_NVML_DIR);
        EXPECT_THAT(refusal({"opt-30b", "--remote", "peer:2"}),
                    HasSubstr("there is no GPU 2; this machine has 2"));
        EXPECT_THAT(refusal({"opt-30b", "--remote", "peer:0"}), HasSubstr("the GPU that computes"));
    }
    refusal({"opt-30b", "--batch", "0"}, 2);
    refusal({}, 2);
}

}  // namespace
}  // namespace dak
