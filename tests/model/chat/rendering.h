#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "model/chat/chat_template.h"

namespace dak {

/// The rendered text of `source`, whose errors call it "t".
inline std::string render(std::string_view source, const nlohmann::ordered_json& variables =
                                                       nlohmann::ordered_json::object()) {
    return ChatTemplate::parse(source, "t").render(variables);
}

/// The message of the error that parsing or rendering `source` ends in.
inline std::string error_of(std::string_view source, const nlohmann::ordered_json& variables =
                                                         nlohmann::ordered_json::object()) {
    try {
        return "no error, but the text: " + render(source, variables);
    } catch (const Error& error) {
        return error.what();
    }
}

}  // namespace dak
