#include "model/tokenizer/tokenizer.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "model/tokenizer/added_tokens.h"
#include "model/tokenizer/bpe.h"
#include "model/tokenizer/decoder.h"
#include "model/tokenizer/gpt2_files.h"
#include "model/tokenizer/normalizer.h"
#include "model/tokenizer/post_processor.h"
#include "model/tokenizer/pre_tokenizer.h"
#include "model/tokenizer/tokenizer_json.h"
#include "model/tokenizer/utf8.h"

namespace dak {

struct Tokenizer::Impl {
    explicit Impl(TokenizerJson file);

    /// Throws Error unless 0 <= id < vocab_size.
    void check(int32_t id) const;

    /// What the decoder sees of an id in range; null for an id that has no token.
    std::optional<std::string_view> decoded_token(int32_t id) const;

    void encode_section(NormalizedText section, Bpe::Scratch& scratch,
                        std::vector<int32_t>& ids) const;

    Normalizer normalizer;
    PreTokenizer pre_tokenizer;
    Bpe model;
    PostProcessor post_processor;
    Decoder decoder;
    AddedTokens added;
    int32_t vocab_size = 0;
};

Tokenizer::Impl::Impl(TokenizerJson file)
    : normalizer(Normalizer::parse(file.find("normalizer"), file.where)),
      pre_tokenizer(PreTokenizer::parse(file.find("pre_tokenizer"), file.where)),
      model(file.model(), std::move(file.vocabulary), file.merges),
      post_processor(PostProcessor::parse(file.find("post_processor"), file.where)),
      decoder(Decoder::parse(file.find("decoder"), file.where)) {
    if (const Json* tokens = file.find("added_tokens")) {
        require(tokens->is_array(), "{}: field 'added_tokens' must be an array", file.where);
        for (const Json& token : *tokens) {
            added.add(JsonFields(token, file.where + ": added_tokens"), model.vocabulary());
        }
    }
    added.build(normalizer);
    vocab_size = std::max(model.vocabulary().id_limit(), added.id_limit());
    require(post_processor.id_limit() <= vocab_size,
            "{}: post_processor: special token {} is outside the vocabulary of {}", file.where,
            post_processor.id_limit() - 1, vocab_size);
}

void Tokenizer::Impl::check(int32_t id) const {
    require(id >= 0 && id < vocab_size, "token id {} is outside the vocabulary of {}", id,
            vocab_size);
}

std::optional<std::string_view> Tokenizer::Impl::decoded_token(int32_t id) const {
    if (const std::string* token = added.decoded(id)) return *token;
    if (model.vocabulary().contains(id)) return model.vocabulary().token(id);
    return {};
}

void Tokenizer::Impl::encode_section(NormalizedText section, Bpe::Scratch& scratch,
                                     std::vector<int32_t>& ids) const {
    normalizer.apply(section);
    for (const auto& part : added.split(section.text, true)) {
        if (part.id >= 0) {
            ids.push_back(part.id);
            continue;
        }
        SplitText text;
        text.text = section.text.substr(part.begin, part.end - part.begin);
        text.pieces = {{0, text.text.size(), section.at_start && part.begin == 0}};
        pre_tokenizer.apply(text);
        for (const auto& piece : text.pieces) model.encode(text.view(piece), scratch, ids);
    }
}

Tokenizer::Tokenizer(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer Tokenizer::load(const std::filesystem::path& model_dir) {
    const auto path = model_dir / "tokenizer.json";
    if (std::filesystem::exists(path)) return from_json(read_text_file(path), path.string());
    require(has_gpt2_files(model_dir),
            "{}: no tokenizer.json, nor vocab.json and merges.txt; save the model's tokenizer with "
            "Hugging Face's AutoTokenizer.from_pretrained(...).save_pretrained(...)",
            model_dir.string());
    return Tokenizer(std::make_unique<const Impl>(read_gpt2_files(model_dir)));
}

Tokenizer Tokenizer::from_json(std::string_view tokenizer_json, std::string_view where) {
    return Tokenizer(std::make_unique<const Impl>(TokenizerJson::parse(tokenizer_json, where)));
}

std::vector<int32_t> Tokenizer::encode(std::string_view utf8, bool add_special_tokens) const {
    require(utf8.size() <= kMaxTextBytes, "the text of {} bytes exceeds {} bytes", utf8.size(),
            kMaxTextBytes);
    std::string replaced;
    if (!is_valid_utf8(utf8)) {
        replaced = replace_invalid_utf8(utf8);
        utf8 = replaced;
    }
    std::vector<int32_t> ids;
    Bpe::Scratch scratch;
    for (const auto& section : impl_->added.split(utf8, false)) {
        if (section.id >= 0) {
            ids.push_back(section.id);
        } else {
            impl_->encode_section(
                {std::string(utf8.substr(section.begin, section.end - section.begin)),
                 section.begin == 0},
                scratch, ids);
        }
    }
    if (add_special_tokens) impl_->post_processor.apply(ids);
    return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
    StreamDecoder stream(*this, skip_special_tokens);
    std::string text;
    for (const int32_t id : ids) text += stream.push(id);
    return text += stream.finish();
}

std::optional<int32_t> Tokenizer::token_to_id(std::string_view token) const {
    const auto id = impl_->added.find(token);
    return id ? id : impl_->model.vocabulary().find(token);
}

std::string_view Tokenizer::id_to_token(int32_t id) const {
    impl_->check(id);
    if (const std::string* token = impl_->added.content(id)) return *token;
    return impl_->model.vocabulary().token(id);
}

int32_t Tokenizer::vocab_size() const { return impl_->vocab_size; }

bool Tokenizer::is_special(int32_t id) const { return impl_->added.is_special(id); }

struct StreamDecoder::State {
    const Tokenizer::Impl& tokenizer;
    bool skip_special_tokens;
    DecoderRun run;
};

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens)
    : state_(new State{*tokenizer.impl_, skip_special_tokens, tokenizer.impl_->decoder.start()}) {}
StreamDecoder::StreamDecoder(StreamDecoder&&) noexcept = default;
StreamDecoder& StreamDecoder::operator=(StreamDecoder&&) noexcept = default;
StreamDecoder::~StreamDecoder() = default;

std::string StreamDecoder::push(int32_t id) {
    const Tokenizer::Impl& tokenizer = state_->tokenizer;
    tokenizer.check(id);
    if (state_->skip_special_tokens && tokenizer.added.is_special(id)) return {};
    const auto token = tokenizer.decoded_token(id);
    return token ? state_->run.push(*token) : std::string();
}

std::string StreamDecoder::finish() { return state_->run.finish(); }

}  // namespace dak
