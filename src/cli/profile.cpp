#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "cli/commands.h"
#include "cli/hardware_choice.h"
#include "cli/profile_report.h"
#include "hardware/find_profile.h"
#ifdef DAK_WITH_CUDA
#include "profiler/profiler.h"
#endif

namespace dak {

namespace {

struct ProfileCommand {
    std::string remote = "host";
    std::optional<std::string> output, plot;
    bool force = false;
    bool json = false;
};

#ifdef DAK_WITH_CUDA
/// A bar on the terminal; a line for each measurement elsewhere.
void show_progress(std::string_view next, double done) {
    constexpr int kWidth = 30;
    if (::isatty(STDERR_FILENO) == 0) {
        if (!next.empty()) fmt::print(stderr, "Measuring: {}\n", next);
        return;
    }
    const auto filled = static_cast<size_t>(std::lround(done * kWidth));
    fmt::print(stderr, "\rMeasuring [{}{}] {:3.0f}%  {:<24}{}", std::string(filled, '#'),
               std::string(kWidth - filled, '.'), 100 * done, next, done >= 1 ? "\n" : "");
}
#endif

HardwareProfile measure(const SystemInfo& system, const std::string& remote) {
#ifdef DAK_WITH_CUDA
    return measure_hardware(system, remote, show_progress);
#else
    static_cast<void>(system);
    fail(
        "this dak was built without its CUDA parts and cannot measure remote tier {}; build it "
        "where nvcc is",
        remote);
#endif
}

void run_profile(const ProfileCommand& command) {
    check_remote(command.remote);
    SystemInfo system = gather_system();
    require(!system.gpus.empty(), "there is no GPU to measure here: the NVIDIA driver shows none");
    check_remote_here(command.remote, system);
    const std::filesystem::path path = profile_path(system, system.gpus.front(), command.remote);
    const bool known = path_exists(path) && !command.force;
    const HardwareProfile profile =
        known ? read_hardware_profile(path) : measure(system, command.remote);
    if (command.output) write_hardware_profile(*command.output, profile);
    if (!known) {
        write_hardware_profile(path, profile);
        system = gather_system();  // an idle GPU lowers its link; now it has worked
    }
    const std::filesystem::path plot = command.plot
                                           ? std::filesystem::path(*command.plot)
                                           : std::filesystem::path(path).replace_extension(".svg");
    if (const auto panels = window_panels(profile); !panels.empty()) write_svg_plot(plot, panels);
    if (command.json) {
        fmt::print("{}\n", to_json(profile).dump(1));
        return;
    }
    fmt::print("{}\n{} {}\nwindow sweep: {}\n", format_profile(profile, warnings(system)),
               known ? "kept in" : "written to", path.string(), plot.string());
    if (known) fmt::print("'dak profile --force' measures again.\n");
}

}  // namespace

void add_profile(CLI::App& app) {
    CLI::App* command = app.add_subcommand(
        "profile", "Measure this machine's memories, link and kernels, for planning");
    const auto options = std::make_shared<ProfileCommand>();
    command->add_option("--remote", options->remote, "The remote tier to measure: host or peer:N")
        ->type_name("TIER")
        ->capture_default_str();
    command->add_flag("--force", options->force, "Measure again, whatever is known");
    command
        ->add_option("-o,--output", options->output,
                     "Write the profile to this file too, for --hardware elsewhere")
        ->type_name("FILE");
    command
        ->add_option("--plot", options->plot,
                     "Where to draw the window sweep (SVG) [default: beside the profile]")
        ->type_name("FILE");
    command->add_flag("--json", options->json, "Print the profile as JSON instead");
    command->footer(
        "Takes about ten seconds, 5 GiB of GPU memory and 1.5 GiB of the remote tier. The profile\n"
        "is kept in the user's cache folder under the GPU, its driver and its link, and used by\n"
        "'dak plan' from then on.\n"
        "\n"
        "Examples:\n"
        "  dak profile\n"
        "  dak profile --remote peer:1 --force\n"
        "  dak profile -o machine.json      # elsewhere: dak plan MODEL --hardware machine.json");
    command->callback([options] { run_profile(*options); });
}

}  // namespace dak
