#include "model/tokenizer/vocabulary.h"

#include <algorithm>
#include <functional>

#include "base/error.h"

namespace dak {

namespace {

constexpr int32_t kFree = -1;
constexpr size_t kFirstSlots = 1024;

// Tables are indexed by id: a corrupt file must not make them huge. The largest vocabularies known
// have some 260,000 tokens.
constexpr int64_t kMaxId = (1 << 22) - 1;

}  // namespace

void Vocabulary::add(std::string_view token, int64_t id) {
    require(id >= 0 && id <= kMaxId, "token '{}' has id {}, outside 0 .. {}", token, id, kMaxId);
    require(text_.size() + token.size() < kAbsent, "the vocabulary's text exceeds 4 GiB");
    const auto narrow_id = static_cast<int32_t>(id);
    require(!contains(narrow_id), "tokens '{}' and '{}' have the same id {}",
            this->token(narrow_id), token, id);
    if (2 * (static_cast<size_t>(size_) + 1) > slots_.size()) grow_slots();
    const size_t slot = slot_of(token);
    require(slots_[slot] == kFree, "token '{}' occurs twice, as {} and {}", token, slots_[slot],
            id);
    if (narrow_id >= id_limit()) spans_.resize(static_cast<size_t>(id) + 1);
    spans_[static_cast<size_t>(id)] = {static_cast<uint32_t>(text_.size()),
                                       static_cast<uint32_t>(token.size())};
    text_ += token;
    slots_[slot] = narrow_id;
    ++size_;
}

std::optional<int32_t> Vocabulary::find(std::string_view token) const {
    if (slots_.empty()) return {};
    const int32_t id = slots_[slot_of(token)];
    return id == kFree ? std::nullopt : std::optional(id);
}

std::string_view Vocabulary::token(int32_t id) const {
    if (!contains(id)) return {};
    const Span span = spans_[static_cast<size_t>(id)];
    return std::string_view(text_).substr(span.begin, span.length);
}

/// Where `token` stands in slots_, or the free slot where it would be put.
size_t Vocabulary::slot_of(std::string_view token) const {
    const size_t mask = slots_.size() - 1;
    size_t slot = std::hash<std::string_view>{}(token)&mask;
    while (slots_[slot] != kFree && this->token(slots_[slot]) != token) slot = (slot + 1) & mask;
    return slot;
}

void Vocabulary::grow_slots() {
    const std::vector<int32_t> old = std::move(slots_);
    slots_.assign(std::max(kFirstSlots, 2 * old.size()), kFree);
    for (const int32_t id : old) {
        if (id != kFree) slots_[slot_of(token(id))] = id;
    }
}

}  // namespace dak
