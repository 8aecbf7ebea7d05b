#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace dak {

using Json = nlohmann::json;

/// Parses `text`; `where` names its source in the error. Throws Error naming the line and column
/// of the fault. Nesting deeper than 100 levels is refused.
Json parse_json(std::string_view text, std::string_view where);

/// The same, with a say in what is kept: `keep` sees every key, value, beginning and end of a
/// container as it is read, with its depth (0 = the document), and drops it by returning false. So
/// a large part can be put elsewhere without ever being a JSON tree. An Error that it throws names
/// `where`.
Json parse_json(std::string_view text, std::string_view where, const Json::parser_callback_t& keep);

/// Reads and parses one JSON file.
Json read_json_file(const std::filesystem::path& path);

/// A JSON object with the name of the place it came from, for reading fields with clear errors.
/// Refers to `object`, which must outlive it.
class JsonFields {
  public:
    /// Throws Error when `object` is no JSON object.
    JsonFields(const Json& object, std::string where);

    const std::string& where() const { return where_; }

    /// Whether the field is there, be it JSON null.
    bool has(std::string_view name) const { return object_->contains(name); }

    /// The field's value, or null when the field is absent or JSON null.
    const Json* find(std::string_view name) const;

    /// The field as T (int64_t, double, bool or std::string), or nothing when absent or null.
    /// Throws Error when it has another type.
    template <typename T>
    std::optional<T> maybe(std::string_view name) const;

    template <typename T>
    T get_or(std::string_view name, T fallback) const {
        return maybe<T>(name).value_or(std::move(fallback));
    }

    /// Throws Error when the field is absent.
    template <typename T>
    T get(std::string_view name) const {
        auto value = maybe<T>(name);
        if (!value) fail("{}: field '{}' is missing", where_, name);
        return *std::move(value);
    }

  private:
    const Json* object_;
    std::string where_;
};

}  // namespace dak
