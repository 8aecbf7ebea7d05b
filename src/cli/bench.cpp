#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <map>
#include <memory>
#include <random>

#include "base/file.h"
#include "base/json.h"
#include "base/median.h"
#include "base/svg_plot.h"
#include "cli/commands.h"
#include "cli/gpu_engine.h"
#include "cli/model_choice.h"
#include "cli/prompt_builder.h"
#include "cli/reference_times.h"

namespace dak {

namespace {

using Clock = std::chrono::steady_clock;

constexpr double kGiga = 1e9;

struct BenchCommand {
    std::string model;
    std::vector<int64_t> batches = {8};
    std::vector<int64_t> prompts = {32};
    int64_t output = 32;
    std::vector<double> ratios;
    std::vector<std::string> transports = {"auto"};
    std::vector<std::string> policies = {"greedy"};
    std::string dtype = "auto";
    int64_t prefill_chunk = 2048;
    uint64_t seed = 1;
    double case_seconds = 10;
    GpuOptions gpu;
    std::optional<std::string> json;
    std::optional<std::string> plot;
    std::optional<std::string> reference;
    std::string commit = "unknown";
};

/// One setting of the sweep.
struct Case {
    Workload workload;
    std::optional<double> ratio;
    std::string transport;
    std::string policy;
};

struct Measurement {
    double tpot_seconds = 0;   ///< median of the steps with all sequences
    double ttft_seconds = 0;   ///< until every sequence has its first token
    double start_seconds = 0;  ///< weights made, graphs captured
    double kv_bytes = 0;       ///< read by a step, in the mean
};

/// Runs the workload, or as much of its decoding as fits `most_seconds` in three steps or more.
Measurement measure(Engine& engine, const Workload& workload, double most_seconds) {
    constexpr size_t kFewestSteps = 3;
    std::mt19937 random(1);
    std::vector<RequestId> ids;
    for (int64_t i = 0; i < workload.batch; ++i) {
        ids.push_back(engine.add({.prompt = random_prompt(engine.config(), workload.prompt, random),
                                  .max_new_tokens = workload.output,
                                  .ignore_eos = true}));
    }
    double decode_seconds = 0;
    Measurement result;
    std::vector<double> steps;
    const EngineStatistics& statistics = engine.statistics();
    const Clock::time_point begin = Clock::now();
    while (!engine.idle()) {
        const int64_t prefill_tokens = statistics.prefill_tokens;
        const int64_t decode_tokens = statistics.decode_tokens;
        const Clock::time_point start = Clock::now();
        for (const Completion& completion : engine.step()) {
            require(completion.error.empty(), "{}", completion.error);
        }
        const Clock::time_point end = Clock::now();
        if (statistics.prefill_tokens > prefill_tokens) {
            result.ttft_seconds = std::chrono::duration<double>(end - begin).count();
        }
        if (statistics.decode_tokens == decode_tokens + workload.batch) {
            steps.push_back(std::chrono::duration<double>(end - start).count());
            decode_seconds += steps.back();
        }
        if (decode_seconds > most_seconds && steps.size() >= kFewestSteps) {
            for (const RequestId id : ids) engine.cancel(id);
        }
    }
    require(!steps.empty(), "no decode step was run; ask for more --output tokens");
    result.tpot_seconds = median(steps);
    result.kv_bytes = static_cast<double>(statistics.decode_kv_bytes) /
                      static_cast<double>(statistics.decode_steps);
    return result;
}

/// The least time in which memory and link can deliver a step's bytes with this transport.
double light_speed_seconds(const Plan& plan, const HardwareProfile& profile) {
    const double local = profile.local_gbps * kGiga;
    const double direct = profile.remote_direct_gbps * kGiga;
    const double staged =
        profile.staged_at(static_cast<double>(std::max<int64_t>(plan.staging.slot_bytes, 1))) *
        kGiga;
    double step = 0, link = 0, bytes = 0;
    for (const OperationPlan& operation : plan.operations) {
        const double remote_bytes = operation.remote_read_bytes();
        step += std::max((operation.read_bytes - remote_bytes) / local, remote_bytes / direct);
        link += remote_bytes / (operation.name == "kv" ? direct : staged);
        bytes += operation.read_bytes;
    }
    return plan.transport == Transport::kDirect ? step : std::max(link, bytes / local);
}

double remote_read_bytes(const Plan& plan) {
    double bytes = 0;
    for (const OperationPlan& operation : plan.operations) bytes += operation.remote_read_bytes();
    return bytes;
}

class Bench {
  public:
    explicit Bench(const BenchCommand& command)
        : command_(command),
          config_(choose_model(command.model, parse_dtype(command.dtype))),
          system_(gather_system()) {
        const std::string obstacle = gpu_obstacle(system_);
        require(obstacle.empty(), "dak bench measures a GPU: {}", obstacle);
        if (command.reference) references_ = ReferenceTimes(*command.reference);
    }

    void operator()() {
        if (command_.json) write_json();  // a path that cannot be written is told first
        const GpuInfo& gpu = system_.gpus.front();
        fmt::print("{} on {}, driver {}\n\n", command_.model, gpu.name, system_.driver.version);
        fmt::print(
            "{:>6} {:>6} {:>7} {:>8} {:>8} {:>9} {:>9} {:>9} {:>9} {:>9} {:>7} {:>9} {:>7}{}\n",
            "batch", "prompt", "ratio", "policy", "transp.", "TPOT ms", "TTFT ms", "tokens/s",
            "EB GB/s", "link GB/s", "% light", "plan ms", "start s",
            command_.reference ? "    x HF" : "");
        if (command_.reference) warn_of_useless_reference();
        for (const Case& item : cases()) {
            run(item);
            std::fflush(stdout);
            // After each case: a sweep that is cut short keeps what it has measured.
            if (command_.json) write_json();
            if (command_.plot && !rows_.empty()) write_svg_plot(*command_.plot, panels());
        }
        require(!rows_.empty(), "no case could be measured");
    }

  private:
    void warn_of_useless_reference() const {
        const auto known = [this](const Case& item) {
            return references_.best(command_.model, item.workload).has_value();
        };
        if (std::ranges::any_of(cases(), known)) return;
        fmt::print(stderr,
                   "dak: warning: --reference {} has no time of {} with this batch, prompt "
                   "and output\n",
                   *command_.reference, command_.model);
    }

    std::vector<Case> cases() const {
        std::vector<std::optional<double>> ratios(command_.ratios.begin(), command_.ratios.end());
        if (ratios.empty()) ratios.push_back({});
        std::vector<Case> cases;
        for (const int64_t batch : command_.batches) {
            for (const int64_t prompt : command_.prompts) {
                for (const auto& ratio : ratios) {
                    // Without remote bytes policy and transport are names only.
                    const size_t variants = ratio == 0.0 ? 1 : command_.policies.size();
                    const size_t transports = ratio == 0.0 ? 1 : command_.transports.size();
                    for (size_t p = 0; p < variants; ++p) {
                        for (size_t t = 0; t < transports; ++t) {
                            cases.push_back({{batch, prompt, command_.output},
                                             ratio,
                                             command_.transports[t],
                                             command_.policies[p]});
                        }
                    }
                }
            }
        }
        return cases;
    }

    static std::string ratio_text(const Case& item) {
        return item.ratio ? fmt::format("{:.2f}%", 100 * *item.ratio) : "auto";
    }

    WeightSource weight_source() const {
        if (!path_exists(command_.model)) return random_weight_source(config_, command_.seed);
        return [this](const Placement& placement, const TierMemory& memory) {
            return load_weights(command_.model, config_, placement,
                                {.progress = false, .memory = memory});
        };
    }

    void run(const Case& item) {
        GpuOptions gpu = command_.gpu;
        gpu.model_name = command_.model;
        gpu.offload_ratio = item.ratio;
        gpu.transport = item.transport;
        gpu.policy = item.policy;
        EngineOptions options;
        options.max_batch = item.workload.batch;
        options.prefill_chunk = command_.prefill_chunk;
        options.decode_together = true;
        std::optional<GpuPlan> plan;
        try {
            plan = plan_on_gpu(config_, item.workload, gpu, options, system_);
        } catch (const Error& error) {
            fmt::print("{:>6} {:>6} {:>7} {:>8} {:>8} left out: {}\n", item.workload.batch,
                       item.workload.prompt, ratio_text(item), item.policy, item.transport,
                       error.what());
            return;
        }
        const Clock::time_point begin = Clock::now();
        const auto engine = start_gpu_engine(config_, *plan, weight_source(), nullptr);
        const double start_seconds = std::chrono::duration<double>(Clock::now() - begin).count();
        Measurement measured = measure(*engine, item.workload, command_.case_seconds);
        measured.start_seconds = start_seconds;
        report(item, *plan, measured);
    }

    void report(const Case& item, const GpuPlan& planned, const Measurement& measured) {
        const Plan& plan = planned.plan;
        const double tpot = measured.tpot_seconds;
        const double bytes = plan.weight_read_bytes + measured.kv_bytes;
        const double light = light_speed_seconds(plan, planned.profile);
        const double eb = bytes / tpot / kGiga;
        const double link = remote_read_bytes(plan) / tpot / kGiga;
        const double tokens = static_cast<double>(item.workload.batch) / tpot;
        const auto reference = references_.best(command_.model, item.workload);
        fmt::print(
            "{:>6} {:>6} {:>6.2f}% {:>8} {:>8} {:>9.3f} {:>9.1f} {:>9.1f} {:>9.0f} {:>9.1f} "
            "{:>7.1f} "
            "{:>9.3f} {:>7.1f}{}\n",
            item.workload.batch, item.workload.prompt, 100 * plan.offload_ratio(), item.policy,
            name_of(plan.transport), 1e3 * tpot, 1e3 * measured.ttft_seconds, tokens, eb, link,
            100 * light / tpot, 1e3 * plan.tpot_seconds, measured.start_seconds,
            reference ? fmt::format(" {:>7.2f}", reference->tpot_ms / (1e3 * tpot)) : "");
        rows_.push_back({{"model", command_.model},
                         {"batch", item.workload.batch},
                         {"prompt", item.workload.prompt},
                         {"output", item.workload.output},
                         {"ratio", plan.offload_ratio()},
                         {"tier", planned.remote},
                         {"transport", std::string(name_of(plan.transport))},
                         {"asked_transport", item.transport},
                         {"policy", item.policy},
                         {"tpot_ms", 1e3 * tpot},
                         {"ttft_ms", 1e3 * measured.ttft_seconds},
                         {"tokens_per_s", tokens},
                         {"eb_gbps", eb},
                         {"link_gbps", link},
                         {"light_speed_ms", 1e3 * light},
                         {"predicted_ms", 1e3 * plan.tpot_seconds},
                         {"gpu_bytes", plan.gpu.total()},
                         {"host_bytes", plan.remote_weight_bytes + plan.remote_kv_bytes},
                         {"start_s", measured.start_seconds}});
        if (reference) {
            rows_.back()["ref"] = reference->variant;
            rows_.back()["ref_tpot_ms"] = reference->tpot_ms;
        }
    }

    /// EB and TPOT over the ratio, one line for each transport, policy and workload.
    std::vector<PlotPanel> panels() const {
        PlotPanel eb;
        eb.title =
            fmt::format("{}, batch {}, prompt {}, {} output tokens, remote tier {}", command_.model,
                        fmt::join(command_.batches, "/"), fmt::join(command_.prompts, "/"),
                        command_.output, rows_.front()["tier"].get<std::string>());
        eb.x_label = "offload ratio, %";
        eb.y_label = "effective bandwidth, GB/s";
        PlotPanel tpot = eb;
        tpot.title = "Time per output token";
        tpot.y_label = "TPOT, ms";
        const auto varies = [this](const char* field) {
            return std::ranges::any_of(
                rows_, [&](const Json& row) { return row[field] != rows_.front()[field]; });
        };
        std::map<std::string, size_t> lines;
        for (const Json& row : rows_) {
            std::string name = row["asked_transport"];
            if (varies("policy")) name += " " + row["policy"].get<std::string>();
            for (const char* field : {"batch", "prompt"}) {
                if (varies(field)) name += fmt::format(", {} {}", field, row[field].dump());
            }
            const auto [line, added] = lines.try_emplace(name, lines.size());
            if (added) {
                eb.series.push_back({name, {}, true});
                tpot.series.push_back({name, {}, true});
            }
            const double x = 100 * row["ratio"].get<double>();
            eb.series[line->second].points.push_back({x, row["eb_gbps"]});
            tpot.series[line->second].points.push_back({x, row["tpot_ms"]});
        }
        return {eb, tpot};
    }

    void write_json() const {
        const GpuInfo& gpu = system_.gpus.front();
        const Json report = {{"benchmark", "dak bench"},
                             {"gpu", gpu.name},
                             {"driver", system_.driver.version},
                             {"commit", command_.commit},
                             {"date", fmt::format("{:%F}", fmt::gmtime(std::time(nullptr)))},
                             {"rows", rows_}};
        std::ofstream file(*command_.json);
        file << report.dump(1) << "\n";
        require(file.good(), "cannot write {}", *command_.json);
    }

    const BenchCommand& command_;
    ModelConfig config_;
    SystemInfo system_;
    ReferenceTimes references_;
    Json rows_ = Json::array();
};

}  // namespace

void add_bench(CLI::App& app) {
    CLI::App* command = app.add_subcommand(
        "bench", "Measure generation on the GPU over batch, prompt, ratio and transport");
    const auto options = std::make_shared<BenchCommand>();
    command
        ->add_option("MODEL", options->model,
                     "A model folder, or a built-in model (opt-30b, ...) with random weights")
        ->required();
    const auto add = [&](const char* name, auto& value, const char* help, const char* type) {
        return command->add_option(name, value, help)->type_name(type)->group("Sweep");
    };
    add("--batch", options->batches, "Sequences at once", "N,...")
        ->delimiter(',')
        ->check(CLI::Range(int64_t{1}, kMaxBatch))
        ->capture_default_str();
    add("--prompt", options->prompts, "Tokens of each prompt", "N,...")
        ->delimiter(',')
        ->check(CLI::Range(int64_t{1}, kMaxTokens))
        ->capture_default_str();
    add("--output", options->output, "Tokens to generate for each", "N")
        ->check(CLI::Range(int64_t{2}, kMaxTokens))
        ->capture_default_str();
    add("--ratio", options->ratios, "Offload ratios [default: the plan's own]", "0..1,...")
        ->delimiter(',')
        ->check(CLI::Range(0.0, 1.0));
    add("--transports", options->transports, "auto, direct, staged", "WORD,...")
        ->delimiter(',')
        ->check(CLI::IsMember({"auto", "direct", "staged"}))
        ->capture_default_str();
    add("--policies", options->policies, "greedy, uniform", "WORD,...")
        ->delimiter(',')
        ->check(CLI::IsMember({"greedy", "uniform"}))
        ->capture_default_str();
    command->add_option("--dtype", options->dtype, "Type of the weights")
        ->check(CLI::IsMember({"auto", "bf16", "fp16"}))
        ->capture_default_str();
    command->add_option("--prefill-chunk", options->prefill_chunk, "Prompt tokens read in one step")
        ->check(CLI::Range(int64_t{1}, kMaxTokens))
        ->capture_default_str();
    command->add_option("--seed", options->seed, "Of random weights")->capture_default_str();
    command
        ->add_option("--case-seconds", options->case_seconds,
                     "Decode for so long at most in each case, but three steps")
        ->check(CLI::Range(0.0, 1e6))
        ->capture_default_str();
    add_gpu_options(*command, "Placement", options->gpu);
    command->add_option("--json", options->json, "Write the rows to this file")->type_name("FILE");
    command
        ->add_option("--plot", options->plot, "Draw EB and TPOT over the ratio into this SVG file")
        ->type_name("FILE");
    command
        ->add_option("--reference", options->reference,
                     "Compare with Hugging Face's times in this file of bench/hf_generate.py")
        ->type_name("FILE");
    command->add_option("--commit", options->commit, "Recorded in the JSON")->type_name("TEXT");
    command->footer(
        "TPOT is the median time of a step in which all sequences decode, after all prompts are "
        "read; EB the bytes of weights\n"
        "and KV that it reads over that time; % light the share of what memory and link could do\n"
        "at best; plan ms what the planner predicted; x HF the TPOT of --reference over "
        "this one.\n"
        "\n"
        "Examples:\n"
        "  dak bench opt-30b --ratio 0,0.01,0.05,0.1 --transports direct,staged\n"
        "  dak bench llama-2-7b --batch 8,512 --policies greedy,uniform --ratio 0.02,0.1 --json "
        "out.json");
    command->callback([options] {
        Bench bench(*options);
        bench();
    });
}

}  // namespace dak
