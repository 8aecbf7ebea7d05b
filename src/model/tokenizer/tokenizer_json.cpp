#include "model/tokenizer/tokenizer_json.h"

#include <array>
#include <utility>

#include "base/error.h"

namespace dak {

namespace {

/// Takes the vocabulary and the merges out of the stream of parse events, so that they never become
/// a JSON tree, which is ten times their size.
class Harvester {
  public:
    explicit Harvester(TokenizerJson& file) : file_(file) {}

    /// Whether to keep what the event is about.
    bool on_event(int depth, Json::parse_event_t event, Json& parsed) {
        const bool is_key = event == Json::parse_event_t::key;
        if (is_key && depth < kVocabularyDepth) enter(depth, parsed);
        const bool begins =
            event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start;
        if (begins && depth == kVocabularyDepth - 1) {
            in_vocabulary_ = in_model("vocab") && event == Json::parse_event_t::object_start;
            in_merges_ = in_model("merges") && event == Json::parse_event_t::array_start;
            has_vocabulary_ |= in_vocabulary_;
            has_merges_ |= in_merges_;
        }
        if (depth < kVocabularyDepth) return true;
        if (in_vocabulary_) return on_vocabulary(event, parsed);
        if (in_merges_) return on_merges(depth, event, parsed);
        return true;
    }

    bool has_vocabulary() const { return has_vocabulary_; }
    bool has_merges() const { return has_merges_; }

  private:
    static constexpr int kVocabularyDepth = 3;  // of model.vocab's and model.merges' contents

    void enter(int depth, const Json& key) {
        path_[static_cast<size_t>(depth)] = key.get_ref<const std::string&>();
        for (auto i = static_cast<size_t>(depth) + 1; i < path_.size(); ++i) path_[i].clear();
        in_vocabulary_ = in_merges_ = false;
    }

    bool in_model(std::string_view field) const { return path_[1] == "model" && path_[2] == field; }

    bool on_vocabulary(Json::parse_event_t event, const Json& parsed) {
        if (event == Json::parse_event_t::key) {
            token_ = parsed.get_ref<const std::string&>();
            return false;
        }
        require(event == Json::parse_event_t::value && parsed.is_number_integer(),
                "model.vocab: the id of token '{}' must be an integer", token_);
        const bool huge = parsed.is_number_unsigned() && parsed.get<uint64_t>() > INT64_MAX;
        file_.vocabulary.add(token_, huge ? INT64_MAX : parsed.get<int64_t>());
        return true;  // dropped with its key
    }

    bool on_merges(int depth, Json::parse_event_t event, const Json& parsed) {
        const bool in_pair = depth > kVocabularyDepth;
        const bool is_text = event == Json::parse_event_t::value && parsed.is_string();
        if (is_text && in_pair) {
            pair_.push_back(parsed.get_ref<const std::string&>());
        } else if (is_text) {
            const auto& merge = parsed.get_ref<const std::string&>();
            const bool is_header = merge.starts_with("#version");
            if (!is_header && !file_.merges.add_joined(merge)) refuse_merge();
        } else if (event == Json::parse_event_t::array_end && !in_pair && pair_.size() == 2) {
            file_.merges.add(pair_[0], pair_[1]);
        } else {
            const bool pair_begins = event == Json::parse_event_t::array_start && !in_pair;
            if (!pair_begins) refuse_merge();
            pair_.clear();
            return true;  // until it ends
        }
        return false;
    }

    [[noreturn]] void refuse_merge() const {
        fail("model.merges: entry {} is neither \"left right\" nor [\"left\", \"right\"]",
             file_.merges.size());
    }

    TokenizerJson& file_;
    std::array<std::string, kVocabularyDepth> path_;  // the keys we are under, by depth
    std::string token_;
    std::vector<std::string> pair_;
    bool in_vocabulary_ = false;
    bool in_merges_ = false;
    bool has_vocabulary_ = false;
    bool has_merges_ = false;
};

}  // namespace

TokenizerJson TokenizerJson::parse(std::string_view text, std::string_view where) {
    TokenizerJson file;
    file.where = where;
    Harvester harvester(file);
    file.rest = parse_json(text, where, [&](int depth, Json::parse_event_t event, Json& parsed) {
        return harvester.on_event(depth, event, parsed);
    });
    const JsonFields fields(file.rest, file.where);
    const auto version = fields.get_or<std::string>("version", "1.0");
    require(version == "1.0", "{}: version '{}' is not supported; only 1.0 is", where, version);
    require(fields.find("model"), "{}: field 'model' is missing", where);
    // Early files name no type.
    const auto type = file.model().get_or<std::string>("type", "BPE");
    require(type == "BPE", "{}: model type '{}' is not supported; only BPE is", where, type);
    require(harvester.has_vocabulary(), "{}: model: field 'vocab' is missing or no object", where);
    require(harvester.has_merges(), "{}: model: field 'merges' is missing or no array", where);
    return file;
}

const Json* TokenizerJson::find(std::string_view name) const {
    return JsonFields(rest, where).find(name);
}

JsonFields TokenizerJson::model() const { return JsonFields(rest.at("model"), where + ": model"); }

}  // namespace dak
