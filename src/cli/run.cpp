#include <fmt/format.h>
#include <malloc.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <numeric>
#include <random>

#include "base/units.h"
#include "cli/batch_file.h"
#include "cli/commands.h"
#include "cli/gpu_engine.h"
#include "cli/interrupt.h"
#include "cli/model_choice.h"
#include "cli/prompt_builder.h"
#include "cli/run_report.h"
#include "engine/engine.h"
#include "hardware/system.h"

namespace dak {

namespace {

/// Tokens of conversation that an interactive chat makes room for, where the model allows them.
constexpr int64_t kChatContext = 4096;

constexpr int64_t kMaxThreads = 1024;  // only a slip of the keyboard asks for more

struct RunOptions {
    std::string model;
    std::optional<std::string> random_weights;  ///< the model to make, instead of one to load
    int64_t prompt_tokens = 32;
    std::optional<std::string> prompt;
    std::optional<std::string> prompt_file;
    std::optional<std::string> batch_file;
    std::optional<std::string> output_file;
    PromptOptions prompts;
    Request defaults;
    EngineOptions engine;
    std::string dtype = "auto";
    std::string kv_dtype = "auto";
    std::string device = "auto";
    GpuOptions gpu;
    bool quiet = false;
};

int64_t pages_of(const Request& request, const ModelConfig& config) {
    const auto prompt = static_cast<int64_t>(request.prompt.size());
    const int64_t room = std::max<int64_t>(config.max_position - prompt, 0);
    return KvCache::pages_for(prompt + std::min(request.max_new_tokens, room));
}

/// A pool in which the largest `max_batch` of the requests fit at once.
int64_t pages_for_all(const std::vector<BatchItem>& items, const ModelConfig& config,
                      int64_t max_batch) {
    std::vector<int64_t> pages;
    for (const BatchItem& item : items) pages.push_back(pages_of(item.request, config));
    std::sort(pages.rbegin(), pages.rend());
    pages.resize(std::min(pages.size(), static_cast<size_t>(max_batch)));
    return std::accumulate(pages.begin(), pages.end(), int64_t{0});
}

/// The longest of the requests, `batch` times.
Workload workload_of(const std::vector<BatchItem>& items, const ModelConfig& config,
                     int64_t batch) {
    Workload workload{std::min(batch, std::max<int64_t>(static_cast<int64_t>(items.size()), 1)), 1,
                      1};
    for (const BatchItem& item : items) {
        const auto prompt = static_cast<int64_t>(item.request.prompt.size());
        const int64_t output = std::min(item.request.max_new_tokens, config.max_position - prompt);
        if (prompt + output > workload.prompt + workload.output) {
            workload.prompt = prompt;
            workload.output = output;
        }
    }
    return workload;
}

std::string first_prompt(const RunOptions& options) {
    if (options.prompt) return *options.prompt;
    return read_input(options.prompt_file.value_or("-"));
}

class Run {
  public:
    explicit Run(RunOptions options) : options_(std::move(options)), config_(configure()) {
        if (!options_.random_weights) {
            prompts_.emplace(options_.model, config_, options_.prompts);
        }
        ::malloc_trim(0);  // what parsing the tokenizer left behind
    }

    void operator()() {
        for (const std::string& stop : options_.defaults.stop) {
            require_utf8(stop, "the text of --stop");
        }
        if (options_.random_weights) {
            run_batch(random_items());
        } else if (options_.batch_file) {
            run_batch(read_batch_file(*options_.batch_file, options_.defaults, *prompts_, config_));
        } else if (options_.prompt || options_.prompt_file || !isatty(STDIN_FILENO)) {
            run_prompt();
        } else {
            run_chat();
        }
    }

  private:
    ModelConfig configure() const {
        if (options_.random_weights) {
            return choose_model(*options_.random_weights, parse_dtype(options_.dtype));
        }
        ModelConfig config = load_config(options_.model);
        config.dtype = parse_dtype(options_.dtype).value_or(config.dtype);
        return config;
    }

    std::string model_name() const {
        if (options_.random_weights) return *options_.random_weights;
        const std::filesystem::path path = std::filesystem::weakly_canonical(options_.model);
        return path.filename().string();
    }

    /// Null when the weights are random.
    const Tokenizer* tokenizer() const { return prompts_ ? &prompts_->tokenizer() : nullptr; }

    uint64_t seed() const { return options_.defaults.sampling.seed; }

    /// An engine for sequences as long as the workload's; `kv_pages` is what all of them need
    /// together.
    std::unique_ptr<Engine> start_engine(const Workload& workload, int64_t kv_pages) {
        const SystemInfo system = gather_system();
        EngineOptions engine = options_.engine;
        engine.kv_dtype = parse_dtype(options_.kv_dtype);
        if (engine.num_threads == 0) engine.num_threads = usable_threads(system);
        return runs_on_gpu(system) ? start_on_gpu(workload, engine, system)
                                   : start_on_cpu(kv_pages, engine, system);
    }

    /// Why `--device auto` computes on the CPU; empty: it does not.
    std::string cpu_reason(const SystemInfo& system) const {
        std::string obstacle = gpu_obstacle(system);
        if (!obstacle.empty() || config_.dtype != DType::kF32) return obstacle;
        return "the weights are fp32, and the GPU computes in 16 bits: --dtype bf16";
    }

    bool runs_on_gpu(const SystemInfo& system) const {
        if (options_.device == "cpu") return false;
        const std::string obstacle = cpu_reason(system);
        require(obstacle.empty() || options_.device == "auto", "--device gpu: {}", obstacle);
        if (!obstacle.empty() && !system.gpus.empty()) {
            note(fmt::format("Running on the CPU: {}.\n", obstacle));
        }
        return obstacle.empty();
    }

    std::unique_ptr<Engine> start_on_gpu(const Workload& workload, EngineOptions engine,
                                         const SystemInfo& system) {
        engine.max_batch = workload.batch;
        const WeightSource load = [&](const Placement& placement, const TierMemory& memory) {
            return load_weights(
                options_.model, config_, placement,
                {.num_threads = engine.num_threads, .progress = !options_.quiet, .memory = memory});
        };
        GpuOptions gpu = options_.gpu;
        gpu.model_name = model_name();
        const GpuPlan plan = plan_on_gpu(config_, workload, gpu, engine, system);
        auto result = start_gpu_engine(
            config_, plan, options_.random_weights ? random_weight_source(config_, seed()) : load,
            tokenizer());
        note(format_placement(model_name(), *result, system.gpus.front().name, plan.plan));
        if (!plan.warning.empty()) note(fmt::format("  {}\n", plan.warning));
        planned_tpot_ = plan.plan.tpot_seconds;
        full_batch_ = workload.batch;
        return result;
    }

    std::unique_ptr<Engine> start_on_cpu(int64_t kv_pages, EngineOptions engine,
                                         const SystemInfo& system) {
        const std::string misplaced = options_.gpu.gpu_only_option();
        require(misplaced.empty(), "{} is for the GPU, but this runs on the CPU ({}); leave it out",
                misplaced, options_.device == "cpu" ? "--device cpu" : cpu_reason(system));
        const double ratio = options_.gpu.offload_ratio.value_or(0);
        engine.kv_pages = kv_pages;
        engine.kv_remote_pages = std::llround(static_cast<double>(kv_pages) * ratio);
        const std::vector<WeightSpec> specs = weight_specs(config_);
        require_memory(specs, engine, usable_host_bytes(system));
        const Placement placement = uniform_placement(specs, ratio);
        const LoadOptions load{.num_threads = engine.num_threads, .progress = !options_.quiet};
        ModelWeights weights = options_.random_weights
                                   ? random_weights(config_, placement, seed(), load)
                                   : load_weights(options_.model, config_, placement, load);
        auto result = std::make_unique<Engine>(config_, std::move(weights), tokenizer(), engine);
        note(format_placement(model_name(), *result));
        return result;
    }

    void require_memory(const std::vector<WeightSpec>& specs, const EngineOptions& engine,
                        int64_t usable_bytes) const {
        int64_t weight_bytes = 0;
        for (const WeightSpec& spec : specs) weight_bytes += spec.shape.bytes();
        const KvPageLayout layout{config_.num_kv_heads, config_.head_dim,
                                  engine.kv_dtype.value_or(config_.dtype)};
        const int64_t kv_bytes = engine.kv_pages * config_.num_layers * layout.page_bytes();
        require(weight_bytes + kv_bytes <= usable_bytes,
                "{} needs {} of host memory ({} of weights, {} of KV cache), but {} can be had; "
                "ask for fewer or shorter sequences, or use a smaller model ('dak info' shows "
                "what limits memory)",
                model_name(), format_bytes(weight_bytes + kv_bytes), format_bytes(weight_bytes),
                format_bytes(kv_bytes), format_bytes(usable_bytes));
    }

    void note(std::string_view text) const {
        if (!options_.quiet) std::fputs(std::string(text).c_str(), stderr);
    }

    void note_statistics(const Engine& engine) const {
        // A plan is for the full batch; fewer sequences take less.
        const EngineStatistics& statistics = engine.statistics();
        const bool full = statistics.decode_tokens == statistics.decode_steps * full_batch_;
        note(fmt::format("{}\n",
                         format_statistics(statistics, full ? planned_tpot_ : std::nullopt)));
    }

    /// Runs one request to its end, printing the text as it comes. Ctrl-C cancels it.
    Completion stream(Engine& engine, Request request) const {
        bool any_text = false;
        request.on_update = [&any_text](const Update& update) {
            any_text = any_text || !update.text.empty();
            fmt::print("{}", update.text);
            std::fflush(stdout);
        };
        const RequestId id = engine.add(std::move(request));
        const InterruptScope interrupt;
        std::vector<Completion> completions;
        while (completions.empty()) {
            if (interrupt.requested()) engine.cancel(id);
            completions = engine.step();
        }
        Completion& completion = completions[0];
        if (any_text || completion.error.empty()) fmt::print("\n");
        std::fflush(stdout);  // before anything on standard error
        require(completion.error.empty(), "{}", completion.error);
        return std::move(completion);
    }

    void run_prompt() {
        Request request = options_.defaults;
        request.prompt = prompts_->from_text(first_prompt(options_), request.max_new_tokens);
        Engine::validate(request, config_);
        const auto engine =
            start_engine(workload_of({{"", request}}, config_, 1), pages_of(request, config_));
        const Completion completion = stream(*engine, std::move(request));
        note_statistics(*engine);
        if (completion.finish == FinishReason::kCancelled) {
            throw Interrupted(fmt::format("interrupted after {} tokens", completion.tokens.size()));
        }
    }

    void run_chat() {
        require(prompts_->chat(),
                "give a prompt with --prompt, --prompt-file or on standard input (a conversation "
                "needs a model with a chat template)");
        const int64_t context = std::min(config_.max_position, kChatContext);
        const auto engine =
            start_engine({1, context / 2, context - context / 2}, KvCache::pages_for(context));
        note("Type a message. Ctrl-C cuts an answer short; an empty line or Ctrl-D ends.\n");
        std::vector<ChatMessage> conversation;
        std::string line;
        while (std::fputs("> ", stderr), std::getline(std::cin, line) && !line.empty()) {
            conversation.push_back({"user", line});
            try {
                conversation.push_back({"assistant", answer(*engine, conversation, context)});
            } catch (const Error& error) {
                // The conversation goes on without the message.
                std::fputs(fmt::format("{}\n", error.what()).c_str(), stderr);
                conversation.pop_back();
            }
        }
        note_statistics(*engine);
    }

    std::string answer(Engine& engine, const std::vector<ChatMessage>& conversation,
                       int64_t context) const {
        require(conversation.back().content.find_first_not_of(" \t") != std::string::npos,
                "The message is blank; type one, or an empty line to end.");
        require_utf8(conversation.back().content, "the message");
        Request request = options_.defaults;
        request.prompt = prompts_->from_messages(conversation, request.max_new_tokens);
        const auto used = static_cast<int64_t>(request.prompt.size());
        require(used < context,
                "With this message the conversation has {} tokens, but its context holds {}; "
                "shorten the message, or start anew.",
                used, context);
        request.max_new_tokens = std::min(request.max_new_tokens, context - used);
        return stream(engine, std::move(request)).text;
    }

    /// Throws Error when the answers would be written over the prompts or a file of the model.
    void protect_inputs() const {
        namespace fs = std::filesystem;
        const fs::path output = *options_.output_file;
        std::error_code none;
        require(fs::is_directory(fs::absolute(output).parent_path(), none) &&
                    !fs::is_directory(output, none),
                "cannot write to {}", output.string());
        std::vector<fs::path> inputs;
        if (options_.batch_file) inputs.push_back(*options_.batch_file);
        const fs::path model = options_.random_weights.value_or(options_.model);
        if (fs::is_directory(model)) {  // not a built-in one
            for (const fs::path& file : fs::directory_iterator(model)) {
                // Nothing of a model is in JSON lines: such a file holds prompts or older answers.
                if (file.extension() != ".jsonl") inputs.push_back(file);
            }
        }
        for (const fs::path& input : inputs) {
            std::error_code absent;
            require(!fs::equivalent(input, output, absent),
                    "-o {} would overwrite {}, which is read; write to another file",
                    output.string(), input.string());
        }
    }

    /// As many as run at once.
    std::vector<BatchItem> random_items() const {
        require(options_.prompt_tokens < config_.max_position,
                "--prompt-tokens {}: the model's context holds {}, one of them for an answer",
                options_.prompt_tokens, config_.max_position);
        std::mt19937 random(static_cast<uint32_t>(seed()));
        std::vector<BatchItem> items;
        for (int64_t id = 1; id <= options_.engine.max_batch; ++id) {
            Request request = options_.defaults;
            request.prompt = random_prompt(config_, options_.prompt_tokens, random);
            request.ignore_eos = true;  // no token means an end
            Engine::validate(request, config_);
            items.push_back({id, std::move(request)});
        }
        return items;
    }

    void run_batch(std::vector<BatchItem> items) {
        if (options_.output_file) protect_inputs();
        const auto engine = start_engine(workload_of(items, config_, options_.engine.max_batch),
                                         pages_for_all(items, config_, options_.engine.max_batch));
        std::ofstream file;
        if (options_.output_file) {  // not before everything else has gone well
            file.open(*options_.output_file);
            require(file.good(), "cannot write to {}", *options_.output_file);
        }
        std::ostream& out = options_.output_file ? file : std::cout;

        std::vector<RequestId> ids;
        for (BatchItem& item : items) ids.push_back(engine->add(std::move(item.request)));
        std::map<RequestId, Completion> finished;
        size_t written = 0;
        size_t cancelled = 0;
        const InterruptScope interrupt;
        while (written < ids.size()) {
            if (interrupt.requested()) {
                for (const RequestId id : ids) engine->cancel(id);
            }
            for (Completion& completion : engine->step()) {
                if (completion.finish == FinishReason::kCancelled) ++cancelled;
                finished.emplace(completion.id, std::move(completion));
            }
            // Lines come in the order of the prompts.
            for (; written < ids.size() && finished.contains(ids[written]); ++written) {
                const Completion& completion = finished.at(ids[written]);
                out << to_json(items[written].id, completion)
                           .dump(-1, ' ', false, Json::error_handler_t::replace)
                    << std::endl;
                finished.erase(ids[written]);
            }
            require(out.good(), "cannot write the results{}",
                    options_.output_file ? " to " + *options_.output_file : "");
        }
        note_statistics(*engine);
        if (cancelled > 0) {
            throw Interrupted(fmt::format("interrupted: {} of {} prompts answered in full",
                                          ids.size() - cancelled, ids.size()));
        }
    }

    RunOptions options_;
    ModelConfig config_;
    std::optional<PromptBuilder> prompts_;  ///< nothing when the weights are random
    std::optional<double> planned_tpot_;    ///< of a run on the GPU
    int64_t full_batch_ = 0;                ///< sequences that it was planned for
};

/// An empty value is a mistake (an unset variable in a script), not the default.
const CLI::Validator kNotEmpty(
    [](const std::string& value) {
        return value.empty() ? std::string("the value is empty") : std::string();
    },
    "");

const CLI::Validator kSeed(
    [](const std::string& value) {
        uint64_t seed = 0;
        const char* end = value.data() + value.size();
        const auto [stop, error] = std::from_chars(value.data(), end, seed);
        const bool good = error == std::errc{} && stop == end;
        return std::string(good ? "" : "must be an integer from 0 to 18446744073709551615");
    },
    "");

/// An integer from 1 to `most`.
CLI::Validator at_least_one(int64_t most) {
    return CLI::Validator(
        [most](const std::string& value) {
            int64_t number = 0;
            const char* end = value.data() + value.size();
            const auto [stop, error] = std::from_chars(value.data(), end, number);
            const bool good = error == std::errc{} && stop == end && number >= 1 && number <= most;
            return good ? std::string()
                        : fmt::format("must be an integer from 1 to {}, got '{}'", most, value);
        },
        "");
}

void add_prompt_options(CLI::App& command, RunOptions& options) {
    auto* prompt =
        command.add_option("-p,--prompt", options.prompt, "The prompt")->type_name("TEXT");
    auto* prompt_file = command
                            .add_option("--prompt-file", options.prompt_file,
                                        "Read the prompt from a file or pipe; - is standard input")
                            ->type_name("FILE")
                            ->check(kNotEmpty);
    auto* batch_file =
        command
            .add_option("--batch-file", options.batch_file,
                        "Answer many prompts: JSON lines with \"prompt\" or \"messages\", and "
                        "optionally \"id\" and the options below by their long names with "
                        "underscores")
            ->type_name("FILE")
            ->check(kNotEmpty);
    prompt->excludes(prompt_file)->excludes(batch_file);
    prompt_file->excludes(batch_file);
    command
        .add_option("-o,--output", options.output_file,
                    "Write the answers of --batch-file or --random-weights here [default: standard "
                    "output]")
        ->type_name("FILE")
        ->check(kNotEmpty);
    command.add_option("--system", options.prompts.system, "System message of the conversation")
        ->type_name("TEXT");
    command.add_flag("--raw", options.prompts.raw,
                     "Continue the prompt's text as it is, without the model's chat template");
    command.add_flag("--truncate-prompt", options.prompts.truncate,
                     "Cut the beginning of a prompt longer than the model's context");
}

/// A model that is made rather than loaded has no tokenizer, so nothing that is text goes with it.
void add_random_options(CLI::App& command, RunOptions& options) {
    auto* random =
        command
            .add_option("--random-weights", options.random_weights,
                        "Instead of MODEL: make random weights for this built-in model (opt-30b, "
                        "...) or folder with a config.json, and continue --batch-size random "
                        "prompts; the answers are token ids")
            ->type_name("ARCH")
            ->check(kNotEmpty);
    for (const char* text : {"MODEL", "--prompt", "--prompt-file", "--batch-file", "--system",
                             "--raw", "--truncate-prompt", "--stop"}) {
        random->excludes(command.get_option(text));
    }
    command.add_option("--prompt-tokens", options.prompt_tokens, "Tokens of each random prompt")
        ->type_name("N")
        ->check(at_least_one(kMaxTokens))
        ->capture_default_str()
        ->needs(random);
}

/// What CLI11 cannot say: one of two options is needed.
void check_usage(const RunOptions& options) {
    if (options.random_weights) return;
    if (options.model.empty()) throw CLI::RequiredError("MODEL");
    if (options.output_file && !options.batch_file) {
        throw CLI::RequiresError("--output", "--batch-file");
    }
}

void add_generation_options(CLI::App& command, Request& request) {
    const std::string group = "Generation";
    const auto add = [&](const char* name, auto& value, const char* help, const char* type) {
        return command.add_option(name, value, help)
            ->type_name(type)
            ->group(group)
            ->check(kNotEmpty)
            ->capture_default_str();
    };
    ops::Sampling& sampling = request.sampling;
    add("-n,--max-new-tokens", request.max_new_tokens, "Most tokens to generate", "N")
        ->check(at_least_one(kMaxTokens));
    add("-t,--temperature", sampling.temperature, "0 is greedy, 1 the model's own distribution",
        "X");
    add("--top-k", sampling.top_k, "Draw from the K likeliest tokens; 0: all", "K");
    add("--top-p", sampling.top_p, "Draw from the likeliest tokens that make up P; 1: all", "P");
    add("--min-p", sampling.min_p,
        "Draw from tokens at least P times as likely as the likeliest; 0: all", "P");
    add("--repetition-penalty", sampling.repetition_penalty,
        "Divides the logits of tokens seen before; 1: off", "X");
    add("--presence-penalty", sampling.presence_penalty,
        "Taken from the logits of tokens generated before; 0: off", "X");
    add("--frequency-penalty", sampling.frequency_penalty,
        "Taken once for each time a token was generated; 0: off", "X");
    add("--seed", sampling.seed, "The same seed draws the same tokens (and random weights)", "N")
        ->check(kSeed);
    command.add_option("--stop", request.stop, "End before this text; may be given several times")
        ->type_name("TEXT")
        ->group(group)
        ->take_all();
    command.add_flag("--ignore-eos", request.ignore_eos, "Go on after an end-of-sequence token")
        ->group(group);
}

void add_engine_options(CLI::App& command, RunOptions& options) {
    const std::string group = "Placement and speed";
    const auto add = [&](const char* name, auto& value, const char* help, const char* type) {
        return command.add_option(name, value, help)
            ->type_name(type)
            ->group(group)
            ->capture_default_str();
    };
    add("--device", options.device, "Where to compute; auto: on the GPU if it can", "WORD")
        ->check(CLI::IsMember({"auto", "cpu", "gpu"}));
    add_placement_choices(command, group, options.gpu);
    add_gpu_options(command, group, options.gpu);
    add("--dtype", options.dtype, "Type of the weights; auto: the checkpoint's", "TYPE")
        ->check(CLI::IsMember({"auto", "bf16", "fp16", "fp32"}));
    add("--kv-dtype", options.kv_dtype, "Type of the KV cache; auto: that of the weights", "TYPE")
        ->check(CLI::IsMember({"auto", "bf16", "fp16", "fp32"}));
    add("--batch-size", options.engine.max_batch, "Sequences that run at once", "N")
        ->check(at_least_one(kMaxBatch));
    add("--prefill-chunk", options.engine.prefill_chunk, "Prompt tokens read in one step", "N")
        ->check(at_least_one(kMaxTokens));
    command
        .add_option("--threads", options.engine.num_threads,
                    "CPU threads [default: one per core that this process may use]")
        ->type_name("N")
        ->group(group)
        ->check(at_least_one(kMaxThreads));
    command.add_flag("-q,--quiet", options.quiet, "Print nothing but the answer (and errors)")
        ->group(group);
}

}  // namespace

void add_run(CLI::App& app) {
    CLI::App* command = app.add_subcommand("run", "Generate text with a model");
    const auto options = std::make_shared<RunOptions>();
    command->add_option("MODEL", options->model,
                        "A Hugging Face model folder: config.json, tokenizer.json, *.safetensors");
    add_prompt_options(*command, *options);
    add_generation_options(*command, options->defaults);
    add_random_options(*command, *options);
    add_engine_options(*command, *options);
    command->footer(
        "The answer goes to standard output, everything else to standard error. Without a prompt\n"
        "on the command line it is read from standard input; on a terminal, a conversation "
        "starts.\n"
        "\n"
        "Examples:\n"
        "  dak run models/SmolLM2-135M-Instruct --prompt \"What is a lighthouse?\"\n"
        "  dak run MODEL -p \"Once upon a time\" --raw -t 0.8 --top-p 0.95 --seed 7\n"
        "  dak run MODEL --batch-file prompts.jsonl -o answers.jsonl --batch-size 16\n"
        "  dak run MODEL --offload-ratio 0.3 -p \"Hello\"     # 30% in the remote tier\n"
        "  dak run --random-weights opt-30b --batch-size 8 -n 32   # needs no files");
    command->callback([options] {
        check_usage(*options);
        take_interrupts();
        Run run(*options);
        run();
    });
}

}  // namespace dak
