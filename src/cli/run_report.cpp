#include "cli/run_report.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include "base/units.h"

namespace dak {

namespace {

int64_t peak_memory_bytes() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss * kKiB;
}

std::string row(std::string_view name, int64_t local, int64_t remote) {
    const int64_t all = std::max<int64_t>(local + remote, 1);
    return fmt::format("  {:<10} {:>12} {:>12} {:>9.1f}%\n", name, format_bytes(local),
                       format_bytes(remote), 100.0 * static_cast<double>(remote) / all);
}

std::string heading(const std::string& model_name, const Engine& engine, std::string_view device) {
    const ModelConfig& config = engine.config();
    return fmt::format("{}: {}, {}, {} layers, on {}\n", model_name, config.architecture,
                       name_of(config.dtype), config.num_layers, device);
}

std::string table(const Engine& engine) {
    const int64_t weights_local =
        engine.weights().local.used_bytes() + engine.weights().vector_bytes();
    const int64_t weights_remote = engine.weights().remote.used_bytes();
    const KvCache& kv = engine.kv_cache();
    std::string text =
        fmt::format("  {:<10} {:>12} {:>12} {:>10}\n", "", "local", "remote", "remote %");
    text += row("weights", weights_local, weights_remote);
    text += row("KV cache", kv.local_bytes(), kv.remote_bytes());
    text += row("total", weights_local + kv.local_bytes(), weights_remote + kv.remote_bytes());
    return text;
}

}  // namespace

std::string format_placement(const std::string& model_name, const Engine& engine) {
    std::string text = heading(model_name, engine, "the CPU") + table(engine);
    if (engine.weights().remote.used_bytes() + engine.kv_cache().remote_bytes() > 0) {
        text += "  Both tiers are host memory here, so the split changes no speed.\n";
    }
    return text;
}

std::string format_placement(const std::string& model_name, const Engine& engine,
                             const std::string& gpu_name, const Plan& plan) {
    std::string text = heading(model_name, engine, gpu_name) + table(engine);
    text += fmt::format("  {} of GPU memory in all; planned TPOT {:.2f} ms",
                        format_bytes(plan.gpu.total()), 1e3 * plan.tpot_seconds);
    if (engine.weights().remote.used_bytes() > 0) {
        text += fmt::format(", transport {}", name_of(plan.transport));
    }
    return text + "\n";
}

std::string format_statistics(const EngineStatistics& statistics,
                              const std::optional<double>& planned_tpot_seconds) {
    const std::string planned =
        planned_tpot_seconds ? fmt::format(" (planned {:.1f})", 1e3 * *planned_tpot_seconds) : "";
    return fmt::format(
        "prefill {} tokens, {:.1f} tokens/s | decode {} tokens, {:.1f} tokens/s, TPOT {:.1f} ms{}, "
        "EB {:.1f} GB/s | peak memory {}",
        statistics.prefill_tokens, statistics.prefill_tokens_per_second(), statistics.decode_tokens,
        statistics.decode_tokens_per_second(), statistics.tpot_seconds() * 1e3, planned,
        statistics.effective_bytes_per_second() / 1e9, format_bytes(peak_memory_bytes()));
}

}  // namespace dak
