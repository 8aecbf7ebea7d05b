#pragma once

#include <string>
#include <string_view>

namespace dak {

/// The alphabet of byte-level BPE: a printable character, of one or two bytes of UTF-8, for each of
/// the 256 byte values. Printable ASCII and Latin-1 stand for themselves, the other bytes for
/// U+0100 and up, in order.

/// Appends the characters that stand for the bytes of `text`.
void append_as_alphabet(std::string_view text, std::string& alphabet_text);

/// Appends the bytes that the characters of `token` stand for; the bytes of `token` itself when one
/// of its characters is outside the alphabet. `token` must be valid UTF-8.
void append_as_bytes(std::string_view token, std::string& bytes);

}  // namespace dak
