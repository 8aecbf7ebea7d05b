#include "model/tokenizer/post_processor.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace dak {

namespace {

int32_t checked_id(const Json& id, const std::string& where) {
    require(id.is_number_unsigned() && id.get<uint64_t>() <= INT32_MAX, "{}: '{}' is no token id",
            where, id.dump().substr(0, 40));
    return id.get<int32_t>();
}

/// The ids of special token `name` in a template's "special_tokens".
std::vector<int32_t> special_ids(const JsonFields& fields, const std::string& name) {
    const Json* tokens = fields.find("special_tokens");
    const Json* token =
        tokens && tokens->is_object() && tokens->contains(name) ? &tokens->at(name) : nullptr;
    require(token && token->is_object() && token->contains("ids") && token->at("ids").is_array(),
            "{}: special_tokens does not give the ids of '{}'", fields.where(), name);
    std::vector<int32_t> ids;
    for (const Json& id : token->at("ids")) ids.push_back(checked_id(id, fields.where()));
    return ids;
}

}  // namespace

PostProcessor PostProcessor::parse(const Json* post_processor, const std::string& where) {
    PostProcessor result;
    if (post_processor) result.add(*post_processor, where);
    return result;
}

void PostProcessor::add(const Json& post_processor, const std::string& where) {
    const JsonFields fields(post_processor, where + ": post_processor");
    const auto type = fields.get<std::string>("type");
    if (type == "Sequence") {
        const Json* parts = fields.find("processors");
        require(parts && parts->is_array(), "{}: field 'processors' must be an array",
                fields.where());
        for (const Json& part : *parts) add(part, where);
    } else if (type == "TemplateProcessing") {
        add_template(fields);
    } else if (type == "RobertaProcessing" || type == "BertProcessing") {
        add_pair(fields);
    } else if (type != "ByteLevel") {  // ByteLevel changes only character offsets, which we lack
        fail(
            "{}: type '{}' is not supported; supported are Sequence, TemplateProcessing, "
            "RobertaProcessing, BertProcessing and ByteLevel",
            fields.where(), type);
    }
}

void PostProcessor::add_template(const JsonFields& fields) {
    const Json* pieces = fields.find("single");
    require(pieces && pieces->is_array(), "{}: field 'single' must be an array", fields.where());
    std::vector<int32_t> ids;
    for (const Json& piece : *pieces) {
        const JsonFields kinds(piece, fields.where() + ": single");
        if (const Json* token = kinds.find("SpecialToken")) {
            const auto name = JsonFields(*token, kinds.where()).get<std::string>("id");
            const auto special = special_ids(fields, name);
            ids.insert(ids.end(), special.begin(), special.end());
        } else {
            const Json* sequence = kinds.find("Sequence");
            require(sequence && JsonFields(*sequence, kinds.where()).get<std::string>("id") == "A",
                    "{}: a piece must be a SpecialToken or the Sequence A", kinds.where());
            ids.push_back(kText);
        }
    }
    require(std::count(ids.begin(), ids.end(), kText) == 1,
            "{}: the template must hold the text (Sequence A) once", fields.where());
    templates_.push_back(std::move(ids));
}

/// RoBERTa's and BERT's: "cls" before the text, "sep" behind it.
void PostProcessor::add_pair(const JsonFields& fields) {
    const auto id_of = [&](std::string_view name) {
        const Json* token = fields.find(name);
        require(token && token->is_array() && token->size() == 2,
                "{}: field '{}' must be [token, id]", fields.where(), name);
        return checked_id(token->at(1), fields.where());
    };
    templates_.push_back({id_of("cls"), kText, id_of("sep")});
}

void PostProcessor::apply(std::vector<int32_t>& ids) const {
    for (const auto& pieces : templates_) {
        const auto text = std::find(pieces.begin(), pieces.end(), kText);
        ids.insert(ids.begin(), pieces.begin(), text);
        ids.insert(ids.end(), text + 1, pieces.end());
    }
}

int32_t PostProcessor::id_limit() const {
    int32_t limit = 0;
    for (const auto& pieces : templates_) {
        limit = std::max(limit, *std::max_element(pieces.begin(), pieces.end()) + 1);
    }
    return limit;
}

}  // namespace dak
