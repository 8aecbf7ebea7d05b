#include "model/tokenizer/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "base/error.h"
#include "model/tokenizer/utf8.h"

namespace dak {

namespace {

constexpr int32_t kNone = -1;
constexpr char32_t kShortCodePoints = 0x800;  // all of one or two bytes, the byte alphabet included

void refuse_affix(const JsonFields& model, std::string_view field) {
    const std::string affix = model.get_or<std::string>(field, "");
    require(affix.empty(), "{}: {} '{}' is not supported; only none is", model.where(), field,
            affix);
}

uint64_t pair_of(int32_t left, int32_t right) {
    return static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
}

}  // namespace

void MergeList::add(std::string_view left, std::string_view right) {
    require(text_.size() + left.size() + right.size() <= UINT32_MAX, "the merges exceed 4 GiB");
    text_ += left;
    ends_.push_back(static_cast<uint32_t>(text_.size()));
    text_ += right;
    ends_.push_back(static_cast<uint32_t>(text_.size()));
}

bool MergeList::add_joined(std::string_view merge) {
    const size_t space = merge.find(' ');
    if (space == std::string_view::npos || merge.find(' ', space + 1) != std::string_view::npos) {
        return false;
    }
    add(merge.substr(0, space), merge.substr(space + 1));
    return true;
}

std::string_view MergeList::part(size_t index) const {
    const size_t begin = begin_of(index);
    return std::string_view(text_).substr(begin, ends_[index] - begin);
}

std::string_view MergeList::merged(size_t rank) const {
    const size_t begin = begin_of(2 * rank);
    return std::string_view(text_).substr(begin, ends_[2 * rank + 1] - begin);
}

Bpe::Bpe(const JsonFields& model, Vocabulary vocabulary, const MergeList& merges)
    : vocabulary_(std::move(vocabulary)),
      fuse_unknown_(model.get_or("fuse_unk", false)),
      byte_fallback_(model.get_or("byte_fallback", false)),
      ignore_merges_(model.get_or("ignore_merges", false)) {
    require(model.get_or("dropout", 0.0) == 0.0,
            "{}: dropout is not supported; set it to null for inference", model.where());
    refuse_affix(model, "continuing_subword_prefix");
    refuse_affix(model, "end_of_word_suffix");
    unknown_token_ = model.maybe<std::string>("unk_token");
    if (unknown_token_) unknown_id_ = vocabulary_.find(*unknown_token_);
    read_merges(merges, model.where());

    short_ids_.resize(kShortCodePoints);
    for (char32_t code_point = 0; code_point < kShortCodePoints; ++code_point) {
        std::string character;
        append_utf8(code_point, character);
        short_ids_[code_point] = vocabulary_.find(character).value_or(kNone);
    }
    for (int byte = 0; byte < 256; ++byte) {
        byte_ids_.push_back(vocabulary_.find(fmt::format("<0x{:02X}>", byte)).value_or(kNone));
    }
}

void Bpe::read_merges(const MergeList& merges, const std::string& where) {
    merges_.resize(std::bit_ceil(2 * merges.size() + 1));
    const auto id_of = [&](std::string_view token, size_t rank) {
        const auto id = vocabulary_.find(token);
        require(id.has_value(), "{}: merge {} ('{}' and '{}') needs '{}', not in the vocabulary",
                where, rank, merges.left(rank), merges.right(rank), token);
        return *id;
    };
    for (size_t rank = 0; rank < merges.size(); ++rank) {
        const uint64_t pair =
            pair_of(id_of(merges.left(rank), rank), id_of(merges.right(rank), rank));
        merges_[slot_of(pair)] = {pair, static_cast<int32_t>(rank),
                                  id_of(merges.merged(rank), rank)};
    }
}

/// Where `pair` stands in merges_, or the free slot where it would be put.
size_t Bpe::slot_of(uint64_t pair) const {
    const size_t mask = merges_.size() - 1;
    // Fibonacci hashing: the product's high bits depend on every bit of the pair.
    size_t slot = (pair * 0x9E3779B97F4A7C15) >> 32 & mask;
    while (merges_[slot].pair != pair && merges_[slot].pair != kNoPair) slot = (slot + 1) & mask;
    return slot;
}

const Bpe::Merge* Bpe::find_merge(int32_t left, int32_t right) const {
    const Merge& merge = merges_[slot_of(pair_of(left, right))];
    return merge.pair == kNoPair ? nullptr : &merge;
}

void Bpe::encode(std::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const {
    if (ignore_merges_) {
        if (const auto id = vocabulary_.find(word)) {
            ids.push_back(*id);
            return;
        }
    }
    require(word.size() <= INT32_MAX, "a word of {} bytes exceeds {} bytes", word.size(),
            INT32_MAX);
    split_characters(word, scratch.symbols);
    if (scratch.symbols.empty()) return;
    merge_all(scratch);
    // The first symbol is never joined to one before it, so the chain begins there.
    for (int32_t i = 0; i != kNone; i = scratch.symbols[static_cast<size_t>(i)].next) {
        ids.push_back(scratch.symbols[static_cast<size_t>(i)].id);
    }
}

int32_t Bpe::character_id(std::string_view character) const {
    if (character.size() > 2) return vocabulary_.find(character).value_or(kNone);
    size_t pos = 0;
    return short_ids_[next_code_point(character, pos)];
}

/// Adds a character's bytes as tokens <0x..>; false, and nothing added, when one has no token.
bool Bpe::add_bytes(std::string_view character, std::vector<Scratch::Symbol>& symbols) const {
    const auto byte_id = [&](char byte) { return byte_ids_[static_cast<unsigned char>(byte)]; };
    if (std::any_of(character.begin(), character.end(),
                    [&](char byte) { return byte_id(byte) == kNone; })) {
        return false;
    }
    for (const char byte : character) symbols.push_back({byte_id(byte)});
    return true;
}

void Bpe::split_characters(std::string_view word, std::vector<Scratch::Symbol>& symbols) const {
    symbols.clear();
    // An unknown stays pending until the next known character, and byte tokens do not end it: so
    // the reference implementation orders them.
    bool pending_unknown = false;
    const auto flush_unknown = [&] {
        if (pending_unknown) symbols.push_back({*unknown_id_});
        pending_unknown = false;
    };
    for (size_t pos = 0; pos < word.size();) {
        const std::string_view character = word.substr(pos, utf8_length(word[pos]));
        pos += character.size();
        const int32_t id = character_id(character);
        if (id != kNone) {
            flush_unknown();
            symbols.push_back({id});
        } else if (!byte_fallback_ || !add_bytes(character, symbols)) {
            if (!unknown_token_) continue;
            require(unknown_id_.has_value(),
                    "the tokenizer has no token for '{}', and its unk_token '{}' is none either",
                    character, *unknown_token_);
            if (!fuse_unknown_) flush_unknown();
            pending_unknown = true;
        }
    }
    flush_unknown();
    const auto count = static_cast<int32_t>(symbols.size());
    for (int32_t i = 0; i < count; ++i) {
        symbols[static_cast<size_t>(i)].previous = i - 1;
        symbols[static_cast<size_t>(i)].next = i + 1 < count ? i + 1 : kNone;
    }
}

/// Queues the merge of the symbol at `position` with the one behind it, if there is one.
void Bpe::push_candidate(Scratch& scratch, int32_t position) const {
    const Scratch::Symbol& left = scratch.symbols[static_cast<size_t>(position)];
    if (left.next == kNone) return;
    const Merge* merge = find_merge(left.id, scratch.symbols[static_cast<size_t>(left.next)].id);
    if (!merge) return;
    const auto order = static_cast<uint64_t>(merge->rank) << 32 | static_cast<uint32_t>(position);
    scratch.queue.push_back({order, merge->merged_id});
    std::push_heap(scratch.queue.begin(), scratch.queue.end(), std::greater<>());
}

void Bpe::merge_all(Scratch& scratch) const {
    auto& symbols = scratch.symbols;
    auto& queue = scratch.queue;
    constexpr int32_t kRemoved = -1;
    queue.clear();
    const auto count = static_cast<int32_t>(symbols.size());
    for (int32_t i = 0; i + 1 < count; ++i) push_candidate(scratch, i);
    while (!queue.empty()) {
        std::pop_heap(queue.begin(), queue.end(), std::greater<>());
        const auto [order, merged_id] = queue.back();
        queue.pop_back();
        const auto position = static_cast<int32_t>(order & 0xFFFFFFFF);
        Scratch::Symbol& left = symbols[static_cast<size_t>(position)];
        if (left.id == kRemoved || left.next == kNone) continue;
        Scratch::Symbol& right = symbols[static_cast<size_t>(left.next)];
        // The pair may have changed since it was queued.
        const Merge* merge = find_merge(left.id, right.id);
        if (!merge || merge->merged_id != merged_id) continue;
        left.id = merged_id;
        left.next = right.next;
        right.id = kRemoved;
        if (left.next != kNone) symbols[static_cast<size_t>(left.next)].previous = position;
        if (left.previous != kNone) push_candidate(scratch, left.previous);
        push_candidate(scratch, position);
    }
}

}  // namespace dak
