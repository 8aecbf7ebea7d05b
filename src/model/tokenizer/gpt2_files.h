#pragma once

#include <filesystem>

#include "model/tokenizer/tokenizer_json.h"

namespace dak {

/// Whether the folder has the two files that GPT-2 and OPT models come with in place of a
/// tokenizer.json: vocab.json and merges.txt.
bool has_gpt2_files(const std::filesystem::path& model_dir);

/// Those files in the form of a tokenizer.json. tokenizer_config.json, if there is one, tells the
/// special tokens, "add_bos_token" and "add_prefix_space". Throws Error on damaged files.
TokenizerJson read_gpt2_files(const std::filesystem::path& model_dir);

}  // namespace dak
