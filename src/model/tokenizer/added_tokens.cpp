#include "model/tokenizer/added_tokens.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "model/tokenizer/characters.h"
#include "model/tokenizer/utf8.h"

namespace dak {

namespace {

bool starts_with_word(std::string_view text) {
    size_t pos = 0;
    return !text.empty() && is_word(next_code_point(text, pos));
}

bool ends_with_word(std::string_view text) {
    if (text.empty()) return false;
    size_t pos = last_code_point_begin(text);
    return is_word(next_code_point(text, pos));
}

/// Where the white space that ends text[0, end) begins, no further left than `limit`.
size_t space_begin(std::string_view text, size_t limit, size_t end) {
    while (end > limit) {
        const size_t last = last_code_point_begin(text.substr(0, end));
        size_t pos = last;
        if (!is_space(next_code_point(text, pos))) break;
        end = last;
    }
    return end;
}

/// Where the white space that begins at `begin` ends.
size_t space_end(std::string_view text, size_t begin) {
    for (size_t pos = begin; pos < text.size();) {
        if (!is_space(next_code_point(text, pos))) break;
        begin = pos;
    }
    return begin;
}

}  // namespace

void AddedTokens::add(const JsonFields& fields, const Vocabulary& vocabulary) {
    Token token;
    token.content = fields.get<std::string>("content");
    if (token.content.empty()) return;
    token.single_word = fields.get_or("single_word", false);
    token.lstrip = fields.get_or("lstrip", false);
    token.rstrip = fields.get_or("rstrip", false);
    token.special = fields.get_or("special", false);
    token.normalized = fields.get_or("normalized", !token.special);

    if (!next_id_) next_id_ = vocabulary.size();
    auto id = find(token.content);
    if (!id) id = vocabulary.find(token.content);
    if (!id) id = (*next_id_)++;
    // Once special, always special.
    token.special |= is_special(*id);
    ids_.insert_or_assign(token.content, *id);
    tokens_.insert_or_assign(*id, std::move(token));
}

void AddedTokens::build(const Normalizer& normalizer) {
    for (auto& [id, token] : tokens_) {
        token.decoded = token.content;
        if (token.normalized) {
            NormalizedText text{token.content};
            normalizer.apply(text);
            token.decoded = std::move(text.text);
        }
        (token.normalized ? normalized_ : raw_).add(token.decoded, id);
    }
}

std::optional<int32_t> AddedTokens::find(std::string_view content) const {
    const auto it = ids_.find(content);
    return it == ids_.end() ? std::nullopt : std::optional(it->second);
}

const std::string* AddedTokens::content(int32_t id) const {
    const auto it = tokens_.find(id);
    return it == tokens_.end() ? nullptr : &it->second.content;
}

const std::string* AddedTokens::decoded(int32_t id) const {
    const auto it = tokens_.find(id);
    return it == tokens_.end() ? nullptr : &it->second.decoded;
}

bool AddedTokens::is_special(int32_t id) const {
    const auto it = tokens_.find(id);
    return it != tokens_.end() && it->second.special;
}

std::vector<AddedTokens::Section> AddedTokens::split(std::string_view text, bool normalized) const {
    const Trie& trie = normalized ? normalized_ : raw_;
    std::vector<Section> sections;
    size_t done = 0;
    for (size_t pos = 0; pos < text.size();) {
        const Trie::Found found = trie.longest_at(text, pos);
        if (found.length == 0) {
            ++pos;
            continue;
        }
        const Token& token = tokens_.at(found.id);
        size_t begin = pos;
        size_t end = pos + found.length;
        pos = end;  // the search goes on here, even when the token takes more or is none
        if (token.single_word &&
            (ends_with_word(text.substr(0, begin)) || starts_with_word(text.substr(end)))) {
            continue;
        }
        if (token.lstrip) begin = space_begin(text, std::min(done, begin), begin);
        if (token.rstrip) end = space_end(text, end);
        if (done < begin) sections.push_back({done, begin});
        sections.push_back({begin, end, found.id});
        done = end;
    }
    if (done < text.size()) sections.push_back({done, text.size()});
    return sections;
}

void AddedTokens::Trie::add(std::string_view text, int32_t id) {
    int32_t node = kNone;
    for (const char byte : text) {
        int32_t next = child(node, byte);
        if (next == kNone) {
            next = static_cast<int32_t>(nodes_.size());
            int32_t& link = node == kNone ? roots_[static_cast<unsigned char>(byte)]
                                          : nodes_[static_cast<size_t>(node)].first_child;
            const int32_t sibling = std::exchange(link, next);
            nodes_.push_back({byte, kNone, kNone, sibling});
        }
        node = next;
    }
    if (node == kNone) return;
    auto& end = nodes_[static_cast<size_t>(node)];
    if (end.id == kNone) end.id = id;
}

AddedTokens::Trie::Found AddedTokens::Trie::longest_at(std::string_view text, size_t pos) const {
    Found found;
    int32_t node = kNone;
    for (size_t i = pos; i < text.size(); ++i) {
        node = child(node, text[i]);
        if (node == kNone) break;
        const int32_t id = nodes_[static_cast<size_t>(node)].id;
        if (id != kNone) found = {i + 1 - pos, id};
    }
    return found;
}

int32_t AddedTokens::Trie::child(int32_t node, char byte) const {
    if (node == kNone) return roots_[static_cast<unsigned char>(byte)];
    int32_t next = nodes_[static_cast<size_t>(node)].first_child;
    while (next != kNone && nodes_[static_cast<size_t>(next)].byte != byte) {
        next = nodes_[static_cast<size_t>(next)].next_sibling;
    }
    return next;
}

}  // namespace dak
