// Reads one {"template": ..., "variables": {...}} a line and writes one {"text": ...} or
// {"error": ...} a line.

#include <iostream>
#include <string>

#include "model/chat/chat_template.h"

int main() {
    using OrderedJson = nlohmann::ordered_json;
    std::ios::sync_with_stdio(false);
    for (std::string line; std::getline(std::cin, line);) {
        const OrderedJson request = OrderedJson::parse(line);
        OrderedJson reply;
        try {
            const auto source = request.at("template").get<std::string>();
            const auto parsed = dak::ChatTemplate::parse(source, "template");
            reply["text"] = parsed.render(request.at("variables"));
        } catch (const dak::Error& error) {
            reply["error"] = error.what();
        }
        std::cout << reply.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) << '\n';
    }
}
