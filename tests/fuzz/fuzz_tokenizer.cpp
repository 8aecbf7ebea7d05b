#include <algorithm>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "model/tokenizer/tokenizer.h"

namespace {

/// Stops the run: something that must hold does not.
void expect(bool condition) {
    if (!condition) __builtin_trap();
}

void decode_in_both_ways(const dak::Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
    for (const bool skip : {false, true}) {
        dak::StreamDecoder stream(tokenizer, skip);
        std::string text;
        for (const int32_t id : ids) text += stream.push(id);
        text += stream.finish();
        expect(text == tokenizer.decode(ids, skip));
    }
}

}  // namespace

// A tokenizer.json and, after the first zero byte, a text to encode.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    // Regular expressions from outside may take long on a long text, up to a limit per search.
    constexpr size_t kMaxTextBytes = 512;
    const std::string_view input(reinterpret_cast<const char*>(data), size);
    const size_t end = std::min(input.find('\0'), size);
    const std::string_view text = input.substr(std::min(end + 1, size)).substr(0, kMaxTextBytes);
    try {
        const auto tokenizer = dak::Tokenizer::from_json(input.substr(0, end), "fuzz");
        const int32_t vocab_size = tokenizer.vocab_size();
        for (const bool add_special_tokens : {false, true}) {
            const auto ids = tokenizer.encode(text, add_special_tokens);
            for (const int32_t id : ids) expect(id >= 0 && id < vocab_size);
            decode_in_both_ways(tokenizer, ids);
        }
        if (vocab_size == 0) return 0;
        std::vector<int32_t> ids;
        for (const char c : text) ids.push_back(static_cast<unsigned char>(c) % vocab_size);
        decode_in_both_ways(tokenizer, ids);
    } catch (const dak::Error&) {
    }
    return 0;
}
