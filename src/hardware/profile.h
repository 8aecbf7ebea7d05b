#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace dak {

/// One point of a curve; `at` counts tokens or bytes, `value` is in the curve's unit.
struct CurvePoint {
    double at = 0;
    double value = 0;
};

/// A measured curve, ascending in `at`.
using Curve = std::vector<CurvePoint>;

/// The curve at `at`: linear in log(at) between the points, the end values outside them. Throws
/// Error when the curve has no point.
double interpolate(const Curve& curve, double at);

/// One setting of the window sweep: `remote_ctas` CTAs that each keep `slots` reads of 16 KiB under
/// way, and the two rates seen at the same time.
struct WindowPoint {
    int remote_ctas = 0;
    int slots = 0;
    int64_t in_flight_bytes = 0;
    double local_gbps = 0;
    double remote_gbps = 0;

    double sum_gbps() const { return local_gbps + remote_gbps; }
};

/// What the maker promises; zero where not known. Bandwidths are per direction.
struct Datasheet {
    double local_gbps = 0;
    double link_gbps = 0;
    double tflops = 0;  ///< dense 16-bit with fp32 accumulation
};

/// What the planner has to know of a machine: measured by `dak profile`, or a preset of a known
/// one. GB are 10^9 bytes.
struct HardwareProfile {
    static constexpr int kSchemaVersion = 2;

    std::string name;      ///< "h200-pcie"
    std::string gpu;       ///< "NVIDIA H200"
    std::string gpu_uuid;  ///< empty: not of one particular GPU
    std::string driver;
    std::string link;  ///< "PCIe gen 5 x16"
    std::string date;  ///< when it was measured or written down, ISO 8601
    bool measured = false;
    std::string remote = "host";  ///< the remote tier: "host" or "peer:N"

    int sms = 0;
    int64_t gpu_memory_bytes = 0;
    int64_t remote_memory_bytes = 0;

    double local_gbps = 0;          ///< B_g: SMs read HBM
    double remote_direct_gbps = 0;  ///< B_h: SMs read the remote tier
    Curve staged_gbps;              ///< the copy engine moves pieces of so many bytes
    /// HBM bytes that kernels fail to read for each byte that the copy engine writes there.
    double staging_write_cost = 0;
    /// What kernels that wait for copies cost in HBM rate, whatever the ratio; 1: nothing.
    double staging_slowdown = 1;
    /// How much longer a copy takes beside kernels that read HBM at its full rate; 1: no longer.
    double staging_contention = 1;
    int64_t window_bytes = 0;  ///< remote bytes in flight, whole GPU, that leave B_g untouched
    /// A product of up to so many tokens at a time reads remote weights over the link once.
    int64_t direct_once_tokens = 0;

    Curve kernel_us;               ///< fixed cost of one product in a chain, by tokens
    Curve gemm_tflops;             ///< large products, by tokens
    double small_kernel_us = 0;    ///< a kernel of little work in a chain: a norm
    double small_kernel_gbps = 0;  ///< activations that such a kernel reads and writes
    double step_us = 0;            ///< what a step costs besides its kernels: launch, sampling
    double attention_local_gbps = 0;
    double attention_us = 0;  ///< fixed cost of one decode attention kernel in a chain
    /// Least time of one of very many (sequence, KV head) pairs of a decode attention, whole GPU.
    double attention_item_us = 0;
    double attention_tflops = 0;  ///< of prefill

    Datasheet datasheet;
    std::vector<WindowPoint> window_sweep;
    double window_sum_gbps = 0;  ///< both rates together with the window chosen; 0: not measured
    std::map<std::string, std::string> sources;  ///< where a number comes from, by field

    /// The copy engine's rate with pieces of `piece_bytes`.
    double staged_at(double piece_bytes) const { return interpolate(staged_gbps, piece_bytes); }
};

Json to_json(const HardwareProfile& profile);

/// `where` names the source in errors. Throws Error on another schema version, and on a field that
/// is missing or makes no sense.
HardwareProfile parse_hardware_profile(const Json& json, const std::string& where);

/// Reads a profile file.
HardwareProfile read_hardware_profile(const std::filesystem::path& path);

/// Writes a profile so that a reader sees it whole or not at all; makes the folder. Throws Error
/// when it cannot.
void write_hardware_profile(const std::filesystem::path& path, const HardwareProfile& profile);

/// Whether the environment names a folder for measured profiles.
bool has_profile_cache();

/// Where the measured profile of a GPU with this driver, link and remote tier belongs: below
/// $XDG_CACHE_HOME/dak, else ~/.cache/dak.
std::filesystem::path profile_cache_path(std::string_view gpu_uuid, std::string_view driver,
                                         std::string_view link, std::string_view remote);

/// The names of the built-in machines: "h200-pcie", ...
std::vector<std::string> hardware_preset_names();

/// A built-in machine. Throws Error listing the names when there is none such.
HardwareProfile hardware_preset(std::string_view name);

}  // namespace dak
