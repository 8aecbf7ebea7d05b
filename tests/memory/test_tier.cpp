#include <gtest/gtest.h>

#include "memory/tier.h"

namespace dak {
namespace {

TEST(Tier, RemoteTiersByName) {
    EXPECT_TRUE(is_remote_tier("host"));
    EXPECT_EQ(peer_of("host"), std::nullopt);
    EXPECT_TRUE(is_remote_tier("peer:12"));
    EXPECT_EQ(peer_of("peer:0"), 0);
    EXPECT_EQ(peer_of("peer:12"), 12);
    for (const char* text : {"", "Host", "host ", "peer", "peer:", "peer:x", "peer:1x", "peer:-1",
                             "peer:+1", "peer: 1", "peer:1000", "peer:99999999999999999999"}) {
        EXPECT_FALSE(is_remote_tier(text)) << text;
        EXPECT_EQ(peer_of(text), std::nullopt) << text;
    }
}

}  // namespace
}  // namespace dak
