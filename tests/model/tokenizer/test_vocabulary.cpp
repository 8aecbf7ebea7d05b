#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "model/tokenizer/vocabulary.h"

namespace dak {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(Vocabulary, FindsBothWays) {
    Vocabulary vocabulary;
    EXPECT_FALSE(vocabulary.find("a"));
    for (int i = 0; i < 5000; ++i) vocabulary.add("token" + std::to_string(i), 3 * i);
    vocabulary.add("", 1);
    EXPECT_EQ(vocabulary.size(), 5001);
    EXPECT_EQ(vocabulary.id_limit(), 3 * 4999 + 1);
    for (int i = 0; i < 5000; ++i) {
        ASSERT_EQ(vocabulary.find("token" + std::to_string(i)), 3 * i);
        ASSERT_EQ(vocabulary.token(3 * i), "token" + std::to_string(i));
    }
    EXPECT_EQ(vocabulary.find(""), 1);
    EXPECT_FALSE(vocabulary.find("token5000"));
    EXPECT_TRUE(vocabulary.contains(1));
    EXPECT_FALSE(vocabulary.contains(2));
    EXPECT_FALSE(vocabulary.contains(-1));
    EXPECT_FALSE(vocabulary.contains(15000));
    EXPECT_EQ(vocabulary.token(2), "");
}

TEST(Vocabulary, RefusesDoublesAndWildIds) {
    Vocabulary vocabulary;
    vocabulary.add("a", 0);
    EXPECT_THAT([&] { vocabulary.add("b", 0); },
                ThrowsMessage<Error>(HasSubstr("tokens 'a' and 'b' have the same id 0")));
    EXPECT_THAT([&] { vocabulary.add("a", 1); },
                ThrowsMessage<Error>(HasSubstr("token 'a' occurs twice, as 0 and 1")));
    EXPECT_THAT([&] { vocabulary.add("c", -1); }, ThrowsMessage<Error>(HasSubstr("id -1")));
    EXPECT_THROW(vocabulary.add("c", int64_t{1} << 40), Error);
    EXPECT_FALSE(vocabulary.find("b"));
    EXPECT_EQ(vocabulary.size(), 1);
}

}  // namespace
}  // namespace dak
