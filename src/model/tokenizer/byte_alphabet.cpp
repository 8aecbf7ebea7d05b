#include "model/tokenizer/byte_alphabet.h"

#include <array>

#include "model/tokenizer/utf8.h"

namespace dak {

namespace {

constexpr char32_t kAlphabetEnd = 0x100 + 68;  // 68 bytes do not stand for themselves
constexpr int kOutside = -1;

struct Alphabet {
    std::array<std::string, 256> characters;
    std::array<int, kAlphabetEnd> bytes{};

    Alphabet() {
        bytes.fill(kOutside);
        char32_t next = 0x100;
        for (int byte = 0; byte < 256; ++byte) {
            const bool printable = (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
            const char32_t code_point = printable ? static_cast<char32_t>(byte) : next++;
            append_utf8(code_point, characters[static_cast<size_t>(byte)]);
            bytes[code_point] = byte;
        }
    }
};

const Alphabet& alphabet() {
    static const Alphabet instance;
    return instance;
}

}  // namespace

void append_as_alphabet(std::string_view text, std::string& alphabet_text) {
    const auto& characters = alphabet().characters;
    for (const char byte : text) alphabet_text += characters[static_cast<unsigned char>(byte)];
}

void append_as_bytes(std::string_view token, std::string& bytes) {
    const size_t size = bytes.size();
    for (size_t pos = 0; pos < token.size();) {
        const char32_t code_point = next_code_point(token, pos);
        const int byte = code_point < kAlphabetEnd ? alphabet().bytes[code_point] : kOutside;
        if (byte == kOutside) {
            bytes.resize(size);
            bytes += token;
            return;
        }
        bytes += static_cast<char>(byte);
    }
}

}  // namespace dak
