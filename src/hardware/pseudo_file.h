#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dak {

// Reading the small text files of procfs and sysfs. A file or field that is not there is nothing
// to fail over: kernels, containers and virtual machines each leave some out.

/// The file's text without white space at its ends; nothing when it cannot be read.
std::optional<std::string> read_pseudo_file(const std::filesystem::path& path);

/// The file's content as a decimal integer; nothing when it is not one.
std::optional<int64_t> read_pseudo_integer(const std::filesystem::path& path);

/// A decimal integer and nothing else; nothing when `text` is not one or is out of range.
std::optional<int64_t> parse_integer(std::string_view text);

std::string_view trim(std::string_view text);

/// The pieces between `separator`s, empty ones left out.
std::vector<std::string_view> split(std::string_view text, char separator);

/// The value of the first line "key : value", white space around both ignored.
std::optional<std::string_view> find_field(std::string_view text, std::string_view key);

/// Bytes of a "key: 123 kB" line.
std::optional<int64_t> find_kib_field(std::string_view text, std::string_view key);

/// The kernel's list format: "0-2,8" is {0, 1, 2, 8}. Malformed pieces are left out.
std::vector<int> parse_cpu_list(std::string_view text);

/// The reverse: {0, 1, 2, 8} is "0-2,8". `cpus` is ascending.
std::string format_cpu_list(const std::vector<int>& cpus);

}  // namespace dak
