#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>

#include "base/file.h"
#include "base/svg_plot.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/hardware_choice.h"
#include "model/presets.h"
#include "planner/plan_report.h"

namespace dak {

namespace {

/// Bounds that only a slip of the keyboard exceeds.
constexpr int64_t kMaxTokens = 1'000'000'000;
constexpr int64_t kMaxBatch = 65'536;

struct PlanCommand {
    std::string model;
    Workload workload;
    std::optional<std::string> gpu_memory, host_memory, hardware, remote, plot;
    std::string dtype = "auto", kv_dtype = "auto", transport = "auto", policy = "greedy";
    std::vector<std::string> places;
    PlanOptions options;
    bool sweep = false;
    bool json = false;
};

std::optional<DType> parse_dtype(const std::string& name) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
        if (name == name_of(dtype)) return dtype;
    }
    return {};  // "auto"; the command line allows nothing else
}

ModelConfig config_of(const PlanCommand& command) {
    const std::vector<std::string_view> names = preset_names();
    const bool folder = path_exists(command.model);
    const bool preset = std::ranges::find(names, command.model) != names.end();
    require(folder || preset, "'{}' is neither a model folder nor a built-in model; there are {}",
            command.model, fmt::join(names, ", "));
    const auto dtype = parse_dtype(command.dtype);
    if (folder) return load_config(command.model, dtype);
    ModelConfig config = preset_config(command.model);
    config.dtype = dtype.value_or(config.dtype);
    return config;
}

PlanOptions options_of(const PlanCommand& command) {
    PlanOptions options = command.options;
    options.model_name = command.model;
    options.kv_dtype = parse_dtype(command.kv_dtype);
    if (command.policy == "uniform") options.policy = PlanPolicy::kUniform;
    if (command.transport == "direct") options.transport = Transport::kDirect;
    if (command.transport == "staged") options.transport = Transport::kStaged;
    for (const std::string& place : command.places) {
        options.rules.push_back(parse_placement_rule(place));
    }
    return options;
}

/// What the user says, else what the machine described has.
Budgets budgets_of(const PlanCommand& command, const HardwareProfile& profile) {
    Budgets budgets = {profile.gpu_memory_bytes, profile.remote_memory_bytes};
    if (command.gpu_memory) budgets.gpu_bytes = parse_bytes(*command.gpu_memory, "--gpu-memory");
    if (command.host_memory) {
        budgets.host_bytes = parse_bytes(*command.host_memory, "--host-memory");
    }
    return budgets;
}

std::vector<PlotPanel> sweep_panels(const PlanCommand& command, const HardwareProfile& profile,
                                    const std::vector<SweepPoint>& sweep) {
    PlotPanel eb;
    eb.title =
        fmt::format("{} on {}, batch {}, prompt {}, output {}", command.model, profile.name,
                    command.workload.batch, command.workload.prompt, command.workload.output);
    eb.x_label = "offload ratio, %";
    eb.y_label = "effective bandwidth, GB/s";
    eb.series = {{"EB", {}, true}};
    PlotPanel tpot = eb;
    tpot.title = "Time per output token";
    tpot.y_label = "TPOT, ms";
    tpot.series = {{"TPOT", {}, true}};
    for (const SweepPoint& point : sweep) {
        const double x = 100 * point.offload_ratio;
        eb.series[0].points.push_back({x, point.effective_bytes_per_second / 1e9});
        tpot.series[0].points.push_back({x, 1e3 * point.tpot_seconds});
    }
    const auto peak = std::ranges::max_element(sweep, {}, &SweepPoint::effective_bytes_per_second);
    eb.marked_x = 100 * peak->offload_ratio;
    eb.mark = fmt::format("peak at {:.1f}%", *eb.marked_x);
    return {eb, tpot};
}

void run_sweep(const PlanCommand& command, const ModelConfig& config,
               const HardwareProfile& profile, const Budgets& budgets, const PlanOptions& options) {
    require(!options.offload_ratio, "--sweep goes through all ratios; leave out --offload-ratio");
    const auto sweep = sweep_offload_ratio(config, command.workload, profile, budgets, options);
    if (command.plot) write_svg_plot(*command.plot, sweep_panels(command, profile, sweep));
    if (command.json) {
        fmt::print("{}\n", to_json(sweep).dump(1));
        return;
    }
    fmt::print("{} on {}: batch {}, prompt {}, output {}\n\n{}", command.model, profile.name,
               command.workload.batch, command.workload.prompt, command.workload.output,
               format_sweep(sweep));
}

void run_plan(const PlanCommand& command) {
    const ModelConfig config = config_of(command);
    const PlanOptions options = options_of(command);
    const HardwareProfile profile =
        choose_hardware(command.hardware, command.remote, gather_system());
    const Budgets budgets = budgets_of(command, profile);
    if (command.sweep) {
        run_sweep(command, config, profile, budgets, options);
        return;
    }
    require(!command.plot, "--plot draws what --sweep computes; add --sweep");
    const Plan plan = make_plan(config, command.workload, profile, budgets, options);
    const auto others = alternatives(config, plan, profile, options);
    if (command.json) {
        fmt::print("{}\n", to_json(plan, others).dump(1));
    } else {
        fmt::print("{}", format_plan(plan, others));
    }
}

void add_workload_options(CLI::App& app, PlanCommand& command) {
    const auto add = [&](const char* name, int64_t& value, const char* help, int64_t most) {
        app.add_option(name, value, help)
            ->type_name("N")
            ->group("Workload")
            ->check(CLI::Range(int64_t{1}, most))
            ->capture_default_str();
    };
    add("--batch", command.workload.batch, "Sequences generated at once", kMaxBatch);
    add("--prompt", command.workload.prompt, "Tokens of each prompt", kMaxTokens);
    add("--output", command.workload.output, "Tokens generated for each", kMaxTokens);
    add("--prefill-chunk", command.options.prefill_chunk, "Prompt tokens read in one step",
        kMaxTokens);
}

void add_machine_options(CLI::App& app, PlanCommand& command) {
    const auto add = [&](const char* name, auto& value, const char* help, const char* type) {
        app.add_option(name, value, help)->type_name(type)->group("Machine");
    };
    add("--hardware", command.hardware,
        "A built-in machine or a profile file [default: this machine]", "NAME|FILE");
    add("--remote", command.remote, "The remote tier: host or peer:N", "TIER");
    add("--gpu-memory", command.gpu_memory,
        "GPU memory to use in all, like 24GiB [default: all the GPU has]", "SIZE");
    add("--host-memory", command.host_memory,
        "Memory of the remote tier to use [default: what the profile says]", "SIZE");
}

void add_placement_options(CLI::App& app, PlanCommand& command) {
    const char* const group = "Placement";
    const auto choice = [&](const char* name, std::string& value, const char* help,
                            const std::vector<std::string>& values) {
        app.add_option(name, value, help)
            ->type_name("WORD")
            ->group(group)
            ->check(CLI::IsMember(values))
            ->capture_default_str();
    };
    app.add_option("--offload-ratio", command.options.offload_ratio,
                   "Share of weights and KV cache in the remote tier [default: what is best]")
        ->type_name("0..1")
        ->group(group)
        ->check(CLI::Range(0.0, 1.0));
    app.add_option("--place", command.places,
                   "PATTERN=remote, =local or =SHARE for weights by name ('*' matches anything) or "
                   "'kv'; may be given several times, the last match holds")
        ->type_name("RULE")
        ->group(group)
        ->take_all();
    choice("--policy", command.policy, "How offloaded bytes are divided among operations",
           {"greedy", "uniform"});
    choice("--transport", command.transport, "How remote weights reach the SMs",
           {"auto", "direct", "staged"});
    choice("--dtype", command.dtype, "Type of the weights", {"auto", "bf16", "fp16", "fp32"});
    choice("--kv-dtype", command.kv_dtype, "Type of the KV cache",
           {"auto", "bf16", "fp16", "fp32"});
}

}  // namespace

void add_plan(CLI::App& app) {
    CLI::App* command = app.add_subcommand(
        "plan", "Show what to offload for a model and workload, how fast it will be, and why");
    const auto options = std::make_shared<PlanCommand>();
    command
        ->add_option("MODEL", options->model,
                     "A model folder (its config.json is enough) or a built-in name like opt-30b")
        ->required();
    add_workload_options(*command, *options);
    add_machine_options(*command, *options);
    add_placement_options(*command, *options);
    command->add_flag("--sweep", options->sweep, "Show EB and TPOT at offload ratios from 0 to 1");
    command->add_option("--plot", options->plot, "Draw the sweep into an SVG file")
        ->type_name("FILE");
    command->add_flag("--json", options->json, "Print JSON instead: bytes, seconds");
    command->footer(fmt::format(
        "Needs neither a GPU nor weights. x* is the ratio up to which offloading an\n"
        "operation does not cost time; EB counts the bytes of weights and KV cache that\n"
        "a decode step reads, by the time it takes.\n"
        "\n"
        "Built-in models: {}.\n"
        "Built-in machines: {}.\n"
        "\n"
        "Examples:\n"
        "  dak plan opt-30b --batch 8 --prompt 32 --hardware gh200 --sweep\n"
        "  dak plan llama-3-70b --batch 16 --prompt 1024 --gpu-memory 80GiB\n"
        "  dak plan MODEL --place 'layers.*.up=remote' --place kv=local --json",
        fmt::join(preset_names(), ", "), fmt::join(hardware_preset_names(), ", ")));
    command->callback([options] { run_plan(*options); });
}

}  // namespace dak
