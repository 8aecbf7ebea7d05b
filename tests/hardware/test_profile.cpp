#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "base/error.h"
#include "base/units.h"
#include "hardware/profile.h"

namespace dak {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string failure_of(const Json& json) {
    try {
        parse_hardware_profile(json, "machine.json");
    } catch (const Error& error) {
        return error.what();
    }
    return "no failure";
}

TEST(HardwareProfile, PresetsAreWholeAndSayWhereNumbersComeFrom) {
    const std::vector<std::string> names = hardware_preset_names();
    EXPECT_THAT(names,
                testing::IsSupersetOf({"gh200", "rtx-pro-6000", "h200-pcie", "h200-peer",
                                       "h100-pcie", "h100-sxm", "rtx-4090", "rtx-5090", "b200"}));
    for (const std::string& name : names) {
        const HardwareProfile preset = hardware_preset(name);
        EXPECT_EQ(preset.name, name);
        EXPECT_FALSE(preset.measured);
        EXPECT_GT(preset.local_gbps, preset.remote_direct_gbps) << name;
        EXPECT_LE(preset.local_gbps, preset.datasheet.local_gbps) << name;
        EXPECT_LE(preset.remote_direct_gbps, preset.datasheet.link_gbps) << name;
        const Json json = to_json(preset);
        for (const auto& [field, value] : json.items()) {
            const bool needs_source =
                value.is_number() && field != "schema_version" && field != "window_sum_gbps";
            if (needs_source || field == "staged_gbps" || field == "gemm_tflops") {
                EXPECT_TRUE(preset.sources.contains(field)) << name << ": " << field;
            }
        }
        // What is written can be read, and comes back the same.
        EXPECT_EQ(to_json(parse_hardware_profile(json, name)), json);
    }
    EXPECT_THROW(hardware_preset("h300"), Error);
}

TEST(HardwareProfile, RatesOfThePaper) {
    const HardwareProfile gh200 = hardware_preset("gh200");
    EXPECT_DOUBLE_EQ(gh200.local_gbps, 4000);
    EXPECT_DOUBLE_EQ(gh200.remote_direct_gbps, 450);
    const HardwareProfile rtx = hardware_preset("rtx-pro-6000");
    EXPECT_DOUBLE_EQ(rtx.local_gbps, 1800);
    EXPECT_DOUBLE_EQ(rtx.remote_direct_gbps, 64);
}

TEST(HardwareProfile, InterpolatesInTheLogarithm) {
    const Curve curve = {{1, 10}, {100, 30}};
    EXPECT_DOUBLE_EQ(interpolate(curve, 0.5), 10);
    EXPECT_DOUBLE_EQ(interpolate(curve, 10), 20);
    EXPECT_DOUBLE_EQ(interpolate(curve, 1e6), 30);
    EXPECT_THROW(interpolate({}, 1), Error);
}

TEST(HardwareProfile, RefusesWhatMakesNoSense) {
    const Json good = to_json(hardware_preset("gh200"));
    EXPECT_EQ(failure_of(good), "no failure");
    const auto with = [&](const char* field, const Json& value) {
        Json json = good;
        json[field] = value;
        return failure_of(json);
    };
    EXPECT_THAT(with("schema_version", 1), HasSubstr("schema version 1"));
    EXPECT_THAT(with("staging_contention", 0.5), HasSubstr("'staging_contention' must be from 1"));
    EXPECT_THAT(with("local_gbps", 0), HasSubstr("'local_gbps' must be from 0.001"));
    EXPECT_THAT(with("local_gbps", 1e-4), HasSubstr("local_gbps"));
    EXPECT_THAT(with("remote_direct_gbps", 1.1e6), HasSubstr("remote_direct_gbps"));
    EXPECT_THAT(with("small_kernel_us", 1e7), HasSubstr("small_kernel_us"));
    EXPECT_THAT(with("gemm_tflops", Json::parse(R"([{"tokens":8,"tflops":1e-300}])")),
                HasSubstr("tflops"));
    EXPECT_THAT(with("sms", 4097), HasSubstr("sms"));
    EXPECT_THAT(with("gpu_memory_bytes", int64_t{1} << 50), HasSubstr("gpu_memory_bytes"));
    EXPECT_THAT(with("window_bytes", int64_t{1} << 62), HasSubstr("window_bytes"));
    for (const char* remote : {"", "disk", "peer:", "peer:x", "peer:1234", "peer:0", "host "}) {
        EXPECT_THAT(with("remote", remote), HasSubstr("'remote' must be")) << remote;
    }
    EXPECT_THAT(with("local_gbps", "fast"), HasSubstr("local_gbps"));
    EXPECT_THAT(with("step_us", -1), HasSubstr("step_us"));
    EXPECT_THAT(with("sms", 0), HasSubstr("sms"));
    EXPECT_THAT(with("name", "red \x1b[31m"), HasSubstr("'name' has control characters"));
    EXPECT_THAT(with("kernel_us", Json::array()), HasSubstr("empty"));
    EXPECT_THAT(with("kernel_us", 3), HasSubstr("must be a list"));
    EXPECT_THAT(
        with("gemm_tflops", Json::parse(R"([{"tokens":8,"tflops":1},{"tokens":8,"tflops":2}])")),
        HasSubstr("must ascend"));
    Json missing = good;
    missing.erase("window_bytes");
    EXPECT_THAT(failure_of(missing), AllOf(StartsWith("machine.json"), HasSubstr("window_bytes")));
    EXPECT_THAT(failure_of(Json::array()), StartsWith("machine.json"));
}

TEST(HardwareProfile, FilesAreWrittenWholeAndReadBack) {
    const std::filesystem::path folder =
        std::filesystem::path(testing::TempDir()) / "dak-profile-test" / "deeper";
    const std::filesystem::path path = folder / "profile.json";
    HardwareProfile profile = hardware_preset("h200-peer");
    profile.window_sweep = {{4, 3, 196608, 4500.5, 51.25}};
    profile.window_sum_gbps = 4551.75;
    write_hardware_profile(path, profile);
    EXPECT_EQ(to_json(read_hardware_profile(path)), to_json(profile));
    write_hardware_profile(path, hardware_preset("gh200"));
    EXPECT_EQ(read_hardware_profile(path).name, "gh200");
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
    std::ofstream(path) << "{";
    EXPECT_THROW(read_hardware_profile(path), Error);
    EXPECT_THROW(write_hardware_profile(path / "under-a-file.json", profile), Error);
    std::filesystem::remove_all(folder.parent_path());
}

TEST(HardwareProfile, CachePathTellsMachinesApart) {
    const char* const before = std::getenv("XDG_CACHE_HOME");
    const std::string saved = before ? before : "";
    ::setenv("XDG_CACHE_HOME", "/cache", 1);
    EXPECT_EQ(profile_cache_path("GPU-1234/..", "580.65.06", "PCIe gen 5 x16", "peer:1"),
              "/cache/dak/profile-gpu-1234-..-580.65.06-pcie-gen-5-x16-peer-1.json");
    before ? ::setenv("XDG_CACHE_HOME", saved.c_str(), 1) : ::unsetenv("XDG_CACHE_HOME");
}

}  // namespace
}  // namespace dak
