// Tokenizes lines for comparison with another implementation.
//
//   tokenize_lines MODEL_DIR < lines > results
//
// Each line of the input is a JSON string; each line of the output is a JSON object:
//   ids, ids_plain            with and without special tokens
//   text, text_skipped        `ids` decoded with and without special tokens
//   stream, stream_skipped    the same through StreamDecoder, one array element an id, then the end
// A line {"ids": [...]} gives text, text_skipped, stream and stream_skipped of these ids.
#include <fmt/format.h>

#include <iostream>
#include <string>

#include "base/json.h"
#include "model/tokenizer/tokenizer.h"

namespace {

using dak::Json;

Json stream(const dak::Tokenizer& tokenizer, const std::vector<int32_t>& ids, bool skip) {
    dak::StreamDecoder decoder(tokenizer, skip);
    Json parts = Json::array();
    for (const int32_t id : ids) parts.push_back(decoder.push(id));
    parts.push_back(decoder.finish());
    return parts;
}

Json tokenize(const dak::Tokenizer& tokenizer, const Json& input) {
    Json result;
    std::vector<int32_t> ids;
    if (input.is_string()) {
        const auto& text = input.get_ref<const std::string&>();
        ids = tokenizer.encode(text);
        result["ids"] = ids;
        result["ids_plain"] = tokenizer.encode(text, false);
    } else {
        ids = input.at("ids").get<std::vector<int32_t>>();
    }
    result["text"] = tokenizer.decode(ids, false);
    result["text_skipped"] = tokenizer.decode(ids, true);
    result["stream"] = stream(tokenizer, ids, false);
    result["stream_skipped"] = stream(tokenizer, ids, true);
    return result;
}

}  // namespace

int main(int argc, char** argv) try {
    if (argc != 2) throw dak::Error("usage: tokenize_lines MODEL_DIR");
    const auto tokenizer = dak::Tokenizer::load(argv[1]);
    for (std::string line; std::getline(std::cin, line);) {
        std::cout << tokenize(tokenizer, dak::parse_json(line, "stdin")).dump() << '\n';
    }
} catch (const std::exception& error) {
    fmt::print(stderr, "tokenize_lines: {}\n", error.what());
    return 1;
}
