#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/prompt_builder.h"
#include "engine/request.h"

namespace dak {

/// One line of a batch file.
struct BatchItem {
    Json id;  ///< the line's "id", else its number
    Request request;
};

/// Reads a JSONL file of prompts, one object a line with "prompt" (text) or "messages" (a list of
/// {role, content}), and optionally "id" and any of the generation options by the names of
/// Request and Sampling. What a line does not say is taken from `defaults`. Blank lines are
/// skipped. Throws Error naming the line; nothing has been generated then.
std::vector<BatchItem> read_batch_file(const std::filesystem::path& path, const Request& defaults,
                                       const PromptBuilder& prompts, const ModelConfig& config);

/// All of a file or pipe, or of standard input for "-".
std::string read_input(const std::filesystem::path& path);

/// One line of output.
Json to_json(const Json& id, const Completion& completion);

}  // namespace dak
