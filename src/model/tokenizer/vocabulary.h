#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dak {

/// Tokens and their ids, in both directions, packed: about 16 bytes a token beside its text.
class Vocabulary {
  public:
    /// Throws Error when the token or its id is there already, or the id is no plausible one.
    void add(std::string_view token, int64_t id);

    std::optional<int32_t> find(std::string_view token) const;

    bool contains(int32_t id) const {
        return id >= 0 && id < id_limit() && spans_[static_cast<size_t>(id)].length != kAbsent;
    }

    /// The token of an id, or nothing when there is none.
    std::string_view token(int32_t id) const;

    /// Number of tokens.
    int32_t size() const { return size_; }

    /// The greatest id + 1.
    int32_t id_limit() const { return static_cast<int32_t>(spans_.size()); }

  private:
    static constexpr uint32_t kAbsent = UINT32_MAX;
    struct Span {
        uint32_t begin = 0;
        uint32_t length = kAbsent;
    };

    size_t slot_of(std::string_view token) const;
    void grow_slots();

    std::string text_;
    std::vector<Span> spans_;     // by id
    std::vector<int32_t> slots_;  // open addressing over ids, -1 = free; a power of two
    int32_t size_ = 0;
};

}  // namespace dak
