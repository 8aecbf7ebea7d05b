#include <algorithm>
#include <iterator>

#include "cli/gpu_engine.h"

namespace dak {

std::string GpuOptions::gpu_only_option() const {
    if (gpu_memory) return "--gpu-memory";
    if (host_memory) return "--host-memory";
    if (remote) return "--remote";
    if (hardware) return "--hardware";
    if (!places.empty()) return "--place";
    if (transport != "auto") return "--transport";
    if (policy != "greedy") return "--policy";
    return "";
}

namespace {

template <typename T>
CLI::Option* add(CLI::App& command, const std::string& group, const char* name, T& value,
                 const char* help, const char* type) {
    return command.add_option(name, value, help)->type_name(type)->group(group);
}

}  // namespace

PlanOptions plan_options(const GpuOptions& options) {
    PlanOptions plan;
    plan.model_name = options.model_name;
    plan.offload_ratio = options.offload_ratio;
    if (options.policy == "uniform") plan.policy = PlanPolicy::kUniform;
    if (options.transport == "direct") plan.transport = Transport::kDirect;
    if (options.transport == "staged") plan.transport = Transport::kStaged;
    std::ranges::transform(options.places, std::back_inserter(plan.rules), parse_placement_rule);
    return plan;
}

void add_place_option(CLI::App& command, const std::string& group, GpuOptions& options) {
    add(command, group, "--place", options.places,
        "PATTERN=remote, =local or =SHARE for weights by name ('*' matches anything) or 'kv'; may "
        "be given several times, the last match holds",
        "RULE")
        ->take_all();
}

void add_gpu_options(CLI::App& command, const std::string& group, GpuOptions& options) {
    add(command, group, "--gpu-memory", options.gpu_memory,
        "GPU memory to use in all, like 24GiB [default: what is free]", "SIZE");
    add(command, group, "--host-memory", options.host_memory,
        "Memory of the remote tier to use [default: what can be had]", "SIZE");
    add(command, group, "--remote", options.remote,
        "The remote tier: host or peer:N [default: the profile's]", "TIER");
    add_place_option(command, group, options);
    add(command, group, "--hardware", options.hardware,
        "Plan for this built-in machine or profile file [default: what is measured or known of the "
        "GPU]",
        "NAME|FILE");
}

void add_placement_choices(CLI::App& command, const std::string& group, GpuOptions& options) {
    add(command, group, "--offload-ratio", options.offload_ratio,
        "Share of weights and KV cache in the remote tier [default: what the plan finds best]",
        "0..1")
        ->check(CLI::Range(0.0, 1.0));
    add(command, group, "--policy", options.policy,
        "How offloaded bytes are divided among operations", "WORD")
        ->check(CLI::IsMember({"greedy", "uniform"}))
        ->capture_default_str();
    add(command, group, "--transport", options.transport, "How remote weights reach the SMs",
        "WORD")
        ->check(CLI::IsMember({"auto", "direct", "staged"}))
        ->capture_default_str();
}

}  // namespace dak
