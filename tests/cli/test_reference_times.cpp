#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "cli/reference_times.h"
#include "temp_folder.h"

namespace dak {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class ReferenceTimesFile : public ::testing::Test {
  protected:
    ReferenceTimes read(const std::string& text) const {
        return ReferenceTimes(folder_.write("rows.json", text));
    }

    testing_support::TempFolder folder_;
};

TEST_F(ReferenceTimesFile, FastestVariantOfTheSameWorkload) {
    const ReferenceTimes times = read(R"([
        {"model": "opt-30b", "batch": 8, "prompt": 32, "output": 32, "variant": "eager",
         "tpot_ms": 31},
        {"model": "opt-30b", "batch": 8, "prompt": 32, "output": 32, "variant": "compiled",
         "tpot_ms": 18.5},
        {"model": "opt-30b", "batch": 8, "prompt": 32, "output": 32, "variant": "failed",
         "tpot_ms": null},
        {"model": "opt-30b", "batch": 8, "prompt": 32, "output": 64, "variant": "eager",
         "tpot_ms": 40},
        {"model": "opt-13b", "batch": 8, "prompt": 32, "output": 32, "variant": "failed",
         "tpot_ms": null}])");
    const auto best = times.best("opt-30b", {8, 32, 32});
    ASSERT_TRUE(best);
    EXPECT_EQ(best->variant, "compiled");
    EXPECT_EQ(best->tpot_ms, 18.5);
    EXPECT_EQ(times.best("opt-30b", {8, 32, 64})->variant, "eager");
    EXPECT_FALSE(times.best("opt-30b", {16, 32, 32}));
    EXPECT_FALSE(times.best("opt-30b", {8, 33, 32}));
    EXPECT_FALSE(times.best("opt-13b", {8, 32, 32}));
    EXPECT_FALSE(read("[]").best("opt-30b", {8, 32, 32}));
    EXPECT_FALSE(ReferenceTimes().best("opt-30b", {8, 32, 32}));
}

TEST_F(ReferenceTimesFile, RefusesWhatIsNoListOfRows) {
    const auto refused = [&](const std::string& text, const std::string& part) {
        EXPECT_THAT([&] { read(text); },
                    ThrowsMessage<Error>(AllOf(HasSubstr("rows.json"), HasSubstr(part))))
            << text;
    };
    refused("{}", "not a list of rows");
    refused("[", "not valid JSON");
    refused("[[]]", "row 1");
    refused(R"([{"tpot": 1}])", "row 1: field 'tpot_ms' is missing");
    refused(R"([{"tpot_ms": 1}])", "row 1: field 'model' is missing");
    refused(R"([{"tpot_ms": null}, {"tpot_ms": 0}])", "row 2: 'tpot_ms' must be above zero");
    refused(R"([{"tpot_ms": "fast"}])", "'tpot_ms'");
    EXPECT_THROW(ReferenceTimes(folder_.path() / "absent.json"), Error);
}

}  // namespace
}  // namespace dak
