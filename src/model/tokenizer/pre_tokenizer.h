#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace dak {

/// A text and the pieces it is split into. Pieces are in order and do not overlap; what lies
/// between them is dropped.
struct SplitText {
    struct Piece {
        size_t begin = 0;
        size_t end = 0;
        bool at_start = false;  ///< Whether it begins where the whole input begins.
    };
    std::string text;
    std::vector<Piece> pieces;

    std::string_view view(const Piece& piece) const {
        return std::string_view(text).substr(piece.begin, piece.end - piece.begin);
    }
};

/// The "pre_tokenizer" of a tokenizer file: steps that split the text into words, and may rewrite
/// them. Immutable and thread-safe.
class PreTokenizer {
  public:
    class Step {
      public:
        virtual ~Step() = default;
        virtual void apply(SplitText& text) const = 0;
    };

    /// `pre_tokenizer` may be null. Throws Error naming what is not supported.
    static PreTokenizer parse(const Json* pre_tokenizer, const std::string& where);

    /// `text` must be valid UTF-8, and stays so.
    void apply(SplitText& text) const;

  private:
    void add(const Json& pre_tokenizer, const std::string& where);

    std::vector<std::unique_ptr<const Step>> steps_;
};

}  // namespace dak
