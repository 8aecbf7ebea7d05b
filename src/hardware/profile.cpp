#include "hardware/profile.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <system_error>

#include "base/error.h"
#include "memory/tier.h"

namespace dak {

namespace {

Json curve_json(const Curve& curve, const char* at, const char* value) {
    Json json = Json::array();
    for (const CurvePoint& point : curve) json.push_back({{at, point.at}, {value, point.value}});
    return json;
}

/// What no machine exceeds, so that whatever is computed from a profile stays finite.
constexpr double kLeastRate = 1e-3;  ///< GB/s, TFLOP/s
constexpr double kMostRate = 1e6;
constexpr double kMostTime = 1e6;  ///< us; also of pure numbers
constexpr int64_t kMostSize = (int64_t{1} << 50) - 1;
constexpr int64_t kMostSms = 4096;

double number(const JsonFields& fields, std::string_view name, double least, double most) {
    const auto value = fields.get<double>(name);
    require(value >= least && value <= most, "{}: field '{}' must be from {} to {}, not {}",
            fields.where(), name, least, most, value);
    return value;
}

/// GB/s or TFLOP/s.
double rate(const JsonFields& fields, std::string_view name) {
    return number(fields, name, kLeastRate, kMostRate);
}

double not_negative(const JsonFields& fields, std::string_view name) {
    return number(fields, name, 0, kMostTime);
}

int64_t size_field(const JsonFields& fields, std::string_view name, int64_t most = kMostSize) {
    const auto value = fields.get<int64_t>(name);
    require(value > 0 && value <= most, "{}: field '{}' must be from 1 to {}, not {}",
            fields.where(), name, most, value);
    return value;
}

/// Text that is printed: one line.
std::string line_field(const JsonFields& fields, std::string_view name, bool required) {
    auto value = required ? fields.get<std::string>(name) : fields.get_or<std::string>(name, "");
    const bool control = std::ranges::any_of(
        value, [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; });
    require(!control, "{}: field '{}' has control characters", fields.where(), name);
    return value;
}

/// "host" or "peer:N".
std::string read_remote(const JsonFields& fields) {
    auto remote = fields.get<std::string>("remote");
    require(is_remote_tier(remote) && peer_of(remote) != 0,
            "{}: field 'remote' must be host or peer:N with N from 1, not '{}'", fields.where(),
            remote);
    return remote;
}

const Json& list_field(const JsonFields& fields, std::string_view name) {
    const Json* const list = fields.find(name);
    require(list != nullptr && list->is_array(), "{}: field '{}' must be a list", fields.where(),
            name);
    return *list;
}

Curve read_curve(const JsonFields& fields, std::string_view name, const char* at,
                 const char* value) {
    Curve curve;
    for (const Json& item : list_field(fields, name)) {
        const JsonFields point(item, fmt::format("{}: {}[{}]", fields.where(), name, curve.size()));
        curve.push_back({number(point, at, 1, static_cast<double>(kMostSize)), rate(point, value)});
        require(curve.size() == 1 || curve[curve.size() - 2].at < curve.back().at,
                "{}: '{}' must ascend", point.where(), at);
    }
    require(!curve.empty(), "{}: field '{}' is an empty list", fields.where(), name);
    return curve;
}

Json sweep_json(const std::vector<WindowPoint>& sweep) {
    Json json = Json::array();
    for (const WindowPoint& point : sweep) {
        json.push_back({{"remote_ctas", point.remote_ctas},
                        {"slots", point.slots},
                        {"in_flight_bytes", point.in_flight_bytes},
                        {"local_gbps", point.local_gbps},
                        {"remote_gbps", point.remote_gbps}});
    }
    return json;
}

std::vector<WindowPoint> read_sweep(const JsonFields& fields) {
    std::vector<WindowPoint> sweep;
    if (!fields.has("window_sweep")) return sweep;
    for (const Json& item : list_field(fields, "window_sweep")) {
        const JsonFields point(item,
                               fmt::format("{}: window_sweep[{}]", fields.where(), sweep.size()));
        sweep.push_back({static_cast<int>(size_field(point, "remote_ctas", kMostSms)),
                         static_cast<int>(size_field(point, "slots", kMostSms)),
                         size_field(point, "in_flight_bytes"), not_negative(point, "local_gbps"),
                         not_negative(point, "remote_gbps")});
    }
    return sweep;
}

Datasheet read_datasheet(const JsonFields& fields) {
    const Json* const json = fields.find("datasheet");
    if (json == nullptr) return {};
    const JsonFields sheet(*json, fields.where() + ": datasheet");
    return {sheet.get_or<double>("local_gbps", 0), sheet.get_or<double>("link_gbps", 0),
            sheet.get_or<double>("tflops", 0)};
}

std::map<std::string, std::string> read_sources(const JsonFields& fields) {
    std::map<std::string, std::string> sources;
    const Json* const json = fields.find("sources");
    if (json == nullptr) return sources;
    const JsonFields texts(*json, fields.where() + ": sources");
    for (const auto& item : json->items()) {
        sources[item.key()] = texts.get<std::string>(item.key());
    }
    return sources;
}

/// Letters, digits and dashes of a text, for a file name.
std::string slug(std::string_view text) {
    std::string result;
    for (const char c : text) {
        const bool keep = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == '.';
        const bool upper = c >= 'A' && c <= 'Z';
        if (keep || upper) {
            result += upper ? static_cast<char>(c - 'A' + 'a') : c;
        } else if (!result.empty() && result.back() != '-') {
            result += '-';
        }
    }
    return result;
}

/// Below $XDG_CACHE_HOME or $HOME; empty: neither is set.
std::filesystem::path cache_folder() {
    if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache == '/') {
        return std::filesystem::path(cache) / "dak";
    }
    const char* const home = std::getenv("HOME");
    if (home == nullptr || *home == '\0') return {};
    return std::filesystem::path(home) / ".cache" / "dak";
}

}  // namespace

double interpolate(const Curve& curve, double at) {
    require(!curve.empty(), "internal error: a curve of the hardware profile has no points");
    if (at <= curve.front().at) return curve.front().value;
    if (at >= curve.back().at) return curve.back().value;
    const auto above = std::ranges::upper_bound(curve, at, {}, &CurvePoint::at);
    const CurvePoint& left = *(above - 1);
    const double share = std::log(at / left.at) / std::log(above->at / left.at);
    return left.value + share * (above->value - left.value);
}

Json to_json(const HardwareProfile& profile) {
    return {
        {"schema_version", HardwareProfile::kSchemaVersion},
        {"name", profile.name},
        {"gpu", profile.gpu},
        {"gpu_uuid", profile.gpu_uuid},
        {"driver", profile.driver},
        {"link", profile.link},
        {"date", profile.date},
        {"measured", profile.measured},
        {"remote", profile.remote},
        {"sms", profile.sms},
        {"gpu_memory_bytes", profile.gpu_memory_bytes},
        {"remote_memory_bytes", profile.remote_memory_bytes},
        {"local_gbps", profile.local_gbps},
        {"remote_direct_gbps", profile.remote_direct_gbps},
        {"staged_gbps", curve_json(profile.staged_gbps, "piece_bytes", "gbps")},
        {"staging_write_cost", profile.staging_write_cost},
        {"staging_slowdown", profile.staging_slowdown},
        {"staging_contention", profile.staging_contention},
        {"window_bytes", profile.window_bytes},
        {"direct_once_tokens", profile.direct_once_tokens},
        {"kernel_us", curve_json(profile.kernel_us, "tokens", "us")},
        {"gemm_tflops", curve_json(profile.gemm_tflops, "tokens", "tflops")},
        {"small_kernel_us", profile.small_kernel_us},
        {"step_us", profile.step_us},
        {"attention_local_gbps", profile.attention_local_gbps},
        {"attention_us", profile.attention_us},
        {"attention_item_us", profile.attention_item_us},
        {"small_kernel_gbps", profile.small_kernel_gbps},
        {"attention_tflops", profile.attention_tflops},
        {"datasheet",
         {{"local_gbps", profile.datasheet.local_gbps},
          {"link_gbps", profile.datasheet.link_gbps},
          {"tflops", profile.datasheet.tflops}}},
        {"window_sweep", sweep_json(profile.window_sweep)},
        {"window_sum_gbps", profile.window_sum_gbps},
        {"sources", profile.sources},
    };
}

HardwareProfile parse_hardware_profile(const Json& json, const std::string& where) {
    const JsonFields fields(json, where);
    const auto version = fields.get<int64_t>("schema_version");
    require(version == HardwareProfile::kSchemaVersion,
            "{}: hardware profile of schema version {}, but this program reads version {}; measure "
            "again with 'dak profile --force --remote {}', and -o FILE for a file of your own",
            where, version, HardwareProfile::kSchemaVersion,
            fields.get_or<std::string>("remote", "host"));
    HardwareProfile profile;
    profile.name = line_field(fields, "name", true);
    profile.gpu = line_field(fields, "gpu", true);
    profile.gpu_uuid = line_field(fields, "gpu_uuid", false);
    profile.driver = line_field(fields, "driver", false);
    profile.link = line_field(fields, "link", false);
    profile.date = line_field(fields, "date", false);
    profile.measured = fields.get_or<bool>("measured", false);
    profile.remote = read_remote(fields);
    profile.sms = static_cast<int>(size_field(fields, "sms", kMostSms));
    profile.gpu_memory_bytes = size_field(fields, "gpu_memory_bytes");
    profile.remote_memory_bytes = size_field(fields, "remote_memory_bytes");
    profile.local_gbps = rate(fields, "local_gbps");
    profile.remote_direct_gbps = rate(fields, "remote_direct_gbps");
    profile.staged_gbps = read_curve(fields, "staged_gbps", "piece_bytes", "gbps");
    profile.staging_write_cost = not_negative(fields, "staging_write_cost");
    profile.staging_slowdown = number(fields, "staging_slowdown", 1, kMostTime);
    profile.staging_contention = number(fields, "staging_contention", 1, kMostTime);
    profile.window_bytes = size_field(fields, "window_bytes");
    profile.direct_once_tokens = size_field(fields, "direct_once_tokens");
    profile.kernel_us = read_curve(fields, "kernel_us", "tokens", "us");
    profile.gemm_tflops = read_curve(fields, "gemm_tflops", "tokens", "tflops");
    profile.small_kernel_us = not_negative(fields, "small_kernel_us");
    profile.step_us = not_negative(fields, "step_us");
    profile.attention_local_gbps = rate(fields, "attention_local_gbps");
    profile.attention_us = not_negative(fields, "attention_us");
    profile.attention_item_us = not_negative(fields, "attention_item_us");
    profile.small_kernel_gbps = rate(fields, "small_kernel_gbps");
    profile.attention_tflops = rate(fields, "attention_tflops");
    profile.datasheet = read_datasheet(fields);
    profile.window_sweep = read_sweep(fields);
    profile.window_sum_gbps = fields.get_or<double>("window_sum_gbps", 0);
    profile.sources = read_sources(fields);
    return profile;
}

HardwareProfile read_hardware_profile(const std::filesystem::path& path) {
    return parse_hardware_profile(read_json_file(path), path.string());
}

void write_hardware_profile(const std::filesystem::path& path, const HardwareProfile& profile) {
    std::error_code error;
    if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), error);
    require(!error, "{}: cannot make the folder: {}", path.parent_path().string(), error.message());
    const std::filesystem::path draft = fmt::format("{}.{}", path.string(), ::getpid());
    std::ofstream file(draft);
    file << to_json(profile).dump(1) << '\n';
    file.close();
    require(file.good(), "{}: cannot be written: {}", draft.string(), std::strerror(errno));
    std::filesystem::rename(draft, path, error);
    require(!error, "{}: cannot be written: {}", path.string(), error.message());
}

bool has_profile_cache() { return !cache_folder().empty(); }

std::filesystem::path profile_cache_path(std::string_view gpu_uuid, std::string_view driver,
                                         std::string_view link, std::string_view remote) {
    require(has_profile_cache(), "no folder for measured profiles: set HOME or XDG_CACHE_HOME");
    return cache_folder() / fmt::format("profile-{}-{}-{}-{}.json", slug(gpu_uuid), slug(driver),
                                        slug(link), slug(remote));
}

}  // namespace dak
