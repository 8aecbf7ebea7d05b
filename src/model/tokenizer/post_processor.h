#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"

namespace dak {

/// The "post_processor" of a tokenizer file: what special tokens go around the text. Immutable and
/// thread-safe.
class PostProcessor {
  public:
    /// `post_processor` may be null. Throws Error naming what is not supported.
    static PostProcessor parse(const Json* post_processor, const std::string& where);

    /// Puts the special tokens around `ids`.
    void apply(std::vector<int32_t>& ids) const;

    /// The greatest id + 1 among the special tokens, 0 when there is none.
    int32_t id_limit() const;

  private:
    static constexpr int32_t kText = -1;

    void add(const Json& post_processor, const std::string& where);
    void add_template(const JsonFields& fields);
    void add_pair(const JsonFields& fields);

    std::vector<std::vector<int32_t>> templates_;  // special tokens, and kText for the text
};

}  // namespace dak
