#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/units.h"
#include "hardware/profile.h"

namespace dak {

namespace {

/// The machine that the others are scaled from: measured (bench/results/gemm-h200.json,
/// docs/split-gemm.md, docs/planner.md).
HardwareProfile h200_pcie() {
    HardwareProfile p;
    p.name = "h200-pcie";
    p.gpu = "NVIDIA H200";
    p.link = "PCIe gen 5 x16";
    p.date = "2026-11-30";
    p.sms = 132;
    p.gpu_memory_bytes = 140 * kGiB;
    p.remote_memory_bytes = 480 * kGiB;
    p.local_gbps = 4740;
    p.remote_direct_gbps = 51.4;
    p.staged_gbps = {{64.0 * kKiB, 17.7}, {256.0 * kKiB, 36.5}, {1.0 * kMiB, 49.0},
                     {4.0 * kMiB, 53.7},  {16.0 * kMiB, 55.0},  {64.0 * kMiB, 55.4}};
    p.staging_write_cost = 6;
    p.staging_slowdown = 1.035;
    p.staging_contention = 1;
    p.window_bytes = 512 * kKiB;
    p.direct_once_tokens = 1024;
    p.kernel_us = {{1, 2.3}, {8, 2.5}, {16, 3.5}, {32, 4.5}, {64, 6.7}, {128, 3.5}};
    p.gemm_tflops = {{128, 490}, {256, 631}, {512, 655}, {1024, 674}, {4096, 676}};
    p.small_kernel_us = 2.2;
    p.step_us = 20;
    p.attention_local_gbps = 4580;
    p.attention_us = 4;
    p.attention_item_us = 0.0085;
    p.small_kernel_gbps = 3000;
    p.attention_tflops = 350;
    p.datasheet = {4800, 64, 989};
    p.sources = {
        {"local_gbps", "measured: 1-D bulk copies from HBM, 132 SMs"},
        {"remote_direct_gbps", "measured: 1-D bulk copies from pinned host memory"},
        {"staged_gbps", "measured: copy engine, pinned host memory"},
        {"staging_write_cost", "measured: layer chains beside the copy engine"},
        {"window_bytes", "measured: HBM rate falls above 512 KiB in flight"},
        {"direct_once_tokens", "the widest product whose clusters read a weight once"},
        {"kernel_us", "fitted to the chains of bench/results/gemm-h200.json"},
        {"gemm_tflops", "geometric means of bench/results/gemm-h200.json less 3.5 us"},
        {"small_kernel_us",
         "bench/results/small-ops-h200.json: norms and rope of 8 tokens in a chain"},
        {"step_us", "a graph's launch 6.4 us (dak profile), attention's lists and sampling 13"},
        {"attention_local_gbps",
         "fitted to the decode chains of bench/results/attention-h200.json"},
        {"attention_us", "likewise"},
        {"attention_item_us", "likewise, 512 sequences of 64 tokens"},
        {"staging_slowdown", "measured: steps of OPT-30B with 0.25 to 1% staged"},
        {"staging_contention", "measured: copies alone and beside kernels that read HBM"},
        {"sms", "NVIDIA H200 datasheet"},
        {"small_kernel_gbps", "bench/results/small-ops-h200.json: norms of 8 and of 512 rows"},
        {"attention_tflops", "bench/results/attention-h200.json: causal prefill of 1,024 tokens"},
        {"gpu_memory_bytes", "what the driver offers of 141 GB"},
        {"remote_memory_bytes", "assumed; give --host-memory"},
        {"datasheet", "NVIDIA H200 datasheet; PCIe 5.0 x16 per direction"},
    };
    return p;
}

HardwareProfile h200_peer() {
    HardwareProfile p = h200_pcie();
    p.name = "h200-peer";
    p.link = "NVLink 4 x18";
    p.remote = "peer:1";
    p.remote_memory_bytes = 140 * kGiB;
    p.remote_direct_gbps = 370;
    p.staged_gbps = {{1.0 * kMiB, 340}, {16.0 * kMiB, 395}, {64.0 * kMiB, 397}};
    p.staging_write_cost = 1.5;
    p.staging_slowdown = 1.045;
    p.staging_contention = 1.4;
    p.window_bytes = 4 * kMiB;
    p.datasheet.link_gbps = 450;
    p.sources["remote_direct_gbps"] = "measured: layer chains that read a peer's memory";
    p.sources["staged_gbps"] = "measured: copy engine from a peer; 1 MiB is an estimate";
    p.sources["staging_write_cost"] = "measured: layer chains beside copies from a peer";
    p.sources["staging_slowdown"] = "fitted to layer chains beside copies from a peer";
    p.sources["staging_contention"] = "measured: copies from a peer, alone and beside kernels";
    p.sources["window_bytes"] =
        "measured: no collapse up to 12 MB; 16 SMs x 4 x 16 KiB x 2 kernels "
        "reach the link's rate";
    p.sources["remote_memory_bytes"] = "all of the peer";
    p.sources["datasheet"] = "NVIDIA H200 datasheet; NVLink per direction";
    return p;
}

/// What is scaled from the H200 for a machine of which only datasheets are known.
struct Sheet {
    std::string_view name, gpu, link;
    int sms;
    double memory_gb;   ///< as sold
    double local_gbps;  ///< datasheet
    double link_gbps;   ///< datasheet, per direction
    double tflops;      ///< dense 16-bit with fp32 accumulation
    /// Rates as given rather than scaled by what the H200 reaches of its datasheet.
    bool rates_as_given;
    std::string_view source;
};

constexpr std::array<Sheet, 7> kSheets = {{
    {"gh200", "NVIDIA GH200", "NVLink-C2C", 132, 103.1, 4000, 450, 989, true,
     "DAK paper, sections 1 and 6: 4.0 TB/s HBM3, NVLink-C2C 900 GB/s, 450 per direction; SMs, 96 "
     "GiB and TFLOP/s from the NVIDIA GH200 datasheet"},
    {"rtx-pro-6000", "NVIDIA RTX PRO 6000 Blackwell", "PCIe gen 5 x16", 188, 103.1, 1800, 64, 504,
     true,
     "DAK paper, section 6: 1.8 TB/s GDDR7, PCIe 5 at 64 GB/s; SMs, memory and TFLOP/s from the "
     "datasheet"},
    {"h100-pcie", "NVIDIA H100 PCIe", "PCIe gen 5 x16", 114, 85.9, 2039, 64, 756, false,
     "NVIDIA H100 datasheet (80 GB PCIe)"},
    {"h100-sxm", "NVIDIA H100 SXM", "PCIe gen 5 x16", 132, 85.9, 3350, 64, 989, false,
     "NVIDIA H100 datasheet (80 GB SXM5)"},
    {"rtx-4090", "NVIDIA GeForce RTX 4090", "PCIe gen 4 x16", 128, 25.8, 1008, 32, 165, false,
     "NVIDIA Ada architecture white paper; PCIe 4.0 x16 per direction"},
    {"rtx-5090", "NVIDIA GeForce RTX 5090", "PCIe gen 5 x16", 170, 34.4, 1792, 64, 210, false,
     "NVIDIA RTX Blackwell architecture white paper; PCIe 5.0 x16 per direction"},
    {"b200", "NVIDIA B200", "PCIe gen 5 x16", 148, 193, 8000, 64, 2250, false,
     "NVIDIA HGX B200 datasheet (180 GB, dense bf16)"},
}};

HardwareProfile scaled(const Sheet& sheet) {
    const HardwareProfile h200 = h200_pcie();
    HardwareProfile p = h200;
    p.name = sheet.name;
    p.gpu = sheet.gpu;
    p.link = sheet.link;
    p.date.clear();  // never measured
    p.sms = sheet.sms;
    p.gpu_memory_bytes = static_cast<int64_t>(sheet.memory_gb * 1e9);
    p.datasheet = {sheet.local_gbps, sheet.link_gbps, sheet.tflops};

    const double local = sheet.local_gbps / h200.datasheet.local_gbps;
    const double link = sheet.link_gbps / h200.datasheet.link_gbps;
    const double maths = sheet.tflops / h200.datasheet.tflops;
    p.local_gbps = sheet.rates_as_given ? sheet.local_gbps : h200.local_gbps * local;
    p.remote_direct_gbps = sheet.rates_as_given ? sheet.link_gbps : h200.remote_direct_gbps * link;
    // A large piece as fast as the link's rate allows, a small one held up by the same latency.
    const double largest =
        sheet.rates_as_given ? sheet.link_gbps : h200.staged_gbps.back().value * link;
    for (CurvePoint& point : p.staged_gbps) {
        const double latency_s =
            point.at / (point.value * 1e9) - point.at / (h200.staged_gbps.back().value * 1e9);
        point.value = point.at / (point.at / (largest * 1e9) + latency_s) / 1e9;
    }
    // Host PCIe and NVLink-like links differ in what a write costs (h200-pcie, h200-peer).
    if (sheet.link_gbps > 200) {
        p.staging_write_cost = h200_peer().staging_write_cost;
        p.staging_slowdown = h200_peer().staging_slowdown;
    }
    p.window_bytes = std::max(p.window_bytes, static_cast<int64_t>(link * 512) * kKiB);
    for (CurvePoint& point : p.gemm_tflops) point.value *= maths;
    p.attention_local_gbps =
        sheet.rates_as_given ? p.local_gbps : h200.attention_local_gbps * local;
    p.attention_tflops *= maths;
    p.attention_item_us /= maths;
    p.small_kernel_gbps *= local;

    const std::string given(sheet.source);
    const std::string from_sheet = given + ", times what an H200 reaches of its datasheet";
    p.sources = {
        {"local_gbps", sheet.rates_as_given ? given : from_sheet},
        {"remote_direct_gbps", sheet.rates_as_given ? given : from_sheet},
        {"staged_gbps", "the link's rate, with the latency per piece of h200-pcie"},
        {"staging_write_cost", sheet.link_gbps > 200 ? "of h200-peer" : "of h200-pcie"},
        {"staging_slowdown", sheet.link_gbps > 200 ? "of h200-peer" : "of h200-pcie"},
        {"staging_contention", "of h200-pcie"},
        {"sms", given},
        {"window_bytes", "of h200-pcie, times the link's rate"},
        {"direct_once_tokens", "of h200-pcie"},
        {"kernel_us", "of h200-pcie"},
        {"gemm_tflops", from_sheet},
        {"small_kernel_us", "of h200-pcie"},
        {"step_us", "of h200-pcie"},
        {"attention_local_gbps", sheet.rates_as_given ? given : from_sheet},
        {"attention_us", "of h200-pcie"},
        {"attention_item_us", from_sheet},
        {"small_kernel_gbps", from_sheet},
        {"attention_tflops", from_sheet},
        {"gpu_memory_bytes", given},
        {"remote_memory_bytes", "assumed; give --host-memory"},
        {"datasheet", given},
    };
    return p;
}

}  // namespace

std::vector<std::string> hardware_preset_names() {
    std::vector<std::string> names = {"h200-pcie", "h200-peer"};
    for (const Sheet& sheet : kSheets) names.emplace_back(sheet.name);
    return names;
}

HardwareProfile hardware_preset(std::string_view name) {
    if (name == "h200-pcie") return h200_pcie();
    if (name == "h200-peer") return h200_peer();
    const auto* const sheet = std::ranges::find(kSheets, name, &Sheet::name);
    require(sheet != kSheets.end(), "no built-in hardware is called '{}'; there are {}", name,
            fmt::join(hardware_preset_names(), ", "));
    return scaled(*sheet);
}

}  // namespace dak
