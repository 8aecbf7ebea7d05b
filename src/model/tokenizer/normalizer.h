#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/json.h"

namespace dak {

/// The longest text, before and after each step: keeps offsets, which later steps may multiply by
/// four, in 31 bits.
inline constexpr size_t kMaxTextBytes = size_t{1} << 28;

/// Text on its way through the normalizer.
struct NormalizedText {
    std::string text;
    /// Whether it still begins where the whole input begins (for Metaspace's scheme "first").
    bool at_start = false;
};

/// The "normalizer" of a tokenizer file: steps that rewrite the text before it is split. Immutable
/// and thread-safe.
class Normalizer {
  public:
    class Step {
      public:
        virtual ~Step() = default;
        virtual void apply(NormalizedText& text) const = 0;
    };

    /// `normalizer` may be null. Throws Error naming what is not supported.
    static Normalizer parse(const Json* normalizer, const std::string& where);

    /// `text` must be valid UTF-8, and stays so. Throws Error when it grows beyond kMaxTextBytes.
    void apply(NormalizedText& text) const;

  private:
    void add(const Json& normalizer, const std::string& where);

    std::vector<std::unique_ptr<const Step>> steps_;
};

}  // namespace dak
