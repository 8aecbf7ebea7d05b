#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "model/tokenizer/vocabulary.h"

namespace dak {

/// The merges of a tokenizer file as text, in order of rank, before their ids are known.
class MergeList {
  public:
    void add(std::string_view left, std::string_view right);

    /// Adds a merge written as "left right"; false when `merge` is not of this form.
    bool add_joined(std::string_view merge);

    size_t size() const { return ends_.size() / 2; }
    std::string_view left(size_t rank) const { return part(2 * rank); }
    std::string_view right(size_t rank) const { return part(2 * rank + 1); }

    /// Left and right as one text.
    std::string_view merged(size_t rank) const;

  private:
    size_t begin_of(size_t part) const { return part == 0 ? 0 : ends_[part - 1]; }
    std::string_view part(size_t index) const;

    std::string text_;
    std::vector<uint32_t> ends_;  // of left and right of each merge in text_
};

/// Byte-pair encoding of one word: starts from its characters and joins, again and again, the
/// neighbours whose merge has the lowest rank. Immutable and thread-safe.
class Bpe {
  public:
    /// `model` is the tokenizer file's "model" object less vocabulary and merges. Throws Error on
    /// what is not supported and on merges outside the vocabulary.
    Bpe(const JsonFields& model, Vocabulary vocabulary, const MergeList& merges);

    const Vocabulary& vocabulary() const { return vocabulary_; }

    /// Memory that encode() reuses from call to call.
    struct Scratch {
        struct Symbol {
            int32_t id = 0;
            int32_t previous = 0;
            int32_t next = 0;
        };
        struct Candidate {
            uint64_t order = 0;  // rank, then position
            int32_t merged_id = 0;
            bool operator>(const Candidate& other) const { return order > other.order; }
        };
        std::vector<Symbol> symbols;
        std::vector<Candidate> queue;
    };

    /// Appends the ids of `word`, valid UTF-8, to `ids`. n log n in its length.
    /// Throws Error on an unknown character when the file names an unk_token that does not exist,
    /// and on a word of 2^31 bytes.
    void encode(std::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const;

  private:
    struct Merge {
        uint64_t pair = kNoPair;
        int32_t rank = 0;
        int32_t merged_id = 0;
    };
    static constexpr uint64_t kNoPair = UINT64_MAX;

    void read_merges(const MergeList& merges, const std::string& where);
    size_t slot_of(uint64_t pair) const;
    const Merge* find_merge(int32_t left, int32_t right) const;
    int32_t character_id(std::string_view character) const;
    bool add_bytes(std::string_view character, std::vector<Scratch::Symbol>& symbols) const;
    void split_characters(std::string_view word, std::vector<Scratch::Symbol>& symbols) const;
    void push_candidate(Scratch& scratch, int32_t position) const;
    void merge_all(Scratch& scratch) const;

    Vocabulary vocabulary_;
    std::vector<Merge> merges_;       // open addressing by pair; a power of two
    std::vector<int32_t> short_ids_;  // of characters of one or two bytes, -1 = none
    std::vector<int32_t> byte_ids_;   // of the tokens <0x00> .. <0xFF>, -1 = none
    std::optional<std::string> unknown_token_;
    std::optional<int32_t> unknown_id_;  // nothing when the vocabulary lacks unknown_token_
    bool fuse_unknown_ = false;
    bool byte_fallback_ = false;
    bool ignore_merges_ = false;
};

}  // namespace dak
