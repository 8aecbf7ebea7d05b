#include "model/tokenizer/decoder.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "model/tokenizer/byte_alphabet.h"
#include "model/tokenizer/regex.h"
#include "model/tokenizer/utf8.h"

namespace dak {

namespace {

constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

/// Gathers fragments into whole tokens.
class WholeTokenStage : public DecoderStage {
  public:
    void push(Fragment fragment) final {
        token_ += fragment.text;
        if (fragment.last) on_token(std::exchange(token_, {}));
    }
    void finish() override { next().finish(); }

  protected:
    virtual void on_token(std::string token) = 0;

  private:
    std::string token_;
};

class OutputStage : public DecoderStage {
  public:
    explicit OutputStage(std::string& output) : output_(output) {}
    void push(Fragment fragment) override { output_ += fragment.text; }
    void finish() override {}

  private:
    std::string& output_;
};

/// What a file without a decoder means.
class JoinWithSpaces : public DecoderStage {
  public:
    void push(Fragment fragment) override {
        if (fragment.first && std::exchange(started_, true)) next().push({" ", true, false});
        next().push(std::move(fragment));
    }
    void finish() override { next().finish(); }

  private:
    bool started_ = false;
};

/// All tokens become one.
class Fuse : public DecoderStage {
  public:
    void push(Fragment fragment) override {
        fragment.first = !std::exchange(started_, true);
        fragment.last = false;
        next().push(std::move(fragment));
    }
    void finish() override {
        next().push({"", !started_, true});
        next().finish();
    }

  private:
    bool started_ = false;
};

/// From the byte alphabet to bytes, and to one token of text, ill-formed bytes replaced by U+FFFD.
class ByteLevel : public WholeTokenStage {
  public:
    void finish() override {
        next().push({replace_invalid_utf8(bytes_), !started_, true});
        next().finish();
    }

  protected:
    void on_token(std::string token) override {
        append_as_bytes(token, bytes_);
        size_t decided = 0;
        while (decided < bytes_.size()) {
            const Utf8Step step = utf8_step(bytes_, decided);
            if (step.truncated) break;
            decided += step.length;
        }
        if (decided == 0) return;
        next().push({replace_invalid_utf8(std::string_view(bytes_).substr(0, decided)),
                     !std::exchange(started_, true), false});
        bytes_.erase(0, decided);
    }

  private:
    std::string bytes_;  // not yet passed on: at most the beginning of one character
    bool started_ = false;
};

/// Tokens <0x00> .. <0xFF> are bytes. A run of them that is no valid UTF-8 becomes one U+FFFD a
/// byte, so a run is passed on only when it has ended.
class ByteFallback : public WholeTokenStage {
  public:
    void finish() override {
        flush();
        WholeTokenStage::finish();
    }

  protected:
    void on_token(std::string token) override {
        if (const auto byte = byte_of(token)) {
            bytes_ += *byte;
        } else {
            flush();
            next().push({std::move(token)});
        }
    }

  private:
    static std::optional<char> byte_of(std::string_view token) {
        if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return {};
        unsigned value = 0;
        for (const char c : token.substr(3, 2)) {
            const char lower = static_cast<char>(c | 0x20);
            const bool digit = c >= '0' && c <= '9';
            if (!digit && (lower < 'a' || lower > 'f')) return {};
            value = value * 16 + static_cast<unsigned>(digit ? c - '0' : lower - 'a' + 10);
        }
        return static_cast<char>(value);
    }

    void flush() {
        if (is_valid_utf8(bytes_)) {
            if (!bytes_.empty()) next().push({bytes_});
        } else {
            for (size_t i = 0; i < bytes_.size(); ++i) {
                next().push({std::string(kReplacementCharacter)});
            }
        }
        bytes_.clear();
    }

    std::string bytes_;
};

class Replace : public WholeTokenStage {
  public:
    Replace(const Pattern& pattern, const std::string& content)
        : searcher_(pattern), content_(content) {}

  protected:
    void on_token(std::string token) override {
        std::string result;
        size_t copied = 0;
        for (const Match& match : searcher_.find_all(token)) {
            result.append(token, copied, match.begin - copied);
            result += content_;
            copied = match.end;
        }
        result.append(token, copied);
        next().push({std::move(result)});
    }

  private:
    Pattern::Searcher searcher_;
    const std::string& content_;
};

/// Takes a character away, up to so many times, from either end of each token.
class Strip : public DecoderStage {
  public:
    Strip(std::string_view character, int64_t start, int64_t stop)
        : character_(character), start_(start), stop_(stop) {}

    void push(Fragment fragment) override {
        if (fragment.first) {
            to_strip_ = start_;
            held_ = 0;
        }
        std::string_view text = fragment.text;
        while (to_strip_ > 0 && text.starts_with(character_)) {
            text.remove_prefix(character_.size());
            --to_strip_;
        }
        if (!text.empty()) to_strip_ = 0;
        hold_back(text);
        if (fragment.last) held_ = 0;
        next().push({std::exchange(passed_, {}), fragment.first, fragment.last});
    }
    void finish() override { next().finish(); }

  private:
    /// Passes `text` on but for its end, which is stripped if nothing follows.
    void hold_back(std::string_view text) {
        int64_t trailing = 0;
        while (trailing < stop_ && text.ends_with(character_)) {
            text.remove_suffix(character_.size());
            ++trailing;
        }
        int64_t released = held_ + trailing - stop_;
        if (!text.empty()) released = held_;
        released = std::max<int64_t>(released, 0);
        for (int64_t i = 0; i < released; ++i) passed_ += character_;
        passed_ += text;
        held_ = held_ + trailing - released;
    }

    std::string_view character_;
    int64_t start_;
    int64_t stop_;
    int64_t to_strip_ = 0;
    int64_t held_ = 0;
    std::string passed_;
};

/// SentencePiece's visible space back to a space; in the first token it goes away instead, where a
/// space was put in front of the text.
class Metaspace : public DecoderStage {
  public:
    Metaspace(std::string_view replacement, bool prepended)
        : replacement_(replacement), prepended_(prepended) {}

    void push(Fragment fragment) override {
        std::string result;
        std::string_view rest = fragment.text;
        const std::string_view space = first_token_ && prepended_ ? "" : " ";
        for (size_t found = rest.find(replacement_); found != std::string_view::npos;
             found = rest.find(replacement_)) {
            result += rest.substr(0, found);
            result += space;
            rest.remove_prefix(found + replacement_.size());
        }
        result += rest;
        if (fragment.last) first_token_ = false;
        next().push({std::move(result), fragment.first, fragment.last});
    }
    void finish() override { next().finish(); }

  private:
    std::string_view replacement_;
    bool prepended_;
    bool first_token_ = true;
};

/// A step that starts a Stage from the arguments it holds.
template <typename Stage, typename... Args>
class StepOf : public Decoder::Step {
  public:
    explicit StepOf(Args... args) : args_(std::move(args)...) {}
    std::unique_ptr<DecoderStage> start() const override {
        return std::apply([](const Args&... args) { return std::make_unique<Stage>(args...); },
                          args_);
    }

  private:
    std::tuple<Args...> args_;
};

template <typename Stage, typename... Args>
std::unique_ptr<const Decoder::Step> step_of(Args... args) {
    return std::make_unique<StepOf<Stage, Args...>>(std::move(args)...);
}

std::string one_character(const JsonFields& fields, std::string_view name) {
    auto text = fields.get<std::string>(name);
    require(!text.empty() && text.size() == utf8_length(text[0]),
            "{}: {} '{}' must be one character", fields.where(), name, text);
    return text;
}

}  // namespace

DecoderRun::DecoderRun(std::vector<std::unique_ptr<DecoderStage>> stages)
    : stages_(std::move(stages)), output_(std::make_unique<std::string>()) {
    stages_.push_back(std::make_unique<OutputStage>(*output_));
    for (size_t i = 0; i + 1 < stages_.size(); ++i) stages_[i]->set_next(stages_[i + 1].get());
}

std::string DecoderRun::push(std::string_view token) {
    stages_.front()->push({std::string(token)});
    return std::exchange(*output_, {});
}

std::string DecoderRun::finish() {
    stages_.front()->finish();
    return std::exchange(*output_, {});
}

Decoder Decoder::parse(const Json* decoder, const std::string& where) {
    Decoder result;
    if (decoder) {
        result.add(*decoder, where);
    } else {
        result.steps_.push_back(step_of<JoinWithSpaces>());
    }
    return result;
}

void Decoder::add(const Json& decoder, const std::string& where) {
    const JsonFields fields(decoder, where + ": decoder");
    const auto type = fields.get<std::string>("type");
    if (type == "Sequence") {
        const Json* parts = fields.find("decoders");
        require(parts && parts->is_array(), "{}: field 'decoders' must be an array",
                fields.where());
        for (const Json& part : *parts) add(part, where);
    } else if (type == "ByteLevel") {
        steps_.push_back(step_of<ByteLevel>());
    } else if (type == "ByteFallback") {
        steps_.push_back(step_of<ByteFallback>());
    } else if (type == "Fuse") {
        steps_.push_back(step_of<Fuse>());
    } else if (type == "Replace") {
        const Json* pattern = fields.find("pattern");
        require(pattern, "{}: field 'pattern' is missing", fields.where());
        steps_.push_back(step_of<Replace>(Pattern::parse(*pattern, fields.where()),
                                          fields.get<std::string>("content")));
    } else if (type == "Strip") {
        steps_.push_back(step_of<Strip>(one_character(fields, "content"),
                                        fields.get<int64_t>("start"), fields.get<int64_t>("stop")));
    } else if (type == "Metaspace") {
        const bool prefix = fields.get_or("add_prefix_space", true);
        const auto scheme =
            fields.get_or<std::string>("prepend_scheme", prefix ? "always" : "never");
        steps_.push_back(
            step_of<Metaspace>(one_character(fields, "replacement"), scheme != "never"));
    } else {
        fail(
            "{}: type '{}' is not supported; supported are Sequence, ByteLevel, ByteFallback, "
            "Fuse, Replace, Strip and Metaspace",
            fields.where(), type);
    }
}

DecoderRun Decoder::start() const {
    std::vector<std::unique_ptr<DecoderStage>> stages;
    for (const auto& step : steps_) stages.push_back(step->start());
    return DecoderRun(std::move(stages));
}

}  // namespace dak
