#include "cli/batch_file.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <set>

#include "engine/engine.h"

namespace dak {

namespace {

std::vector<ChatMessage> read_messages(const Json& messages, const std::string& where) {
    require(messages.is_array() && !messages.empty(),
            "{}: 'messages' must be a list of {{\"role\", \"content\"}} objects", where);
    std::vector<ChatMessage> conversation;
    for (const Json& message : messages) {
        const JsonFields fields(message, where + ": messages");
        conversation.push_back(
            {fields.get<std::string>("role"), fields.get<std::string>("content")});
    }
    return conversation;
}

std::vector<std::string> read_stop(const Json& stop, const std::string& where) {
    if (stop.is_string()) return {stop.get<std::string>()};
    require(stop.is_array(), "{}: 'stop' must be a string or a list of strings", where);
    std::vector<std::string> strings;
    for (const Json& string : stop) {
        require(string.is_string(), "{}: 'stop' must be a string or a list of strings", where);
        strings.push_back(string.get<std::string>());
    }
    return strings;
}

void check_names(const Json& line, const std::string& where) {
    static const std::set<std::string> kKnown = {"id",
                                                 "prompt",
                                                 "messages",
                                                 "max_new_tokens",
                                                 "temperature",
                                                 "top_k",
                                                 "top_p",
                                                 "min_p",
                                                 "seed",
                                                 "stop",
                                                 "repetition_penalty",
                                                 "ignore_eos",
                                                 "presence_penalty",
                                                 "frequency_penalty"};
    for (const auto& [name, value] : line.items()) {
        require(kKnown.contains(name), "{}: unknown field '{}'; known are {}", where, name,
                fmt::join(kKnown, ", "));
    }
}

BatchItem read_item(const Json& line, int64_t number, const std::string& where,
                    const Request& defaults, const PromptBuilder& prompts,
                    const ModelConfig& config) {
    const JsonFields fields(line, where);
    check_names(line, where);
    BatchItem item{number, defaults};
    Request& request = item.request;
    if (const Json* id = fields.find("id")) {
        require(id->is_string() || id->is_number_integer(),
                "{}: 'id' must be a string or an integer of at most 64 bits", where);
        item.id = *id;
    }
    request.max_new_tokens = fields.get_or<int64_t>("max_new_tokens", defaults.max_new_tokens);
    request.ignore_eos = fields.get_or<bool>("ignore_eos", defaults.ignore_eos);
    if (const Json* stop = fields.find("stop")) request.stop = read_stop(*stop, where);
    ops::Sampling& sampling = request.sampling;
    const auto read = [&](const char* name, float& value) {
        value = static_cast<float>(fields.get_or<double>(name, value));
    };
    read("temperature", sampling.temperature);
    read("top_p", sampling.top_p);
    read("min_p", sampling.min_p);
    read("repetition_penalty", sampling.repetition_penalty);
    read("presence_penalty", sampling.presence_penalty);
    read("frequency_penalty", sampling.frequency_penalty);
    const auto top_k = fields.get_or<int64_t>("top_k", sampling.top_k);
    require(top_k >= 0 && top_k <= INT32_MAX, "{}: 'top_k' is out of range ({})", where, top_k);
    sampling.top_k = static_cast<int32_t>(top_k);
    if (const Json* seed = fields.find("seed")) {
        require(seed->is_number_unsigned(), "{}: 'seed' must be an integer from 0 on", where);
        sampling.seed = seed->get<uint64_t>();
    }

    const Json* messages = fields.find("messages");
    require((fields.find("prompt") != nullptr) != (messages != nullptr),
            "{}: give either 'prompt' or 'messages'", where);
    request.prompt =
        messages ? prompts.from_messages(read_messages(*messages, where), request.max_new_tokens)
                 : prompts.from_text(fields.get<std::string>("prompt"), request.max_new_tokens);
    Engine::validate(request, config);
    return item;
}

}  // namespace

std::string read_input(const std::filesystem::path& path) {
    std::ifstream file;
    if (path != "-") {
        require(!std::filesystem::is_directory(path), "cannot read {}: it is a folder",
                path.string());
        file.open(path);
        require(file.good(), "cannot open {}: {}", path.string(), std::strerror(errno));
    }
    std::istream& stream = path == "-" ? std::cin : file;
    return {std::istreambuf_iterator<char>(stream), {}};
}

std::vector<BatchItem> read_batch_file(const std::filesystem::path& path, const Request& defaults,
                                       const PromptBuilder& prompts, const ModelConfig& config) {
    const std::string text = read_input(path);
    std::map<Json, int64_t> line_of_id;
    std::vector<BatchItem> items;
    int64_t number = 0;
    for (size_t begin = 0; begin < text.size();) {
        const size_t end = std::min(text.find('\n', begin), text.size());
        const std::string_view line(text.data() + begin, end - begin);
        begin = end + 1;
        ++number;
        if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
        const std::string where = fmt::format("{} line {}", path.string(), number);
        const Json json = parse_json(line, where);
        try {
            items.push_back(read_item(json, number, where, defaults, prompts, config));
            const auto [first, is_new] = line_of_id.emplace(items.back().id, number);
            require(is_new, "the id {} is already that of line {}", first->first.dump(),
                    first->second);
        } catch (const Error& error) {
            const std::string_view message = error.what();
            if (message.starts_with(where)) throw;
            fail("{}: {}", where, message);
        }
    }
    require(!items.empty(), "{}: no prompts in it", path.string());
    return items;
}

Json to_json(const Json& id, const Completion& completion) {
    Json line = {{"id", id},
                 {"text", completion.text},
                 {"finish", std::string(name_of(completion.finish))},
                 {"prompt_tokens", completion.prompt_tokens},
                 {"tokens", completion.tokens},
                 {"ttft_ms", completion.ttft_seconds * 1e3},
                 {"tpot_ms", completion.tpot_seconds * 1e3}};
    if (!completion.error.empty()) line["error"] = completion.error;
    return line;
}

}  // namespace dak
