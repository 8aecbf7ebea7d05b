#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dak {

/// Turns text into token ids and back, as a Hugging Face tokenizer.json describes it. Immutable and
/// thread-safe. Covers BPE tokenizers: byte-level (GPT-2, OPT, Llama 3, Qwen, SmolLM) and
/// SentencePiece-style (Llama 2, Mistral).
class Tokenizer {
  public:
    /// Reads tokenizer.json from a model's folder or, when there is none, GPT-2's and OPT's
    /// vocab.json and merges.txt. Throws Error when they are absent, damaged or need what is not
    /// supported.
    static Tokenizer load(const std::filesystem::path& model_dir);

    /// `where` names the source of `tokenizer_json` in errors. The blocks "truncation" and
    /// "padding" do not count: they serve training.
    static Tokenizer from_json(std::string_view tokenizer_json, std::string_view where);

    Tokenizer(Tokenizer&&) noexcept;
    Tokenizer& operator=(Tokenizer&&) noexcept;
    ~Tokenizer();

    /// The ids of a text of up to 256 MiB, with the special tokens that the model expects around it
    /// unless `add_special_tokens` is false. Special tokens written out in the text are found
    /// either way. Stretches that are no valid UTF-8 read as U+FFFD, as in Python's
    /// bytes.decode(errors="replace"). Throws Error on a text that the tokenizer has no tokens for.
    std::vector<int32_t> encode(std::string_view utf8, bool add_special_tokens = true) const;

    /// The text of `ids`, valid UTF-8. Throws Error on an id outside 0 .. vocab_size() - 1.
    std::string decode(std::span<const int32_t> ids, bool skip_special_tokens = true) const;

    /// The id of a token as it is spelled in tokenizer.json.
    std::optional<int32_t> token_to_id(std::string_view token) const;

    /// The token's spelling in tokenizer.json; empty for an id in range that has no token. Throws
    /// Error on an id outside 0 .. vocab_size() - 1. The view lives as long as the tokenizer.
    std::string_view id_to_token(int32_t id) const;

    /// The greatest id + 1, added tokens included.
    int32_t vocab_size() const;

    /// Whether `id` is a special token, such as the end of text; false when out of range.
    bool is_special(int32_t id) const;

  private:
    friend class StreamDecoder;
    struct Impl;
    explicit Tokenizer(std::unique_ptr<const Impl> impl);

    std::unique_ptr<const Impl> impl_;
};

/// Decodes ids one by one, for streaming: what push() and finish() return is valid UTF-8, and put
/// together equals Tokenizer::decode() of all ids. Text is held back only while a later id could
/// change it. The tokenizer must outlive the decoder; it may be moved.
class StreamDecoder {
  public:
    explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens = true);
    StreamDecoder(StreamDecoder&&) noexcept;
    StreamDecoder& operator=(StreamDecoder&&) noexcept;
    ~StreamDecoder();

    /// The text that `id` completes, often none. Throws Error on an id out of range.
    std::string push(int32_t id);

    /// The rest of the text. Call once, after the last push().
    std::string finish();

  private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace dak
