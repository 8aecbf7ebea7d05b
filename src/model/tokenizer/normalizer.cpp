#include "model/tokenizer/normalizer.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>

#include <utility>

#include "base/error.h"
#include "model/tokenizer/byte_alphabet.h"
#include "model/tokenizer/characters.h"
#include "model/tokenizer/regex.h"
#include "model/tokenizer/utf8.h"

namespace dak {

namespace {

/// NFC, NFD, NFKC or NFKD.
class UnicodeForm : public Normalizer::Step {
  public:
    explicit UnicodeForm(std::string_view name) {
        UErrorCode status = U_ZERO_ERROR;
        const bool compose = name.back() == 'C';
        form_ = icu::Normalizer2::getInstance(nullptr, name.size() == 4 ? "nfkc" : "nfc",
                                              compose ? UNORM2_COMPOSE : UNORM2_DECOMPOSE, status);
        require(U_SUCCESS(status), "cannot load ICU's data for {} ({})", name, u_errorName(status));
    }

    void apply(NormalizedText& text) const override {
        std::string result;
        icu::StringByteSink<std::string> sink(&result);
        UErrorCode status = U_ZERO_ERROR;
        form_->normalizeUTF8(0, text.text, sink, nullptr, status);
        require(U_SUCCESS(status), "cannot normalize a text of {} bytes ({})", text.text.size(),
                u_errorName(status));
        text.text = std::move(result);
    }

  private:
    const icu::Normalizer2* form_ = nullptr;  // ICU's own, never freed
};

/// Every character alone, whatever stands around it.
class Lowercase : public Normalizer::Step {
  public:
    void apply(NormalizedText& text) const override {
        std::string result;
        result.reserve(text.text.size());
        for (size_t pos = 0; pos < text.text.size();) {
            const char32_t code_point = next_code_point(text.text, pos);
            append_utf8(to_lower(code_point), result);
            // The one character whose lower case is two: the Turkish capital dotted I.
            if (code_point == 0x130) append_utf8(0x307, result);
        }
        text.text = std::move(result);
    }
};

class Strip : public Normalizer::Step {
  public:
    Strip(bool left, bool right) : left_(left), right_(right) {}

    void apply(NormalizedText& text) const override {
        size_t begin = 0;
        size_t end = text.text.size();
        for (size_t pos = 0; left_ && pos < end;) {
            if (!is_space(next_code_point(text.text, pos))) break;
            begin = pos;
        }
        while (right_ && end > begin) {
            const size_t last = last_code_point_begin(std::string_view(text.text).substr(0, end));
            size_t pos = last;
            if (!is_space(next_code_point(text.text, pos))) break;
            end = last;
        }
        text.at_start &= begin == 0;
        text.text = text.text.substr(begin, end - begin);
    }

  private:
    bool left_;
    bool right_;
};

class StripAccents : public Normalizer::Step {
  public:
    void apply(NormalizedText& text) const override {
        std::string result;
        for (size_t pos = 0; pos < text.text.size();) {
            const size_t begin = pos;
            if (!is_mark(next_code_point(text.text, pos))) {
                result += std::string_view(text.text).substr(begin, pos - begin);
            } else if (begin == 0) {
                text.at_start = false;
            }
        }
        text.text = std::move(result);
    }
};

class Prepend : public Normalizer::Step {
  public:
    explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}

    void apply(NormalizedText& text) const override {
        if (!text.text.empty()) text.text.insert(0, prefix_);
    }

  private:
    std::string prefix_;
};

class Replace : public Normalizer::Step {
  public:
    Replace(Pattern pattern, std::string content)
        : pattern_(std::move(pattern)), content_(std::move(content)) {}

    void apply(NormalizedText& text) const override {
        Pattern::Searcher searcher(pattern_);
        const std::string_view source = text.text;
        std::string result;
        size_t copied = 0;
        for (const Match match : searcher.find_all(source)) {
            result += source.substr(copied, match.begin - copied);
            result += content_;
            copied = match.end;
            if (match.begin == 0 && match.end > 0 && content_.empty()) text.at_start = false;
        }
        result += source.substr(copied);
        text.text = std::move(result);
    }

  private:
    Pattern pattern_;
    std::string content_;
};

class ByteLevel : public Normalizer::Step {
  public:
    void apply(NormalizedText& text) const override {
        std::string result;
        append_as_alphabet(text.text, result);
        text.text = std::move(result);
    }
};

}  // namespace

Normalizer Normalizer::parse(const Json* normalizer, const std::string& where) {
    Normalizer result;
    if (normalizer) result.add(*normalizer, where);
    return result;
}

void Normalizer::add(const Json& normalizer, const std::string& where) {
    const JsonFields fields(normalizer, where + ": normalizer");
    const auto type = fields.get<std::string>("type");
    if (type == "Sequence") {
        const Json* parts = fields.find("normalizers");
        require(parts && parts->is_array(), "{}: field 'normalizers' must be an array",
                fields.where());
        for (const Json& part : *parts) add(part, where);
    } else if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD") {
        steps_.push_back(std::make_unique<UnicodeForm>(type));
    } else if (type == "Lowercase") {
        steps_.push_back(std::make_unique<Lowercase>());
    } else if (type == "Strip") {
        steps_.push_back(std::make_unique<Strip>(fields.get<bool>("strip_left"),
                                                 fields.get<bool>("strip_right")));
    } else if (type == "StripAccents") {
        steps_.push_back(std::make_unique<StripAccents>());
    } else if (type == "Prepend") {
        steps_.push_back(std::make_unique<Prepend>(fields.get<std::string>("prepend")));
    } else if (type == "Replace") {
        const Json* pattern = fields.find("pattern");
        require(pattern, "{}: field 'pattern' is missing", fields.where());
        steps_.push_back(std::make_unique<Replace>(Pattern::parse(*pattern, fields.where()),
                                                   fields.get<std::string>("content")));
    } else if (type == "ByteLevel") {
        steps_.push_back(std::make_unique<ByteLevel>());
    } else {
        fail(
            "{}: type '{}' is not supported; supported are Sequence, NFC, NFD, NFKC, NFKD, "
            "Lowercase, Strip, StripAccents, Prepend, Replace and ByteLevel",
            fields.where(), type);
    }
}

void Normalizer::apply(NormalizedText& text) const {
    for (const auto& step : steps_) {
        step->apply(text);
        require(text.text.size() <= kMaxTextBytes, "the normalized text exceeds {} bytes",
                kMaxTextBytes);
    }
}

}  // namespace dak
