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

void add_gpu_options(CLI::App& command, const std::string& group, GpuOptions& options) {
    const auto add = [&](const char* name, auto& value, const char* help, const char* type) {
        return command.add_option(name, value, help)->type_name(type)->group(group);
    };
    add("--offload-ratio", options.offload_ratio,
        "Share of weights and KV cache in the remote tier [default: what the plan finds best]",
        "0..1")
        ->check(CLI::Range(0.0, 1.0));
    add("--gpu-memory", options.gpu_memory,
        "GPU memory to use in all, like 24GiB [default: what is free]", "SIZE");
    add("--host-memory", options.host_memory,
        "Memory of the remote tier to use [default: what can be had]", "SIZE");
    add("--remote", options.remote, "The remote tier: host or peer:N [default: host]", "TIER");
    add("--place", options.places,
        "PATTERN=remote, =local or =SHARE for weights by name ('*' matches anything) or 'kv'; may "
        "be given several times, the last match holds",
        "RULE")
        ->take_all();
    add("--policy", options.policy, "How offloaded bytes are divided among operations", "WORD")
        ->check(CLI::IsMember({"greedy", "uniform"}))
        ->capture_default_str();
    add("--transport", options.transport, "How remote weights reach the SMs", "WORD")
        ->check(CLI::IsMember({"auto", "direct", "staged"}))
        ->capture_default_str();
    add("--hardware", options.hardware,
        "Plan for this built-in machine or profile file [default: what is measured or known of the "
        "GPU]",
        "NAME|FILE");
}

}  // namespace dak
