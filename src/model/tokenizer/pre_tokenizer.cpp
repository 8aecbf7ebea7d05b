#include "model/tokenizer/pre_tokenizer.h"

#include <utility>

#include "base/error.h"
#include "model/tokenizer/byte_alphabet.h"
#include "model/tokenizer/characters.h"
#include "model/tokenizer/regex.h"
#include "model/tokenizer/utf8.h"

namespace dak {

namespace {

/// What becomes of a match and of the text beside it.
enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

Behavior parse_behavior(std::string_view name, const std::string& where) {
    constexpr std::pair<std::string_view, Behavior> behaviors[] = {
        {"Removed", Behavior::kRemoved},
        {"Isolated", Behavior::kIsolated},
        {"MergedWithPrevious", Behavior::kMergedWithPrevious},
        {"MergedWithNext", Behavior::kMergedWithNext},
        {"Contiguous", Behavior::kContiguous},
    };
    for (const auto& [known, behavior] : behaviors) {
        if (name == known) return behavior;
    }
    fail(
        "{}: behavior '{}' is not supported; supported are Removed, Isolated, MergedWithPrevious, "
        "MergedWithNext and Contiguous",
        where, name);
}

/// A stretch of a piece: a match or what lies between two.
struct Segment {
    size_t begin = 0;
    size_t end = 0;
    bool is_match = false;
};

/// Cuts pieces at matches; the memory is reused from piece to piece.
class Splitter {
  public:
    Splitter(SplitText& text, Behavior behavior, bool invert)
        : text_(text), behavior_(behavior), invert_(invert) {
        pieces_.reserve(text.pieces.size());
    }

    /// `matches`, relative to the piece, in order.
    void split(const SplitText::Piece& piece, const std::vector<Match>& matches) {
        cut_segments(piece.end - piece.begin, matches);
        join_segments();
        for (const Segment& segment : segments_) {
            const bool removed = behavior_ == Behavior::kRemoved && segment.is_match;
            if (removed || segment.begin == segment.end) continue;
            pieces_.push_back({piece.begin + segment.begin, piece.begin + segment.end,
                               piece.at_start && segment.begin == 0});
        }
    }

    void finish() { text_.pieces = std::move(pieces_); }

  private:
    void cut_segments(size_t size, const std::vector<Match>& matches) {
        segments_.clear();
        size_t begin = 0;
        for (const Match& match : matches) {
            if (begin != match.begin) segments_.push_back({begin, match.begin, invert_});
            segments_.push_back({match.begin, match.end, !invert_});
            begin = match.end;
        }
        if (begin != size) segments_.push_back({begin, size, invert_});
    }

    void join_segments() {
        if (behavior_ == Behavior::kRemoved || behavior_ == Behavior::kIsolated) return;
        if (behavior_ == Behavior::kMergedWithNext) return join_with_next();
        bool previous_is_match = false;
        size_t kept = 0;
        for (const Segment segment : segments_) {
            const bool joins = behavior_ == Behavior::kContiguous
                                   ? segment.is_match == previous_is_match
                                   : segment.is_match && !previous_is_match;
            if (joins && kept > 0) {
                segments_[kept - 1].end = segment.end;
            } else {
                segments_[kept++] = segment;
            }
            previous_is_match = segment.is_match;
        }
        segments_.resize(kept);
    }

    void join_with_next() {
        bool next_is_match = false;
        size_t kept = segments_.size();  // those from here on are done
        for (size_t i = segments_.size(); i-- > 0;) {
            const Segment segment = segments_[i];
            if (segment.is_match && !next_is_match && kept < segments_.size()) {
                segments_[kept].begin = segment.begin;
            } else {
                segments_[--kept] = segment;
            }
            next_is_match = segment.is_match;
        }
        segments_.erase(segments_.begin(), segments_.begin() + static_cast<ptrdiff_t>(kept));
    }

    SplitText& text_;
    Behavior behavior_;
    bool invert_;
    std::vector<Segment> segments_;
    std::vector<SplitText::Piece> pieces_;
};

void split_at_pattern(SplitText& text, const Pattern& pattern, Behavior behavior, bool invert) {
    Pattern::Searcher searcher(pattern);
    Splitter splitter(text, behavior, invert);
    for (const auto& piece : text.pieces) {
        splitter.split(piece, searcher.find_all(text.view(piece)));
    }
    splitter.finish();
}

/// Rewrites every piece: rewrite(piece, view, result) appends its new text to `result`.
template <typename Rewrite>
void rewrite_pieces(SplitText& text, const Rewrite& rewrite) {
    std::string result;
    result.reserve(text.text.size() + text.text.size() / 8);
    for (auto& piece : text.pieces) {
        const std::string_view view = text.view(piece);
        const size_t begin = result.size();
        rewrite(piece, view, result);
        piece.begin = begin;
        piece.end = result.size();
    }
    text.text = std::move(result);
}

/// Splits by a pattern.
class Split : public PreTokenizer::Step {
  public:
    Split(Pattern pattern, Behavior behavior, bool invert)
        : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

    void apply(SplitText& text) const override {
        split_at_pattern(text, pattern_, behavior_, invert_);
    }

  private:
    Pattern pattern_;
    Behavior behavior_;
    bool invert_;
};

/// Splits at every character of a kind.
class SplitAtCharacters : public PreTokenizer::Step {
  public:
    using Predicate = bool (*)(char32_t);

    SplitAtCharacters(Predicate predicate, Behavior behavior)
        : predicate_(predicate), behavior_(behavior) {}

    void apply(SplitText& text) const override {
        Splitter splitter(text, behavior_, false);
        std::vector<Match> matches;
        for (const auto& piece : text.pieces) {
            matches.clear();
            const std::string_view view = text.view(piece);
            for (size_t pos = 0; pos < view.size();) {
                const size_t begin = pos;
                if (predicate_(next_code_point(view, pos))) matches.push_back({begin, pos});
            }
            splitter.split(piece, matches);
        }
        splitter.finish();
    }

  private:
    Predicate predicate_;
    Behavior behavior_;
};

/// GPT-2's way of splitting, and spelling words in the byte alphabet.
class ByteLevel : public PreTokenizer::Step {
  public:
    ByteLevel(bool add_prefix_space, bool use_regex)
        : add_prefix_space_(add_prefix_space), use_regex_(use_regex) {}

    void apply(SplitText& text) const override {
        if (add_prefix_space_) {
            rewrite_pieces(text, [](const auto&, std::string_view view, std::string& result) {
                if (!view.starts_with(' ')) result += ' ';
                result += view;
            });
        }
        if (use_regex_) split_at_pattern(text, words(), Behavior::kIsolated, false);
        rewrite_pieces(text, [](const auto&, std::string_view view, std::string& result) {
            append_as_alphabet(view, result);
        });
    }

  private:
    static const Pattern& words() {
        static const Pattern pattern = Pattern::regex(
            R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
            "ByteLevel");
        return pattern;
    }

    bool add_prefix_space_;
    bool use_regex_;
};

/// SentencePiece's way: a visible character for the space, which begins a word.
class Metaspace : public PreTokenizer::Step {
  public:
    enum class Prepend { kAlways, kFirst, kNever };

    Metaspace(std::string replacement, Prepend prepend, bool split, const std::string& where)
        : replacement_(std::move(replacement)),
          pattern_(Pattern::literal(replacement_, where)),
          prepend_(prepend),
          split_(split) {}

    void apply(SplitText& text) const override {
        rewrite_pieces(text, [this](const auto& piece, std::string_view view, std::string& result) {
            const bool prepend =
                prepend_ == Prepend::kAlways || (prepend_ == Prepend::kFirst && piece.at_start);
            if (prepend && !view.starts_with(' ') && !view.starts_with(replacement_)) {
                result += replacement_;
            }
            for (const char c : view) {
                if (c == ' ') {
                    result += replacement_;
                } else {
                    result += c;
                }
            }
        });
        if (split_) split_at_pattern(text, pattern_, Behavior::kMergedWithNext, false);
    }

  private:
    std::string replacement_;
    Pattern pattern_;
    Prepend prepend_;
    bool split_;
};

std::unique_ptr<const PreTokenizer::Step> parse_split(const JsonFields& fields) {
    const Json* pattern = fields.find("pattern");
    require(pattern, "{}: field 'pattern' is missing", fields.where());
    return std::make_unique<Split>(
        Pattern::parse(*pattern, fields.where()),
        parse_behavior(fields.get<std::string>("behavior"), fields.where()),
        fields.get_or("invert", false));
}

std::unique_ptr<const PreTokenizer::Step> parse_metaspace(const JsonFields& fields) {
    const auto replacement = fields.get<std::string>("replacement");
    require(!replacement.empty() && replacement.size() == utf8_length(replacement[0]),
            "{}: replacement '{}' must be one character", fields.where(), replacement);
    // Files older than prepend_scheme say only whether to prepend.
    const bool prefix = fields.get_or("add_prefix_space", true);
    const auto scheme = fields.get_or<std::string>("prepend_scheme", prefix ? "always" : "never");
    constexpr std::pair<std::string_view, Metaspace::Prepend> schemes[] = {
        {"always", Metaspace::Prepend::kAlways},
        {"first", Metaspace::Prepend::kFirst},
        {"never", Metaspace::Prepend::kNever},
    };
    for (const auto& [name, prepend] : schemes) {
        if (scheme != name) continue;
        return std::make_unique<Metaspace>(replacement, prepend, fields.get_or("split", true),
                                           fields.where());
    }
    fail("{}: prepend_scheme '{}' is not supported; supported are always, first and never",
         fields.where(), scheme);
}

/// Words and runs of punctuation, without the white space between them.
std::unique_ptr<const PreTokenizer::Step> whitespace(const std::string& where) {
    constexpr std::string_view words = R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D}]+|)"
                                       R"([^\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D}\s]+)";
    return std::make_unique<Split>(Pattern::regex(words, where), Behavior::kRemoved, true);
}

}  // namespace

PreTokenizer PreTokenizer::parse(const Json* pre_tokenizer, const std::string& where) {
    PreTokenizer result;
    if (pre_tokenizer) result.add(*pre_tokenizer, where);
    return result;
}

void PreTokenizer::add(const Json& pre_tokenizer, const std::string& where) {
    const JsonFields fields(pre_tokenizer, where + ": pre_tokenizer");
    const auto type = fields.get<std::string>("type");
    if (type == "Sequence") {
        const Json* parts = fields.find("pretokenizers");
        require(parts && parts->is_array(), "{}: field 'pretokenizers' must be an array",
                fields.where());
        for (const Json& part : *parts) add(part, where);
    } else if (type == "ByteLevel") {
        steps_.push_back(std::make_unique<ByteLevel>(fields.get<bool>("add_prefix_space"),
                                                     fields.get_or("use_regex", true)));
    } else if (type == "Split") {
        steps_.push_back(parse_split(fields));
    } else if (type == "Digits") {
        steps_.push_back(std::make_unique<SplitAtCharacters>(
            is_number,
            fields.get<bool>("individual_digits") ? Behavior::kIsolated : Behavior::kContiguous));
    } else if (type == "Metaspace") {
        steps_.push_back(parse_metaspace(fields));
    } else if (type == "Whitespace") {
        steps_.push_back(whitespace(fields.where()));
    } else if (type == "WhitespaceSplit") {
        steps_.push_back(std::make_unique<SplitAtCharacters>(is_space, Behavior::kRemoved));
    } else if (type == "Punctuation") {
        const auto behavior = fields.get_or<std::string>("behavior", "Isolated");
        steps_.push_back(std::make_unique<SplitAtCharacters>(
            is_punctuation, parse_behavior(behavior, fields.where())));
    } else {
        fail(
            "{}: type '{}' is not supported; supported are Sequence, ByteLevel, Split, Digits, "
            "Metaspace, Whitespace, WhitespaceSplit and Punctuation",
            fields.where(), type);
    }
}

void PreTokenizer::apply(SplitText& text) const {
    for (const auto& step : steps_) step->apply(text);
}

}  // namespace dak
