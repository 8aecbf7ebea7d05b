#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "hardware/profile.h"
#include "model/config.h"
#include "model/weights.h"

namespace dak {

/// What is to be generated: `batch` sequences at once, each of `prompt` + `output` tokens.
struct Workload {
    int64_t batch = 8;
    int64_t prompt = 32;
    int64_t output = 32;

    bool operator==(const Workload&) const = default;
};

/// Memory that a plan may use in all: of the GPU, its driver context included, and of the remote
/// tier (the host's, or the peer's with a peer profile).
struct Budgets {
    int64_t gpu_bytes = 0;
    int64_t host_bytes = 0;
};

/// How remote weights reach the SMs: read in place, or copied ahead of use by the copy engine into
/// a ring in GPU memory. Remote KV pages are read in place either way.
enum class Transport : uint8_t { kDirect, kStaged };

/// How offloaded bytes are divided among the operations: by what each one costs (DAK paper,
/// section 4.2), or the same share of each, for comparison.
enum class PlanPolicy : uint8_t { kGreedy, kUniform };

/// The share of the weights whose names match `pattern` ('*' stands for anything) that is remote;
/// "kv" names the KV cache. Of several rules that match, the last holds.
struct PlacementRule {
    std::string pattern;
    double remote_share = 0;
};

/// Parses "layers.*.up=remote", "lm_head=local", "kv=0.25". Throws Error on anything else.
PlacementRule parse_placement_rule(std::string_view text);

/// GPU memory that is neither weights, KV cache nor activations.
struct MemoryReserves {
    int64_t context_bytes = 600 * kMiB;  ///< the driver's, with the kernels' code
    int64_t graph_bytes = 64 * kMiB;     ///< captured steps
    /// Of the split GEMM (17 MiB) and of attention (128 MiB of prefill's copies of remote pages).
    int64_t workspace_bytes = 192 * kMiB;
    int64_t margin_bytes = 256 * kMiB;  ///< what nobody counted: fragmentation, other programs
};

struct PlanOptions {
    std::string model_name;  ///< for the plan and for refusals; empty: the architecture's
    PlanPolicy policy = PlanPolicy::kGreedy;
    /// Remote bytes / all bytes of weights and KV cache. Nothing: as the memory demands, or up to
    /// the turning point where that makes the workload faster by `min_gain`.
    std::optional<double> offload_ratio;
    std::optional<Transport> transport;  ///< nothing: the faster
    std::vector<PlacementRule> rules;
    std::optional<DType> kv_dtype;  ///< nothing: the model's
    int64_t prefill_chunk = 512;    ///< prompt tokens of one step, over all sequences
    MemoryReserves reserves;
    double min_gain = 0.02;
};

/// What the time of an operation is made of.
enum class Bound : uint8_t { kLocal, kRemote, kCompute, kOverhead };

std::string_view name_of(Transport transport);
std::string_view name_of(Bound bound);

/// One operation of a decode step: a weight, the attention over the KV cache ("kv"), or what has no
/// bytes to place ("other kernels").
struct OperationPlan {
    std::string name;
    double flops = 0;
    double read_bytes = 0;       ///< of a step, from both tiers
    int64_t local_bytes = 0;     ///< stored
    int64_t remote_bytes = 0;    ///< stored
    double turning_point = 0;    ///< x*: the ratio up to which offloading does not cost time
    double seconds = 0;          ///< of a decode step; without waiting for copies when staged
    double prefill_seconds = 0;  ///< of the whole prefill, likewise
    Bound bound = Bound::kLocal;

    double ratio() const;
    /// Of read_bytes, those from the remote tier.
    double remote_read_bytes() const { return read_bytes * ratio(); }
};

/// GPU memory by what it is for.
struct GpuMemory {
    int64_t weight_bytes = 0;
    int64_t vector_bytes = 0;  ///< norms and biases
    int64_t kv_bytes = 0;
    int64_t ring_bytes = 0;  ///< of the staged transport
    int64_t activation_bytes = 0;
    int64_t reserve_bytes = 0;  ///< MemoryReserves

    int64_t total() const;
};

/// The ring of the staged transport: a step's remote weight bytes are cut into `pieces` of
/// `slot_bytes` (the last one shorter), which go round `slots` slots. The slots hold any product's
/// remote bytes twice and a piece more, or all of them.
struct StagingPlan {
    int64_t slot_bytes = 0;
    int64_t slots = 0;
    int64_t pieces = 0;
};

struct Plan {
    std::string model;     ///< PlanOptions::model_name, or the architecture
    std::string hardware;  ///< profile name
    Workload workload;
    Budgets budgets;

    Placement placement;  ///< remote atoms of each of weight_specs()
    int64_t kv_local_pages = 0;
    int64_t kv_remote_pages = 0;
    Transport transport = Transport::kDirect;
    StagingPlan staging;  ///< zeros with the direct transport

    std::vector<OperationPlan> operations;
    /// Offloaded bytes by the paper's phases: those that gain time, those that cost none, the rest.
    std::array<int64_t, 3> phase_bytes{};
    GpuMemory gpu;
    int64_t remote_weight_bytes = 0;
    int64_t remote_kv_bytes = 0;

    double tpot_seconds = 0;       ///< mean over the output tokens
    double prefill_seconds = 0;    ///< of all prompts
    double link_wait_seconds = 0;  ///< part of a decode step in which kernels wait for copies
    double weight_read_bytes = 0;  ///< of a decode step
    double kv_read_bytes = 0;      ///< of a decode step, mean over the output
    std::vector<std::string> why;  ///< what the planner decided, one sentence each

    double offload_ratio() const;  ///< remote bytes / bytes, weights and KV cache
    double total_seconds() const;
    double tokens_per_second() const;  ///< decode
    /// EB: bytes of weights and KV that a step reads / time of the step.
    double effective_bytes_per_second() const;
    /// The paper's EB: bytes of weights / TPOT.
    double weight_bytes_per_second() const;
};

/// The split that takes the least time for the workload on the machine within the budgets. A pure
/// function. Throws Error when the budgets cannot be met, with the smallest that could; and on a
/// workload or options that make no sense.
Plan make_plan(const ModelConfig& config, const Workload& workload, const HardwareProfile& profile,
               const Budgets& budgets, const PlanOptions& options = {});

/// What must be stored: bytes of weights as packed, and of the KV of all tokens (not of whole
/// pages).
struct Footprint {
    int64_t weight_bytes = 0;
    int64_t kv_bytes = 0;
};
Footprint footprint(const ModelConfig& config, const Workload& workload,
                    std::optional<DType> kv_dtype = {});

/// One point of a sweep over the offload ratio.
struct SweepPoint {
    double offload_ratio = 0;
    double tpot_seconds = 0;
    double effective_bytes_per_second = 0;
    Transport transport = Transport::kDirect;
    bool fits = true;  ///< in the GPU budget
};

/// What the cost model says at ratios 0..1 in steps of 5%, at the turning point and around it, as
/// far as the rules allow, with bytes divided to the fraction of a page, so that the curve is
/// smooth. The budgets set `fits` only; where one transport fits and the other does not, it is
/// taken. Throws Error, as make_plan, when nothing fits.
std::vector<SweepPoint> sweep_offload_ratio(const ModelConfig& config, const Workload& workload,
                                            const HardwareProfile& profile, const Budgets& budgets,
                                            const PlanOptions& options = {});

/// The point of the highest bandwidth among those that fit; nothing when none does.
std::optional<SweepPoint> peak_of(const std::vector<SweepPoint>& sweep);

}  // namespace dak
