#include "hardware/pseudo_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>

#include "base/units.h"

namespace dak {

namespace {
/// Linux is built for at most 8,192 CPUs; a larger number is a malformed list.
constexpr int64_t kMaxCpus = 8192;
}  // namespace

std::optional<std::string> read_pseudo_file(const std::filesystem::path& path) {
    // These files have size 0 and must be read to their end, unlike those of base/file.h.
    std::ifstream stream(path);
    std::ostringstream text;
    if (!stream || !(text << stream.rdbuf())) return {};
    return std::string(trim(text.str()));
}

std::optional<int64_t> read_pseudo_integer(const std::filesystem::path& path) {
    const auto text = read_pseudo_file(path);
    return text ? parse_integer(*text) : std::nullopt;
}

std::optional<int64_t> parse_integer(std::string_view text) {
    int64_t value = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc{} || stop != end) return {};
    return value;
}

std::string_view trim(std::string_view text) {
    constexpr std::string_view kSpace = " \t\r\n";
    const size_t first = text.find_first_not_of(kSpace);
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
    std::vector<std::string_view> pieces;
    while (!text.empty()) {
        const size_t end = std::min(text.find(separator), text.size());
        if (end > 0) pieces.push_back(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return pieces;
}

std::optional<std::string_view> find_field(std::string_view text, std::string_view key) {
    for (const std::string_view line : split(text, '\n')) {
        const size_t colon = line.find(':');
        if (colon == std::string_view::npos || trim(line.substr(0, colon)) != key) continue;
        return trim(line.substr(colon + 1));
    }
    return {};
}

std::optional<int64_t> find_kib_field(std::string_view text, std::string_view key) {
    const auto value = find_field(text, key);
    if (!value || !value->ends_with(" kB")) return {};
    const auto kib = parse_integer(trim(value->substr(0, value->size() - 3)));
    if (!kib || *kib < 0 || *kib > INT64_MAX / kKiB) return {};
    return *kib * kKiB;
}

std::vector<int> parse_cpu_list(std::string_view text) {
    std::vector<int> cpus;
    for (const std::string_view piece : split(text, ',')) {
        const std::string_view range = trim(piece);
        const size_t dash = range.find('-');
        const auto first = parse_integer(range.substr(0, dash));
        const auto last =
            dash == std::string_view::npos ? first : parse_integer(range.substr(dash + 1));
        if (!first || !last || *first < 0 || *last >= kMaxCpus) continue;
        for (int64_t cpu = *first; cpu <= *last; ++cpu) cpus.push_back(static_cast<int>(cpu));
    }
    return cpus;
}

std::string format_cpu_list(const std::vector<int>& cpus) {
    std::string text;
    for (size_t begin = 0, end = 0; begin < cpus.size(); begin = end) {
        end = begin + 1;
        while (end < cpus.size() && cpus[end] == cpus[end - 1] + 1) ++end;
        if (!text.empty()) text += ',';
        text += fmt::format("{}", cpus[begin]);
        if (end - begin > 1) text += fmt::format("-{}", cpus[end - 1]);
    }
    return text;
}

}  // namespace dak
