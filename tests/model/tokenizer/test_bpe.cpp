#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "model/tokenizer/bpe.h"
#include "tiny_tokenizer.h"

namespace dak {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

TEST(Bpe, LowestRankFirstThenLeftmost) {
    TinyTokenizer tiny({"a", "b", "c", "ab", "bc", "abc"});
    tiny.set_model("merges", R"(["b c", "a b", "a bc"])");
    EXPECT_THAT(tiny.build().encode("abc"), ElementsAre(5));
    tiny.set_model("merges", R"([["a", "b"], ["b", "c"], ["a", "bc"]])");
    EXPECT_THAT(tiny.build().encode("abc"), ElementsAre(3, 2));

    TinyTokenizer doubles({"a", "aa", "aaa"});
    doubles.set_model("merges", R"([["a", "a"], ["aa", "a"]])");
    EXPECT_THAT(doubles.build().encode("aaaaa"), ElementsAre(1, 2));
}

/// The definition, word by word: join the leftmost pair of the lowest rank until there is none.
std::vector<std::string> merge_slowly(
    std::vector<std::string> symbols,
    const std::vector<std::pair<std::string, std::string>>& merges) {
    for (;;) {
        size_t best_rank = merges.size();
        size_t best = 0;
        for (size_t i = 0; i + 1 < symbols.size(); ++i) {
            for (size_t rank = 0; rank < best_rank; ++rank) {
                if (merges[rank] == std::pair(symbols[i], symbols[i + 1])) {
                    best_rank = rank;
                    best = i;
                }
            }
        }
        if (best_rank == merges.size()) return symbols;
        symbols[best] += symbols[best + 1];
        symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
    }
}

TEST(Bpe, EqualsTheDefinitionOnRandomMerges) {
    std::mt19937 random(1);
    const auto below = [&](size_t limit) { return random() % limit; };
    for (int round = 0; round < 200; ++round) {
        std::vector<std::string> tokens = {"a", "b", "c"};
        std::vector<std::pair<std::string, std::string>> merges;
        while (tokens.size() < 20) {
            const auto merge =
                std::pair(tokens[below(tokens.size())], tokens[below(tokens.size())]);
            const std::string merged = merge.first + merge.second;
            if (std::find(tokens.begin(), tokens.end(), merged) != tokens.end()) continue;
            tokens.push_back(merged);
            merges.push_back(merge);
        }
        TinyTokenizer tiny(tokens);
        tiny.json["model"]["merges"] = merges;
        const Tokenizer tokenizer = tiny.build();
        for (int word = 0; word < 20; ++word) {
            std::vector<std::string> letters(below(25));
            for (auto& letter : letters) letter = "abc"[below(3)];
            const std::string text = std::accumulate(letters.begin(), letters.end(), std::string());
            std::vector<std::string> encoded;
            for (const int32_t id : tokenizer.encode(text)) {
                encoded.emplace_back(tokenizer.id_to_token(id));
            }
            ASSERT_EQ(encoded, merge_slowly(letters, merges)) << tiny.json.dump();
        }
    }
}

TEST(Bpe, LongWordsTakeNoQuadraticTime) {
    TinyTokenizer tiny({"a", "aa", "aaaa"});
    tiny.set_model("merges", R"([["a", "a"], ["aa", "aa"]])");
    // A quadratic algorithm would need minutes.
    EXPECT_EQ(tiny.build().encode(std::string(1 << 20, 'a')).size(), 1 << 18);
}

TEST(Bpe, UnknownCharacters) {
    TinyTokenizer tiny({"<unk>", "a", "<0xC3>", "<0xA9>"});
    EXPECT_THAT(tiny.build().encode("axya"), ElementsAre(1, 1));  // dropped: there is no token
    tiny.set_model("unk_token", R"("<unk>")");
    EXPECT_THAT(tiny.build().encode("axya"), ElementsAre(1, 0, 0, 1));
    tiny.set_model("fuse_unk", "true");
    EXPECT_THAT(tiny.build().encode("axya"), ElementsAre(1, 0, 1));
    tiny.set_model("byte_fallback", "true");
    EXPECT_THAT(tiny.build().encode("aéa"), ElementsAre(1, 2, 3, 1));
    EXPECT_THAT(tiny.build().encode("è"), ElementsAre(0));  // one byte of two has a token
    EXPECT_THAT(tiny.build().encode("xé"), ElementsAre(2, 3, 0));
    tiny.set_model("unk_token", R"("[UNK]")");
    EXPECT_THAT(tiny.build().encode("é"), ElementsAre(2, 3));
    EXPECT_THAT([&] { tiny.build().encode("ax"); },
                ThrowsMessage<Error>(HasSubstr("no token for 'x', and its unk_token '[UNK]'")));
}

TEST(Bpe, IgnoreMergesTakesWholeWords) {
    TinyTokenizer tiny({"a", "b", "ab"});
    EXPECT_THAT(tiny.build().encode("ab"), ElementsAre(0, 1));
    tiny.set_model("ignore_merges", "true");
    EXPECT_THAT(tiny.build().encode("ab"), ElementsAre(2));
    EXPECT_THAT(tiny.build().encode(""), IsEmpty());
}

TEST(Bpe, RefusesByName) {
    const auto refuses = [](std::string_view field, std::string_view value, const auto& message) {
        TinyTokenizer tiny({"a", "b"});
        tiny.set_model(field, value);
        EXPECT_THAT([&] { tiny.build(); }, ThrowsMessage<Error>(HasSubstr(message)));
    };
    refuses("type", R"("Unigram")",
            "tokenizer.json: model type 'Unigram' is not supported; only BPE is");
    refuses("dropout", "0.1", "tokenizer.json: model: dropout is not supported");
    refuses("continuing_subword_prefix", R"("##")", "continuing_subword_prefix '##'");
    refuses("end_of_word_suffix", R"("</w>")", "end_of_word_suffix '</w>'");
    refuses("merges", R"(["a b"])", "merge 0 ('a' and 'b') needs 'ab', not in the vocabulary");
    refuses("merges", R"([["a", "c"]])", "merge 0 ('a' and 'c') needs 'c'");
    refuses("merges", R"(["a b c"])", "model.merges: entry 0 is neither");
    refuses("merges", R"(["ab"])", "model.merges: entry 0 is neither");
    refuses("merges", R"([["a", "b", "a"]])", "model.merges: entry 0 is neither");
    refuses("merges", R"([["a"]])", "model.merges: entry 0 is neither");
    refuses("merges", R"([[["a"], "b"]])", "model.merges: entry 0 is neither");
    refuses("merges", R"([{"a": "b"}])", "model.merges: entry 0 is neither");
    refuses("merges", R"([1])", "model.merges: entry 0 is neither");
    refuses("merges", "{}", "field 'merges' is missing or no array");
    refuses("vocab", "[]", "field 'vocab' is missing or no object");
    refuses("vocab", R"({"a": "b"})", "the id of token 'a' must be an integer");
    refuses("vocab", R"({"a": [0]})", "the id of token 'a' must be an integer");
    refuses("vocab", R"({"a": 18446744073709551615})", "token 'a' has id");
    refuses("vocab", R"({"a": -1})", "token 'a' has id -1");
}

}  // namespace
}  // namespace dak
