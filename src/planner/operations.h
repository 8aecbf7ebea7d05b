#pragma once

#include <string>
#include <vector>

#include "planner/planner.h"

namespace dak {

/// What an operation does in a phase (prefill, or decode), per step of the phase.
struct PhaseWork {
    double steps = 0;  ///< of the workload
    double read_bytes = 0;
    double compute_seconds = 0;
    double fixed_seconds = 0;
    double local_bytes_per_second = 1;
    double crossings = 1;  ///< times that a remote byte crosses the link when SMs read it
    double flops = 0;
};

/// An operation with bytes that can be placed. KV pages and weights differ in their unit only.
struct Operation {
    std::string name;
    int64_t units = 0;  ///< atoms, or pages of all layers
    int64_t unit_bytes = 0;
    PhaseWork prefill, decode;
    bool staged = false;  ///< streamed whole each step, so that the copy engine can bring it
    std::optional<double> fixed_share;  ///< set by a placement rule

    double stored_bytes() const { return static_cast<double>(units * unit_bytes); }
};

/// The operations of a model: one per WeightSpec, in that order, then the KV cache.
std::vector<Operation> model_operations(const ModelConfig& config, const Workload& workload,
                                        const HardwareProfile& profile, const PlanOptions& options);

/// Seconds of the kernels and launches that read nothing that is placed: per decode step, and of
/// the whole prefill.
struct OtherWork {
    double decode_seconds = 0;
    double prefill_seconds = 0;
};
OtherWork other_work(const ModelConfig& config, const Workload& workload,
                     const HardwareProfile& profile, const PlanOptions& options);

/// GPU memory besides weights, KV cache and ring.
GpuMemory fixed_memory(const ModelConfig& config, const Workload& workload,
                       const PlanOptions& options);

/// About what fixed_memory, the weights and the KV cache come to, without overflow.
double rough_bytes(const ModelConfig& config, const Workload& workload, const PlanOptions& options);

}  // namespace dak
