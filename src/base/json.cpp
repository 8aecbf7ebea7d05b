#include "base/json.h"

#include <algorithm>
#include <cmath>

#include "base/file.h"

namespace dak {

namespace {

constexpr int kMaxDepth = 100;

}  // namespace

Json parse_json(std::string_view text, std::string_view where) {
    return parse_json(text, where, [](int, Json::parse_event_t, Json&) { return true; });
}

Json parse_json(std::string_view text, std::string_view where,
                const Json::parser_callback_t& keep) {
    // nlohmann::json destroys and compares values recursively, so depth is bounded while parsing.
    const auto keep_bounded = [&](int depth, Json::parse_event_t event, Json& parsed) {
        if (depth > kMaxDepth) fail("nested deeper than {} levels", kMaxDepth);
        return keep(depth, event, parsed);
    };
    try {
        return Json::parse(text, keep_bounded);
    } catch (const Json::parse_error& error) {
        const size_t offset = std::min(text.size(), error.byte > 0 ? error.byte - 1 : 0);
        const std::string_view before = text.substr(0, offset);
        const auto line = 1 + std::count(before.begin(), before.end(), '\n');
        const size_t column = offset - before.rfind('\n');  // npos is -1
        const bool one_line = text.find('\n') == std::string_view::npos;
        fail("{}: not valid JSON at {}column {}", where,
             one_line ? "" : fmt::format("line {}, ", line), column);
    } catch (const Json::out_of_range&) {
        fail("{}: a number in it is too large", where);
    } catch (const Json::exception& error) {
        fail("{}: not valid JSON: {}", where, error.what());
    } catch (const Error& error) {
        fail("{}: {}", where, error.what());
    }
}

Json read_json_file(const std::filesystem::path& path) {
    return parse_json(read_text_file(path), path.string());
}

JsonFields::JsonFields(const Json& object, std::string where)
    : object_(&object), where_(std::move(where)) {
    require(object.is_object(), "{}: expected a JSON object, found {}", where_, object.type_name());
}

const Json* JsonFields::find(std::string_view name) const {
    const auto it = object_->find(name);
    return it == object_->end() || it->is_null() ? nullptr : &*it;
}

template <>
std::optional<int64_t> JsonFields::maybe(std::string_view name) const {
    const Json* value = find(name);
    if (!value) return {};
    if (value->is_number_unsigned() && value->get<uint64_t>() > INT64_MAX) {
        fail("{}: field '{}' is too large ({})", where_, name, value->dump());
    }
    if (value->is_number_integer()) return value->get<int64_t>();
    // Some tools write integers as 1e4 or 10000.0.
    if (value->is_number_float()) {
        const double number = value->get<double>();
        if (std::abs(number) < 0x1p53 && number == std::floor(number)) {
            return static_cast<int64_t>(number);
        }
    }
    fail("{}: field '{}' must be an integer, found {}", where_, name, value->dump().substr(0, 40));
}

template <>
std::optional<double> JsonFields::maybe(std::string_view name) const {
    const Json* value = find(name);
    if (!value) return {};
    require(value->is_number(), "{}: field '{}' must be a number, found {}", where_, name,
            value->type_name());
    return value->get<double>();
}

template <>
std::optional<bool> JsonFields::maybe(std::string_view name) const {
    const Json* value = find(name);
    if (!value) return {};
    require(value->is_boolean(), "{}: field '{}' must be true or false, found {}", where_, name,
            value->type_name());
    return value->get<bool>();
}

template <>
std::optional<std::string> JsonFields::maybe(std::string_view name) const {
    const Json* value = find(name);
    if (!value) return {};
    require(value->is_string(), "{}: field '{}' must be a string, found {}", where_, name,
            value->type_name());
    return value->get<std::string>();
}

}  // namespace dak
