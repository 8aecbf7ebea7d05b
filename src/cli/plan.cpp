#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>

#include "base/svg_plot.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/gpu_engine.h"
#include "cli/hardware_choice.h"
#include "cli/model_choice.h"
#include "model/presets.h"
#include "planner/plan_report.h"

namespace dak {

namespace {

struct PlanCommand {
    Workload workload;
    GpuOptions gpu;
    int64_t prefill_chunk = PlanOptions().prefill_chunk;
    std::string dtype = "auto", kv_dtype = "auto";
    std::optional<std::string> plot;
    bool sweep = false;
    bool json = false;
};

PlanOptions options_of(const PlanCommand& command) {
    PlanOptions options = plan_options(command.gpu);
    options.kv_dtype = parse_dtype(command.kv_dtype);
    options.prefill_chunk = command.prefill_chunk;
    return options;
}

/// What the user says, else what the machine described has.
Budgets budgets_of(const PlanCommand& command, const HardwareProfile& profile) {
    Budgets budgets = {profile.gpu_memory_bytes, profile.remote_memory_bytes};
    if (command.gpu.gpu_memory)
        budgets.gpu_bytes = parse_bytes(*command.gpu.gpu_memory, "--gpu-memory");
    if (command.gpu.host_memory) {
        budgets.host_bytes = parse_bytes(*command.gpu.host_memory, "--host-memory");
    }
    return budgets;
}

std::vector<PlotPanel> sweep_panels(const PlanCommand& command, const HardwareProfile& profile,
                                    const std::vector<SweepPoint>& sweep) {
    PlotPanel eb;
    eb.title = fmt::format("{} on {}, batch {}, prompt {}, output {}", command.gpu.model_name,
                           profile.name, command.workload.batch, command.workload.prompt,
                           command.workload.output);
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
    if (const auto peak = peak_of(sweep)) {
        eb.marked_x = 100 * peak->offload_ratio;
        eb.mark = fmt::format("peak at {:.1f}%", *eb.marked_x);
    }
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
    fmt::print("{} on {}: batch {}, prompt {}, output {}\n\n{}", command.gpu.model_name,
               profile.name, command.workload.batch, command.workload.prompt,
               command.workload.output, format_sweep(sweep));
}

void run_plan(const PlanCommand& command) {
    const ModelConfig config = choose_model(command.gpu.model_name, parse_dtype(command.dtype));
    const PlanOptions options = options_of(command);
    const HardwareProfile profile =
        choose_hardware(command.gpu.hardware, command.gpu.remote, gather_system());
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
    add("--prefill-chunk", command.prefill_chunk, "Prompt tokens read in one step", kMaxTokens);
}

void add_machine_options(CLI::App& app, PlanCommand& command) {
    const auto add = [&](const char* name, auto& value, const char* help, const char* type) {
        app.add_option(name, value, help)->type_name(type)->group("Machine");
    };
    add("--hardware", command.gpu.hardware,
        "A built-in machine or a profile file [default: this machine]", "NAME|FILE");
    add("--remote", command.gpu.remote, "The remote tier: host or peer:N", "TIER");
    add("--gpu-memory", command.gpu.gpu_memory,
        "GPU memory to use in all, like 24GiB [default: all the GPU has]", "SIZE");
    add("--host-memory", command.gpu.host_memory,
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
    add_placement_choices(app, group, command.gpu);
    add_place_option(app, group, command.gpu);
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
        ->add_option("MODEL", options->gpu.model_name,
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
