#include "cli/profile_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/units.h"

namespace dak {

namespace {

constexpr int kLabel = 26;
constexpr int kBarWidth = 40;
constexpr int kOverlap = 2;  // kernels whose remote reads the window counts together

std::string against(double rate, double datasheet, const char* what) {
    return datasheet > 0
               ? fmt::format("{:5.1f}% of the {}'s {:.0f}", 100 * rate / datasheet, what, datasheet)
               : std::string();
}

void add(std::string& text, std::string_view label, std::string_view value,
         std::string_view note = {}) {
    text += note.empty() ? fmt::format("  {:<{}}{}\n", label, kLabel, value)
                         : fmt::format("  {:<{}}{:<16}{}\n", label, kLabel, value, note);
}

std::string curve_text(const Curve& curve, bool bytes) {
    std::string text;
    for (const CurvePoint& point : curve) {
        const auto at = static_cast<int64_t>(point.at);
        text += fmt::format("{}{}: {:.3g}", text.empty() ? "" : ", ",
                            bytes ? format_bytes(at) : fmt::format("{}", at), point.value);
    }
    return text;
}

/// Of each number of bytes in flight, the setting with the highest sum.
std::map<int64_t, WindowPoint> best_by_bytes(const std::vector<WindowPoint>& sweep) {
    std::map<int64_t, WindowPoint> best;
    for (const WindowPoint& point : sweep) {
        const auto [entry, added] = best.try_emplace(point.in_flight_bytes, point);
        if (!added && point.sum_gbps() > entry->second.sum_gbps()) entry->second = point;
    }
    return best;
}

void add_window(const HardwareProfile& profile, std::string& text) {
    text += fmt::format(
        "\nWindow: {} of remote reads in flight, two overlapping kernels together\n"
        "  {:>10}  {:<14}{:>9}{:>9}{:>9}\n",
        format_bytes(profile.window_bytes), "in flight", "CTAs x slots", "HBM", "remote", "sum");
    const auto best = best_by_bytes(profile.window_sweep);
    double most = 0;
    for (const auto& [bytes, point] : best) most = std::max(most, point.sum_gbps());
    for (const auto& [bytes, point] : best) {
        const auto bar = static_cast<size_t>(kBarWidth * point.sum_gbps() / most + 0.5);
        text +=
            fmt::format("  {:>10}  {:<14}{:>9.0f}{:>9.1f}{:>9.0f}  {}{}\n", format_bytes(bytes),
                        fmt::format("{} x {}", point.remote_ctas, point.slots), point.local_gbps,
                        point.remote_gbps, point.sum_gbps(), std::string(bar, '#'),
                        kOverlap * bytes == profile.window_bytes ? " chosen" : "");
    }
    add(text, "with the window chosen", fmt::format("{:.0f} GB/s", profile.window_sum_gbps),
        fmt::format("{:+.1f}% of the best of the sweep",
                    100 * (profile.window_sum_gbps / most - 1)));
}

}  // namespace

std::string format_profile(const HardwareProfile& profile,
                           const std::vector<std::string>& warnings) {
    std::string text =
        fmt::format("{}, remote tier {} over {}, {} {}\n", profile.gpu, profile.remote,
                    profile.link, profile.measured ? "measured" : "preset of", profile.date);
    const Datasheet& sheet = profile.datasheet;
    const double staged = profile.staged_gbps.back().value;
    add(text, "HBM, read by SMs", fmt::format("{:.0f} GB/s", profile.local_gbps),
        against(profile.local_gbps, sheet.local_gbps, "datasheet"));
    add(text, "remote, read by SMs", fmt::format("{:.1f} GB/s", profile.remote_direct_gbps),
        against(profile.remote_direct_gbps, sheet.link_gbps, "link"));
    add(text, "remote, copy engine", fmt::format("{:.1f} GB/s", staged),
        against(staged, sheet.link_gbps, "link"));
    add(text, "  by piece, GB/s", curve_text(profile.staged_gbps, true));
    add(text, "  a byte copied costs", fmt::format("{:.1f} bytes", profile.staging_write_cost),
        "of what kernels read from HBM");
    add(text, "turning point x*",
        fmt::format("{:.2f}%", 100 * profile.remote_direct_gbps /
                                   (profile.remote_direct_gbps + profile.local_gbps)));
    add(text, "decode attention", fmt::format("{:.0f} GB/s", profile.attention_local_gbps),
        fmt::format("and {:.1f} us a kernel", profile.attention_us));
    const double tflops =
        std::ranges::max_element(profile.gemm_tflops, {}, &CurvePoint::value)->value;
    add(text, "large products", fmt::format("{:.0f} TFLOP/s", tflops),
        against(tflops, sheet.tflops, "datasheet"));
    add(text, "  by tokens, TFLOP/s", curve_text(profile.gemm_tflops, false));
    add(text, "  a product costs, us", curve_text(profile.kernel_us, false));
    add(text, "a small kernel", fmt::format("{:.2f} us", profile.small_kernel_us));
    add(text, "launch of a step", fmt::format("{:.1f} us", profile.step_us));
    if (!profile.window_sweep.empty()) add_window(profile, text);
    if (!warnings.empty()) text += "\nWarnings\n";
    for (const std::string& warning : warnings) text += fmt::format("  - {}\n", warning);
    return text;
}

std::vector<PlotPanel> window_panels(const HardwareProfile& profile) {
    if (profile.window_sweep.empty()) return {};
    PlotPanel sum;
    sum.title = fmt::format("{}, remote tier {}: local and remote rate together", profile.gpu,
                            profile.remote);
    sum.x_label = "remote bytes in flight of one kernel, KiB";
    sum.y_label = "GB/s";
    sum.log_x = true;
    sum.marked_x = static_cast<double>(profile.window_bytes) / kOverlap / kKiB;
    sum.mark = "window / 2";
    PlotPanel rate = sum;
    rate.title = "Remote rate alone";
    std::map<int, PlotSeries> sums, rates;
    for (const WindowPoint& point : profile.window_sweep) {
        const double x = static_cast<double>(point.in_flight_bytes) / kKiB;
        sums[point.slots].points.push_back({x, point.sum_gbps()});
        rates[point.slots].points.push_back({x, point.remote_gbps});
    }
    for (auto* lines : {&sums, &rates}) {
        PlotPanel& panel = lines == &sums ? sum : rate;
        for (auto& [slots, series] : *lines) {
            std::ranges::sort(series.points, {}, &PlotPoint::x);
            series.name = fmt::format("{} slot{} a CTA", slots, slots == 1 ? "" : "s");
            series.markers = true;
            panel.series.push_back(series);
        }
    }
    return {sum, rate};
}

}  // namespace dak
