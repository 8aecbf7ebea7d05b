#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"

namespace dak {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(Json, ErrorNamesLineAndColumn) {
    EXPECT_THAT([] { parse_json("{\n  \"a\": ]\n}", "config.json"); },
                ThrowsMessage<Error>(HasSubstr("config.json: not valid JSON at line 2, column 8")));
}

TEST(Json, RefusesDeepNesting) {
    EXPECT_THAT([] { parse_json(std::string(100'000, '['), "x.json"); },
                ThrowsMessage<Error>(HasSubstr("x.json: nested deeper")));
}

TEST(Json, FilterDropsWhatItRefuses) {
    std::string seen;
    const Json kept = parse_json(R"({"a": {"x": 1, "y": 2}, "b": [3, 4]})", "x.json",
                                 [&](int depth, Json::parse_event_t event, Json& parsed) {
                                     const bool inner = depth == 2;
                                     if (inner && event == Json::parse_event_t::key) {
                                         seen += parsed.get<std::string>();
                                         return parsed != "x";
                                     }
                                     return !(event == Json::parse_event_t::value && parsed == 4);
                                 });
    EXPECT_EQ(kept, Json({{"a", {{"y", 2}}}, {"b", {3}}}));
    EXPECT_EQ(seen, "xy");
    EXPECT_THAT([] { parse_json("1", "x.json", [](auto...) -> bool { fail("no number"); }); },
                ThrowsMessage<Error>(HasSubstr("x.json: no number")));
}

TEST(Json, FieldsCheckTypes) {
    const Json object = {{"n", 3}, {"f", 1.5}, {"whole", 4.0}, {"s", "x"}, {"none", nullptr}};
    const JsonFields fields(object, "config.json");
    EXPECT_EQ(fields.get<int64_t>("n"), 3);
    EXPECT_EQ(fields.get<int64_t>("whole"), 4);
    EXPECT_EQ(fields.get<double>("n"), 3.0);
    EXPECT_EQ(fields.get_or<int64_t>("none", 7), 7);
    EXPECT_THAT([&] { fields.get<int64_t>("f"); },
                ThrowsMessage<Error>(HasSubstr("field 'f' must be an integer, found 1.5")));
    EXPECT_THAT([&] { fields.get<std::string>("absent"); },
                ThrowsMessage<Error>(HasSubstr("field 'absent' is missing")));
    EXPECT_THROW(fields.get<bool>("s"), Error);
}

TEST(Json, FieldsRefuseOtherThanObjects) {
    const Json array = Json::array();
    EXPECT_THROW(JsonFields(array, "x"), Error);
}

}  // namespace
}  // namespace dak
