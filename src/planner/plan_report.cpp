#include "planner/plan_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "base/error.h"

namespace dak {

namespace {

constexpr size_t kColumns = 100;
constexpr int kBarWidth = 30;
constexpr int64_t kLongChunk = 4096;  // tokens; more gains little and costs activations

/// "layers.17.up" -> "layers.*.up"
std::string family_of(const std::string& name) {
    const size_t first = name.find('.');
    if (first == std::string::npos) return name;
    const size_t second = name.find('.', first + 1);
    if (second == std::string::npos) return name;
    const bool number = std::all_of(name.begin() + static_cast<std::ptrdiff_t>(first) + 1,
                                    name.begin() + static_cast<std::ptrdiff_t>(second),
                                    [](unsigned char c) { return std::isdigit(c) != 0; });
    return number ? name.substr(0, first + 1) + "*" + name.substr(second) : name;
}

/// Operations of the same kind in all layers.
struct Family {
    OperationPlan sum;
    int count = 0;
};

std::vector<Family> families_of(const Plan& plan) {
    std::vector<Family> families;
    for (const OperationPlan& operation : plan.operations) {
        const std::string name = family_of(operation.name);
        auto family =
            std::ranges::find_if(families, [&](const Family& f) { return f.sum.name == name; });
        if (family == families.end()) {
            families.push_back({operation, 1});
            families.back().sum.name = name;
            continue;
        }
        OperationPlan& sum = family->sum;
        sum.flops += operation.flops;
        sum.read_bytes += operation.read_bytes;
        sum.local_bytes += operation.local_bytes;
        sum.remote_bytes += operation.remote_bytes;
        sum.seconds += operation.seconds;
        sum.prefill_seconds += operation.prefill_seconds;
        ++family->count;
    }
    return families;
}

std::string percent(double share) { return fmt::format("{:.2f}%", 100 * share); }

std::string bytes_or_dash(int64_t bytes) { return bytes == 0 ? "-" : format_bytes(bytes); }

void add_table(const Plan& plan, std::string& text) {
    text +=
        fmt::format("{:<17}{:>4}{:>12}{:>9}  {:<9}{:>8}{:>8}{:>11}{:>11}{:>9}\n", "operation", "n",
                    "read/step", "GFLOP", "bound by", "x*", "ratio", "local", "remote", "ms");
    for (const Family& family : families_of(plan)) {
        const OperationPlan& sum = family.sum;
        const bool placed = sum.local_bytes + sum.remote_bytes > 0;
        text += fmt::format(
            "{:<17}{:>4}{:>12}{:>9}  {:<9}{:>8}{:>8}{:>11}{:>11}{:>9.3f}\n", sum.name, family.count,
            bytes_or_dash(static_cast<int64_t>(sum.read_bytes)),
            placed ? fmt::format("{:.1f}", sum.flops / 1e9) : "-", name_of(sum.bound),
            placed ? percent(sum.turning_point) : "-", placed ? percent(sum.ratio()) : "-",
            placed ? bytes_or_dash(sum.local_bytes) : "-",
            placed ? bytes_or_dash(sum.remote_bytes) : "-", 1e3 * sum.seconds);
    }
    if (plan.link_wait_seconds > 0) {
        text +=
            fmt::format("{:<17}{:>82.3f}\n", "waiting for copies", 1e3 * plan.link_wait_seconds);
    }
}

/// A label and a text that continues below its own beginning.
void add_line(const std::string& label, const std::string& words, std::string& text) {
    constexpr size_t kLabel = 14;
    std::string row = fmt::format("{:<{}}", label, kLabel);
    size_t begin = 0;
    bool fresh = true;
    while (begin < words.size()) {
        const size_t end = std::min(words.find(' ', begin), words.size());
        if (!fresh && row.size() + 1 + end - begin > kColumns) {
            text += row + '\n';
            row = std::string(kLabel, ' ');
            fresh = true;
        }
        row += (fresh ? "" : " ") + words.substr(begin, end - begin);
        fresh = false;
        begin = end + 1;
    }
    text += row + '\n';
}

std::string limits_of(const Plan& plan) {
    const std::array<double, 4> seconds = seconds_by_bound(plan);
    std::vector<size_t> order = {0, 1, 2, 3};
    std::ranges::sort(order, [&](size_t a, size_t b) { return seconds[a] > seconds[b]; });
    std::string words;
    for (const size_t i : order) {
        const double share = seconds[i] / plan.tpot_seconds;
        if (share < 0.005) continue;
        words += fmt::format("{}{} {:.0f}%", words.empty() ? "" : ", ",
                             name_of(static_cast<Bound>(i)), 100 * share);
    }
    return words + " of a step";
}

void add_totals(const Plan& plan, std::string& text) {
    const int64_t remote = plan.remote_weight_bytes + plan.remote_kv_bytes;
    add_line(
        "decode",
        fmt::format("TPOT {:.2f} ms, {:.1f} tokens/s, EB {:.0f} GB/s (weights and KV as read; "
                    "all bytes of weights by TPOT {:.0f})",
                    1e3 * plan.tpot_seconds, plan.tokens_per_second(),
                    plan.effective_bytes_per_second() / 1e9, plan.weight_bytes_per_second() / 1e9),
        text);
    add_line("prefill",
             fmt::format("{:.1f} ms for {} tokens; the whole workload {:.3f} s",
                         1e3 * plan.prefill_seconds, plan.workload.batch * plan.workload.prompt,
                         plan.total_seconds()),
             text);
    add_line("limited by", limits_of(plan), text);
    add_line("offloaded",
             fmt::format("{} of {} ({}): {} gaining time, {} free, {} costing time; KV pages {} "
                         "local, {} remote",
                         format_bytes(remote),
                         format_bytes(remote + plan.gpu.weight_bytes + plan.gpu.kv_bytes),
                         percent(plan.offload_ratio()), format_bytes(plan.phase_bytes[0]),
                         format_bytes(plan.phase_bytes[1]), format_bytes(plan.phase_bytes[2]),
                         plan.kv_local_pages, plan.kv_remote_pages),
             text);
    std::string transport(name_of(plan.transport));
    if (plan.transport == Transport::kStaged) {
        transport += fmt::format(": {} pieces of {} a step through {} slots", plan.staging.pieces,
                                 format_bytes(plan.staging.slot_bytes), plan.staging.slots);
    }
    add_line("transport", transport, text);
    const GpuMemory& gpu = plan.gpu;
    add_line(
        "GPU memory",
        fmt::format("{} of {}: weights {}, KV {}, ring {}, activations {}, vectors {}, driver, "
                    "workspaces and margin {}",
                    format_bytes(gpu.total()), format_bytes(plan.budgets.gpu_bytes),
                    format_bytes(gpu.weight_bytes), format_bytes(gpu.kv_bytes),
                    format_bytes(gpu.ring_bytes), format_bytes(gpu.activation_bytes),
                    format_bytes(gpu.vector_bytes), format_bytes(gpu.reserve_bytes)),
        text);
    add_line(
        "remote memory",
        fmt::format("{} of {}: weights {}, KV {}", format_bytes(remote),
                    format_bytes(plan.budgets.host_bytes), format_bytes(plan.remote_weight_bytes),
                    format_bytes(plan.remote_kv_bytes)),
        text);
}

/// By what rounds to a tenth of a percent.
bool differs(double seconds, double before) { return std::abs(seconds / before - 1) >= 5e-4; }

}  // namespace

std::array<double, 4> seconds_by_bound(const Plan& plan) {
    std::array<double, 4> seconds{};
    for (const OperationPlan& operation : plan.operations) {
        seconds[static_cast<size_t>(operation.bound)] += operation.seconds;
    }
    seconds[static_cast<size_t>(Bound::kRemote)] += plan.link_wait_seconds;
    return seconds;
}

std::vector<Alternative> alternatives(const ModelConfig& config, const Plan& plan,
                                      const HardwareProfile& profile, const PlanOptions& options) {
    const Workload& workload = plan.workload;
    const Budgets& budgets = plan.budgets;
    std::vector<Alternative> result;
    const auto try_with = [&](std::string change, const HardwareProfile& machine,
                              const Budgets& memory, const PlanOptions& choice) {
        try {
            const Plan other = make_plan(config, workload, machine, memory, choice);
            if (!differs(other.tpot_seconds, plan.tpot_seconds) &&
                !differs(other.total_seconds(), plan.total_seconds())) {
                return;
            }
            result.push_back({std::move(change), other.tpot_seconds, other.total_seconds()});
        } catch (const Error&) {
            // Still not possible: nothing to tell.
        }
    };
    HardwareProfile faster = profile;
    faster.remote_direct_gbps *= 2;
    for (CurvePoint& point : faster.staged_gbps) point.value *= 2;
    const int64_t more = round_up(budgets.gpu_bytes / 8, kGiB);
    try_with(fmt::format("{} more GPU memory", format_bytes(more)), profile,
             {budgets.gpu_bytes + more, budgets.host_bytes}, options);
    try_with("a link twice as fast", faster, budgets, options);
    const Footprint size = footprint(config, workload, options.kv_dtype);
    try_with("memory for everything on the GPU", profile,
             {budgets.gpu_bytes + 2 * (size.weight_bytes + size.kv_bytes), budgets.host_bytes},
             options);
    // Remote weights cross the link once per chunk.
    const int64_t tokens = workload.batch * workload.prompt;
    PlanOptions longer = options;
    longer.prefill_chunk = std::min(tokens, kLongChunk);
    if (longer.prefill_chunk > options.prefill_chunk) {
        try_with(fmt::format("prefill chunks of {} tokens", longer.prefill_chunk), profile, budgets,
                 longer);
    }
    return result;
}

std::string format_plan(const Plan& plan, const std::vector<Alternative>& alternatives) {
    std::string text =
        fmt::format("{} on {}: batch {}, prompt {}, output {}\n\n", plan.model, plan.hardware,
                    plan.workload.batch, plan.workload.prompt, plan.workload.output);
    add_table(plan, text);
    text += '\n';
    add_totals(plan, text);
    for (size_t i = 0; i < plan.why.size(); ++i) add_line(i == 0 ? "why" : "", plan.why[i], text);
    for (size_t i = 0; i < alternatives.size(); ++i) {
        const Alternative& a = alternatives[i];
        add_line(i == 0 ? "with" : "",
                 fmt::format("{}: TPOT {:.2f} ms ({:+.1f}%), workload {:.3f} s", a.change,
                             1e3 * a.tpot_seconds, 100 * (a.tpot_seconds / plan.tpot_seconds - 1),
                             a.total_seconds),
                 text);
    }
    return text;
}

std::string format_sweep(const std::vector<SweepPoint>& sweep) {
    const auto highest =
        std::ranges::max_element(sweep, {}, &SweepPoint::effective_bytes_per_second);
    const auto peak = peak_of(sweep);
    std::string text =
        fmt::format("{:>8}{:>12}{:>12}  {:<9}\n", "ratio", "TPOT ms", "EB GB/s", "transport");
    for (const SweepPoint& point : sweep) {
        const double share = point.effective_bytes_per_second / highest->effective_bytes_per_second;
        text +=
            fmt::format("{:>8}{:>12.2f}{:>12.0f}  {:<9} {}{}{}\n",
                        fmt::format("{:.1f}%", 100 * point.offload_ratio), 1e3 * point.tpot_seconds,
                        point.effective_bytes_per_second / 1e9, name_of(point.transport),
                        std::string(static_cast<size_t>(share * kBarWidth + 0.5), '#'),
                        peak && point.offload_ratio == peak->offload_ratio ? " peak" : "",
                        point.fits ? "" : " (does not fit)");
    }
    return text;
}

Json to_json(const Plan& plan, const std::vector<Alternative>& alternatives) {
    Json operations = Json::array();
    for (const OperationPlan& o : plan.operations) {
        operations.push_back({{"name", o.name},
                              {"flops", o.flops},
                              {"read_bytes", o.read_bytes},
                              {"local_bytes", o.local_bytes},
                              {"remote_bytes", o.remote_bytes},
                              {"bound", name_of(o.bound)},
                              {"turning_point", o.turning_point},
                              {"ratio", o.ratio()},
                              {"seconds", o.seconds},
                              {"prefill_seconds", o.prefill_seconds}});
    }
    Json others = Json::array();
    for (const Alternative& a : alternatives) {
        others.push_back({{"change", a.change},
                          {"tpot_seconds", a.tpot_seconds},
                          {"total_seconds", a.total_seconds}});
    }
    return {{"model", plan.model},
            {"hardware", plan.hardware},
            {"batch", plan.workload.batch},
            {"prompt", plan.workload.prompt},
            {"output", plan.workload.output},
            {"gpu_budget_bytes", plan.budgets.gpu_bytes},
            {"remote_budget_bytes", plan.budgets.host_bytes},
            {"transport", name_of(plan.transport)},
            {"ring",
             {{"slot_bytes", plan.staging.slot_bytes},
              {"slots", plan.staging.slots},
              {"pieces", plan.staging.pieces}}},
            {"offload_ratio", plan.offload_ratio()},
            {"phase_bytes", plan.phase_bytes},
            {"placement_atoms", plan.placement},
            {"kv_local_pages", plan.kv_local_pages},
            {"kv_remote_pages", plan.kv_remote_pages},
            {"gpu_bytes",
             {{"weights", plan.gpu.weight_bytes},
              {"vectors", plan.gpu.vector_bytes},
              {"kv", plan.gpu.kv_bytes},
              {"ring", plan.gpu.ring_bytes},
              {"activations", plan.gpu.activation_bytes},
              {"reserve", plan.gpu.reserve_bytes},
              {"total", plan.gpu.total()}}},
            {"remote_bytes", {{"weights", plan.remote_weight_bytes}, {"kv", plan.remote_kv_bytes}}},
            {"tpot_seconds", plan.tpot_seconds},
            {"prefill_seconds", plan.prefill_seconds},
            {"total_seconds", plan.total_seconds()},
            {"link_wait_seconds", plan.link_wait_seconds},
            {"tokens_per_second", plan.tokens_per_second()},
            {"effective_bytes_per_second", plan.effective_bytes_per_second()},
            {"weight_bytes_per_second", plan.weight_bytes_per_second()},
            {"operations", std::move(operations)},
            {"why", plan.why},
            {"alternatives", std::move(others)}};
}

Json to_json(const std::vector<SweepPoint>& sweep) {
    Json points = Json::array();
    for (const SweepPoint& point : sweep) {
        points.push_back({{"offload_ratio", point.offload_ratio},
                          {"tpot_seconds", point.tpot_seconds},
                          {"effective_bytes_per_second", point.effective_bytes_per_second},
                          {"transport", name_of(point.transport)},
                          {"fits", point.fits}});
    }
    return points;
}

}  // namespace dak
