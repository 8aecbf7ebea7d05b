#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Python's str methods over UTF-8, as templates call them. Positions and widths count code points;
/// a byte that is not valid UTF-8 counts as one code point, U+FFFD, and is copied as it is.
namespace dak::jinja {

/// Longest string a template may build, and longest output. Far beyond the longest prompt a model
/// takes (16 MiB is some 4 million tokens), small enough for hostile templates not to hurt.
constexpr size_t kMaxStringBytes = size_t{16} << 20;

/// Throws Error when a string would grow past kMaxStringBytes.
void check_string_size(size_t bytes);

enum class Side { kLeft, kRight, kBoth };

/// Appends the UTF-8 form of `character`, which must be a Unicode scalar value.
void append_char(std::string& text, char32_t character);
std::u32string to_chars(std::string_view text);
int64_t char_count(std::string_view text);
/// Byte offset of code point `index`, or the size of `text` when it has no more than that.
size_t byte_offset(std::string_view text, int64_t index);
bool is_space(char32_t character);

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
/// First character in title case, the others in lower case.
std::string capitalize(std::string_view text);
/// Every run of cased characters capitalized.
std::string to_title(std::string_view text);

/// Removes the code points in `characters` (white space when absent) from the ends.
std::string_view strip(std::string_view text, Side side,
                       std::optional<std::string_view> characters = {});
/// Splits at `separator` (at runs of white space when absent) at most `limit` times (-1: no limit),
/// counting from the left or from the right.
std::vector<std::string_view> split(std::string_view text,
                                    std::optional<std::string_view> separator, int64_t limit,
                                    Side from);
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);
/// Replaces the first `limit` occurrences (-1: all). An empty `old` matches between characters.
std::string replace(std::string_view text, std::string_view old, std::string_view with,
                    int64_t limit);
std::string repeat(std::string_view text, int64_t times);
/// Pads to `width` code points on the given side, or both sides as str.center does.
std::string pad(std::string_view text, int64_t width, std::string_view fill, Side side);

/// `name` is a str predicate: isalpha, isdigit, isspace, isupper, ...; nothing when it is not one.
std::optional<bool> classify(std::string_view name, std::string_view text);

/// The Python literal of a string: quotes chosen and characters escaped as repr() does.
std::string quote(std::string_view text);
/// The JSON literal of a string, as json.dumps writes it.
std::string json_quote(std::string_view text, bool ascii_only);
/// Replaces the five characters that HTML treats specially.
std::string escape_html(std::string_view text);
/// The shortest decimal that reads back as `number`, in Python's form.
std::string float_text(double number);
/// int(text, base) and float(text); nothing when Python would raise ValueError. Throws Error for an
/// integer past 64 bits.
std::optional<int64_t> parse_int(std::string_view text, int64_t base);
std::optional<double> parse_float(std::string_view text);

}  // namespace dak::jinja
