#include <string_view>

#include "base/error.h"
#include "model/chat/jinja_eval.h"
#include "model/chat/jinja_parser.h"

namespace {

/// Work that takes milliseconds, so that the fuzzer sees many templates a second.
constexpr int64_t kWork = 20000;

dak::jinja::Dict make_variables() {
    const auto json = nlohmann::ordered_json::parse(R"({
        "messages": [{"role": "system", "content": " a\n"}, {"role": "user", "content": "héllo"}],
        "tools": [{"type": "function", "function": {"name": "f", "n": [1, 2.5, null, true]}}],
        "bos_token": "<s>", "n": 3, "x": -0.5, "add_generation_prompt": true})");
    dak::jinja::Dict variables;
    for (const auto& [name, value] : json.items()) {
        variables.set(dak::jinja::Value(name), dak::jinja::from_json(value));
    }
    return variables;
}

}  // namespace

// A chat template's source: parsed, and rendered for one conversation.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static const dak::jinja::Dict variables = make_variables();
    try {
        const std::string_view source(reinterpret_cast<const char*>(data), size);
        const auto body = dak::jinja::parse_template(source, "fuzz");
        dak::jinja::render_template(body, variables, "fuzz", kWork);
    } catch (const dak::Error&) {
    }
    return 0;
}
