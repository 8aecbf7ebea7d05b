#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/file.h"
#include "base/json.h"
#include "cli/gpu_engine.h"
#include "run_cli.h"
#include "temp_folder.h"

namespace dak {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

using ::testing::StartsWith;

namespace fs = std::filesystem;

/// A copy of a tiny model, to be damaged, with a tokenizer of printable ASCII characters.
class CliRun : public ::testing::Test {
  protected:
    void SetUp() override {
        copy("qwen3");
        Json vocab = Json::object();
        for (int id = 0; id < 94; ++id) vocab[std::string(1, static_cast<char>('!' + id))] = id;
        write("tokenizer.json",
              Json{{"version", "1.0"},
                   {"added_tokens", Json::array()},
                   {"normalizer", nullptr},
                   {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
                   {"post_processor", nullptr},
                   {"decoder", {{"type", "ByteLevel"}}},
                   {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", Json::array()}}}}
                  .dump());
    }

    void copy(const std::string& golden) {
        for (const auto& entry : fs::directory_iterator(DAK_TEST_DATA "/golden/" + golden)) {
            const fs::path name = entry.path().filename();
            if (!name.string().starts_with("expected")) fs::copy(entry.path(), model_ / name);
        }
    }

    fs::path write(const std::string& name, const std::string& text) const {
        return folder_.write(name, text);
    }

    void edit_config(const std::string& field, const Json& value) const {
        Json config = read_json_file(model_ / "config.json");
        config[field] = value;
        write("config.json", config.dump());
    }

    CliResult run(std::vector<std::string> arguments, std::string_view input = {}) const {
        arguments.insert(arguments.begin(), {"run", model_.string(), "--device", "cpu"});
        return run_cli(arguments, input);
    }

    /// One clear line, nothing on standard output, status 1.
    static void expect_error(const CliResult& result, const std::string& part) {
        EXPECT_EQ(result.status, 1);
        EXPECT_THAT(result.out, IsEmpty());
        EXPECT_THAT(result.err, AllOf(StartsWith("dak: error: "), HasSubstr(part)));
        EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    }

    testing_support::TempFolder folder_;
    fs::path model_ = folder_.path();
};

TEST_F(CliRun, StreamsTheAnswerAndReports) {
    const CliResult result = run({"--prompt", "hello", "-n", "12"});
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.out.back(), '\n');
    EXPECT_THAT(result.err, AllOf(HasSubstr("Qwen3ForCausalLM, bf16"), HasSubstr("KV cache"),
                                  HasSubstr("prefill 5 tokens"), HasSubstr("decode 11 tokens"),
                                  HasSubstr("EB "), HasSubstr("peak memory ")));
}

TEST_F(CliRun, SameAnswerAtEveryRatioFromEverySource) {
    const std::string expected = run({"-p", "hello", "-n", "40", "-q"}).out;
    EXPECT_GT(expected.size(), 10u);
    for (const char* ratio : {"0.1", "0.3", "0.777", "1"}) {
        const CliResult result = run({"-p", "hello", "-n", "40", "--offload-ratio", ratio});
        EXPECT_EQ(result.out, expected) << ratio;
        EXPECT_THAT(result.err, HasSubstr("Both tiers are host memory"));
    }
    const fs::path file = write("prompt.txt", "hello");
    EXPECT_EQ(run({"--prompt-file", file.string(), "-n", "40", "-q"}).out, expected);
    const CliResult piped = run({"-n", "40", "-q"}, "hello");
    EXPECT_EQ(piped.out, expected);
    EXPECT_THAT(piped.err, IsEmpty());
}

TEST_F(CliRun, NoOptionOfTheGpuIsIgnored) {
    for (const auto& [option, value] :
         std::vector<std::pair<std::string, std::string>>{{"--gpu-memory", "1GiB"},
                                                          {"--host-memory", "1GiB"},
                                                          {"--remote", "host"},
                                                          {"--place", "lm_head=remote"},
                                                          {"--transport", "staged"},
                                                          {"--policy", "uniform"},
                                                          {"--hardware", "gh200"}}) {
        expect_error(run({"-p", "hi", option, value}),
                     option + " is for the GPU, but this runs on the CPU (--device cpu)");
    }
}

TEST_F(CliRun, DeviceGpuSaysWhatIsMissing) {
    if (gpu_obstacle(gather_system()).empty()) GTEST_SKIP() << "this machine runs models on a GPU";
    expect_error(run_cli({"run", model_.string(), "-p", "hi", "--device", "gpu"}),
                 "--device gpu: ");
}

TEST(CliBench, NeedsAGpu) {
    if (gpu_obstacle(gather_system()).empty()) GTEST_SKIP() << "this machine runs models on a GPU";
    const CliResult result = run_cli({"bench", "opt-125m"});
    EXPECT_EQ(result.status, 1);
    EXPECT_THAT(result.err, StartsWith("dak: error: dak bench measures a GPU: "));
}

TEST_F(CliRun, SeedRepeatsADraw) {
    const auto draw = [&](const char* seed) {
        return run({"-p", "hi", "-n", "20", "-t", "1.5", "--top-p", "0.9", "--seed", seed, "-q"})
            .out;
    };
    EXPECT_EQ(draw("1"), draw("1"));
    EXPECT_NE(draw("1"), draw("2"));
}

TEST_F(CliRun, ChatTemplateUnlessRaw) {
    write(
        "tokenizer_config.json",
        R"({"chat_template": "{% for m in messages %}[{{ m.role[0] }}]{{ m.content }}{% endfor %}"})");
    EXPECT_THAT(run({"-p", "hello", "-n", "2"}).err, HasSubstr("prefill 8 tokens"));
    EXPECT_THAT(run({"-p", "hello", "-n", "2", "--raw"}).err, HasSubstr("prefill 5 tokens"));
    EXPECT_THAT(run({"-p", "hello", "-n", "2", "--system", "x"}).err,
                HasSubstr("prefill 12 tokens"));
    write("tokenizer_config.json", R"({"chat_template": "{{ raise_exception('no users') }}"})");
    expect_error(run({"-p", "hello"}), "no users");
}

std::vector<Json> parse_lines(const std::string& text) {
    std::vector<Json> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(parse_json(line, "line"));
    return lines;
}

TEST_F(CliRun, BatchFileAnswersInOrder) {
    std::string prompts;
    for (int i = 0; i < 7; ++i) {
        prompts += Json{{"prompt", std::string(static_cast<size_t>(1 + 9 * i % 7), 'a')},
                        {"max_new_tokens", 3 + 5 * i % 11}}
                       .dump() +
                   "\n\n";
    }
    prompts += R"({"id": "last", "prompt": "hello", "stop": ["never"], "temperature": 0.5})";
    const fs::path file = write("prompts.jsonl", prompts);
    const fs::path answers = model_ / "answers.jsonl";
    const CliResult result = run({"--batch-file", file.string(), "-o", answers.string(), "-n", "9",
                                  "--batch-size", "3", "--offload-ratio", "0.4"});
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_THAT(result.out, IsEmpty());
    const auto lines = parse_lines(read_text_file(answers));
    ASSERT_EQ(lines.size(), 8u);
    for (int i = 0; i < 7; ++i) {
        const Json& line = lines[static_cast<size_t>(i)];
        EXPECT_EQ(line["id"], 1 + 2 * i);
        EXPECT_EQ(line["finish"], "length");
        EXPECT_EQ(line["prompt_tokens"], 1 + 9 * i % 7);
        EXPECT_EQ(line["tokens"].size(), static_cast<size_t>(3 + 5 * i % 11));
    }
    EXPECT_EQ(lines[7]["id"], "last");
    EXPECT_EQ(lines[7]["tokens"].size(), 9u);
    // Without -o the lines go to standard output.
    EXPECT_EQ(parse_lines(run({"--batch-file", file.string(), "-n", "9"}).out).size(), 8u);
}

TEST_F(CliRun, RandomWeightsAnswerInTokens) {
    for (const char* file : {"model.safetensors", "tokenizer.json"}) fs::remove(model_ / file);
    const auto run_random = [&](std::vector<std::string> arguments) {
        arguments.insert(arguments.begin(), {"run", "--random-weights", model_.string(), "--device",
                                             "cpu", "--prompt-tokens", "5", "-n", "7"});
        return run_cli(arguments);
    };
    const auto tokens = [](const CliResult& result) {
        std::vector<Json> answers;
        for (const Json& line : parse_lines(result.out)) answers.push_back(line["tokens"]);
        return answers;
    };
    const CliResult result = run_random({"--batch-size", "3"});
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_THAT(result.err, AllOf(HasSubstr("Qwen3ForCausalLM"), HasSubstr("prefill 15 tokens"),
                                  HasSubstr("decode 18 tokens")));
    const auto lines = parse_lines(result.out);
    ASSERT_EQ(lines.size(), 3u);
    for (int i = 0; i < 3; ++i) {
        const Json& line = lines[static_cast<size_t>(i)];
        EXPECT_EQ(line["id"], i + 1);
        EXPECT_EQ(line["prompt_tokens"], 5);
        EXPECT_EQ(line["tokens"].size(), 7u);
    }
    const auto expected = tokens(result);
    EXPECT_EQ(tokens(run_random({"--batch-size", "3", "--offload-ratio", "0.4", "-q"})), expected);
    EXPECT_NE(tokens(run_random({"--batch-size", "3", "--seed", "1", "-q"})), expected);
    const fs::path file = model_ / "answers.jsonl";
    EXPECT_THAT(run_random({"--batch-size", "3", "-o", file.string()}).out, IsEmpty());
    EXPECT_EQ(parse_lines(read_text_file(file)).size(), 3u);
    expect_error(run_random({"-o", (model_ / "config.json").string()}), "would overwrite");
    edit_config("max_position_embeddings", 5);
    expect_error(run_random({"-q"}), "the model's context holds 5");
}

TEST(CliRunRandomWeights, OfABuiltInModel) {
    const CliResult result = run_cli({"run", "--random-weights", "opt-125m", "--device", "cpu",
                                      "--batch-size", "1", "-n", "1", "-q"});
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(parse_lines(result.out).size(), 1u);
    EXPECT_THAT(run_cli({"run", "--random-weights", "opt-126m"}).err,
                AllOf(StartsWith("dak: error: 'opt-126m' is neither"), HasSubstr("opt-125m")));
}

TEST(CliRunRandomWeights, ReplaceModelAndText) {
    for (const std::vector<std::string>& arguments :
         std::vector<std::vector<std::string>>{{},
                                               {"--random-weights", "opt-125m", "folder"},
                                               {"--random-weights", "opt-125m", "-p", "hello"},
                                               {"--random-weights", "opt-125m", "--stop", "a"},
                                               {"folder", "--prompt-tokens", "3"}}) {
        std::vector<std::string> words = {"run"};
        words.insert(words.end(), arguments.begin(), arguments.end());
        const CliResult result = run_cli(words);
        EXPECT_EQ(result.status, 2) << result.err;
        EXPECT_THAT(result.err, HasSubstr("Try 'dak run --help'"));
    }
}

TEST_F(CliRun, RefusesBadBatchFiles) {
    const auto refused = [&](const std::string& lines, const std::string& part) {
        const fs::path file = write("prompts.jsonl", lines);
        expect_error(run({"--batch-file", file.string()}), part);
    };
    refused("", "no prompts");
    refused("{\"prompt\": \"a\"}\n{\"prompt\": ",
            "prompts.jsonl line 2: not valid JSON at column 12");
    refused("{\"id\": 2, \"prompt\": \"a\"}\n{\"prompt\": \"b\"}",
            "line 2: the id 2 is already that");
    refused(R"({"id": 99999999999999999999999, "prompt": "a"})", "'id' must be");
    refused(R"({"prompt": "a", "temperature": 1e999})", "line 1: a number in it is too large");
    refused(R"({"prompt": "a", "seed": -1})", "'seed' must be");
    refused(R"({"prompt": "a", "max_tokens": 5})", "line 1: unknown field 'max_tokens'");
    refused(R"({"text": "a"})", "unknown field 'text'");
    refused(R"({"id": 1})", "line 1: give either 'prompt' or 'messages'");
    refused(R"({"prompt": "a", "temperature": -1})", "line 1: temperature must be");
    refused(R"({"prompt": 5})", "'prompt' must be a string");
    refused(R"({"messages": [{"role": "user", "content": "x"}]})",
            "need a model with a chat template");
    refused(R"({"prompt": ")" + std::string(400, 'a') + R"("})", "line 1: the prompt has 400");
    expect_error(run({"--batch-file", (model_ / "absent").string()}), "No such file");
}

TEST_F(CliRun, AnswersNeverReplaceWhatIsRead) {
    const std::string line = R"({"prompt": "a"})";
    const fs::path file = write("prompts.jsonl", line);
    fs::create_hard_link(file, model_ / "link.jsonl");
    for (const char* name : {"prompts.jsonl", "link.jsonl", "model.safetensors", "config.json"}) {
        const auto size = fs::file_size(model_ / name);
        expect_error(run({"--batch-file", file.string(), "-o", (model_ / name).string()}),
                     "would overwrite");
        EXPECT_EQ(fs::file_size(model_ / name), size);
    }
    // Older answers survive a run that fails before it has any.
    const fs::path old = write("old.jsonl", "old");
    fs::resize_file(model_ / "model.safetensors", 1000);
    expect_error(run({"--batch-file", file.string(), "-o", old.string(), "-q"}), "truncated");
    EXPECT_EQ(read_text_file(old), "old");
}

TEST_F(CliRun, RefusesTextThatIsNotUtf8) {
    expect_error(run({"-p", "a\xff"}), "the prompt is not valid UTF-8");
    expect_error(run({"-q"}, "a\xff"), "the prompt is not valid UTF-8");
    expect_error(run({"-p", "a", "--stop", "\xff"}), "the text of --stop is not valid UTF-8");
}

TEST_F(CliRun, StandardErrorMayBeGone) {
    const auto shell = [&](const std::string& redirection) {
        return std::system(
            fmt::format("{} run {} -p hello -n 3 {}", DAK_BINARY, model_.string(), redirection)
                .c_str());
    };
    const std::string out = (model_ / "out.txt").string();
    EXPECT_EQ(shell("2>/dev/full >" + out), 0);
    const std::string expected = read_text_file(out);
    EXPECT_EQ(shell("2>&- >" + out), 0);
    EXPECT_EQ(read_text_file(out), expected);
    EXPECT_THAT(expected, Not(HasSubstr("Loading")));
}

TEST_F(CliRun, InterruptEndsWithStatus130) {
    std::string prompts;  // minutes of work
    for (int i = 0; i < 20'000; ++i) prompts += "{\"prompt\": \"hello\"}\n";
    write("prompts.jsonl", prompts);
    const std::string command = fmt::format(
        "{0} run {1} --device cpu --batch-file {1}/prompts.jsonl -n 250 --ignore-eos "
        "--batch-size 1 >{1}/out.txt 2>{1}/err.txt & "
        "for i in $(seq 1000); do [ -s {1}/out.txt ] && break; sleep 0.01; done; "
        "kill -INT $!; wait $!",
        DAK_BINARY, model_.string());
    EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 130);
    EXPECT_THAT(read_text_file(model_ / "err.txt"),
                AllOf(HasSubstr("interrupted: "), HasSubstr(" of 20000 prompts answered in full")));
}

TEST_F(CliRun, PromptLongerThanTheContext) {
    const std::string prompt(300, 'a');
    expect_error(run({"-p", prompt}),
                 "the prompt has 300 tokens, but the model's context holds 256");
    const CliResult cut = run({"-p", prompt, "--truncate-prompt", "-n", "10", "--ignore-eos"});
    EXPECT_EQ(cut.status, 0);
    EXPECT_THAT(cut.err, AllOf(HasSubstr("prefill 246 tokens"), HasSubstr("decode 9 tokens")));
}

TEST_F(CliRun, RefusesBadModels) {
    const auto broken = [&](const std::string& part) {
        SCOPED_TRACE(part);
        expect_error(run({"-p", "hi", "-q"}), part);
    };
    expect_error(run_cli({"run", "/nowhere", "-p", "hi"}), "/nowhere");
    expect_error(run({"-p", ""}), "the prompt is empty");

    const std::string config = read_text_file(model_ / "config.json");
    edit_config("architectures", {"MambaForCausalLM"});
    broken("MambaForCausalLM");
    write("config.json", config);
    edit_config("architectures", {"\x1b[31mRed\n"});
    broken("\\x1b[31mRed\\x0a");
    write("config.json", config);
    edit_config("rope_parameters", {{"rope_type", "yarn"}, {"rope_theta", 1e4}, {"factor", 2}});
    broken("yarn");
    write("config.json", config);
    edit_config("hidden_size", 128);
    broken("config.json");
    write("config.json", config);
    edit_config("vocab_size", 50);
    broken("belong to different models");
    write("config.json", "{");
    broken("config.json: not valid JSON");
    write("config.json", config);

    const auto size = fs::file_size(model_ / "model.safetensors");
    fs::resize_file(model_ / "model.safetensors", size - 100);
    broken("truncated");
    fs::remove(model_ / "model.safetensors");
    broken("model.safetensors");
    write("model.safetensors.index.json",
          R"({"weight_map": {"model.norm.weight": "model-00001-of-00002.safetensors"}})");
    broken("model-00001-of-00002.safetensors");
    fs::remove(model_ / "tokenizer.json");
    broken("tokenizer.json");
}

TEST_F(CliRun, UsageErrors) {
    for (const std::vector<std::string>& arguments :
         std::vector<std::vector<std::string>>{{"--offload-ratio", "1.5"},
                                               {"-p", "a", "--prompt-file", "b"},
                                               {"-o", "x"},
                                               {"--dtype", "int8"},
                                               {"--batch-size", "0"},
                                               {"-n", "many"}}) {
        const CliResult result = run(arguments);
        EXPECT_EQ(result.status, 2) << result.err;
        EXPECT_THAT(result.err, HasSubstr("Try 'dak run --help'"));
    }
    expect_error(run({"-p", "hi", "--top-p", "2"}), "top-p must be");
}

TEST_F(CliRun, HelpNamesEveryPart) {
    const CliResult result = run_cli({"run", "--help"});
    EXPECT_EQ(result.status, 0);
    EXPECT_THAT(result.out, AllOf(HasSubstr("MODEL"), HasSubstr("Generation"),
                                  HasSubstr("Placement and speed"), HasSubstr("Examples:")));
}

}  // namespace
}  // namespace dak
