#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "model/tokenizer/normalizer.h"
#include "model/tokenizer/vocabulary.h"

namespace dak {

/// The "added_tokens" of a tokenizer file: tokens found in the text as a whole, before it is split
/// into words. Immutable once loaded, and thread-safe.
class AddedTokens {
  public:
    /// Reads one entry. Its id is the model's when `vocabulary` has the token, else the next free
    /// one: what the file says of it does not count, as in the reference implementation.
    void add(const JsonFields& token, const Vocabulary& vocabulary);

    /// Call once, after the last add().
    void build(const Normalizer& normalizer);

    std::optional<int32_t> find(std::string_view content) const;

    /// The token of an id, or null.
    const std::string* content(int32_t id) const;

    /// The token as it is decoded: normalized if it is found in normalized text.
    const std::string* decoded(int32_t id) const;

    bool is_special(int32_t id) const;

    /// The greatest id + 1, 0 when there is none.
    int32_t id_limit() const { return tokens_.empty() ? 0 : tokens_.rbegin()->first + 1; }

    /// A stretch of a text: an added token, or text in between (id -1).
    struct Section {
        size_t begin = 0;
        size_t end = 0;
        int32_t id = -1;
    };

    /// Splits `text` at the tokens that are looked for before (`normalized` false) or after (true)
    /// normalization: leftmost first, longest first. No section is empty.
    std::vector<Section> split(std::string_view text, bool normalized) const;

  private:
    struct Token {
        std::string content;
        std::string decoded;
        bool single_word = false;
        bool lstrip = false;
        bool rstrip = false;
        bool normalized = false;
        bool special = false;
    };

    /// A trie over bytes.
    class Trie {
      public:
        Trie() { roots_.fill(kNone); }

        void add(std::string_view text, int32_t id);

        struct Found {
            size_t length = 0;  ///< 0: nothing found
            int32_t id = -1;
        };
        /// The longest entry that stands at text[pos].
        Found longest_at(std::string_view text, size_t pos) const;

      private:
        static constexpr int32_t kNone = -1;
        struct Node {
            char byte = 0;
            int32_t id = kNone;
            int32_t first_child = kNone;
            int32_t next_sibling = kNone;
        };
        /// The child of `node`, kNone for the root, that `byte` leads to, or kNone.
        int32_t child(int32_t node, char byte) const;

        std::array<int32_t, 256> roots_;  // nodes of first bytes
        std::vector<Node> nodes_;
    };

    std::map<int32_t, Token> tokens_;
    std::map<std::string, int32_t, std::less<>> ids_;
    std::optional<int32_t> next_id_;
    Trie raw_;
    Trie normalized_;
};

}  // namespace dak
