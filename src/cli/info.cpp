#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "cli/gpu_engine.h"
#include "cli/system_report.h"

namespace dak {

namespace {

void print_info(bool json) {
    const SystemInfo info = gather_system();
    const bool gpu_execution = gpu_obstacle(info).empty();
    if (json) {
        // File names and the like need not be UTF-8; JSON must be.
        const Json report = system_report_json(info, gpu_execution);
        fmt::print("{}\n", report.dump(2, ' ', false, Json::error_handler_t::replace));
    } else {
        fmt::print("{}", format_system_report(info, gpu_execution));
    }
}

}  // namespace

void add_info(CLI::App& app) {
    CLI::App* command = app.add_subcommand(
        "info", "Show the CPU, memory, GPUs and limits of this machine, with warnings");
    const auto json = std::make_shared<bool>(false);
    command->add_flag("--json", *json,
                      "Print JSON instead: sizes in bytes, null for no limit or not known");
    command->footer(
        "Every number is what this process gets: CPU affinity, cgroup limits (containers, batch\n"
        "systems) and memlock are taken into account. The last section lists what costs speed or\n"
        "capacity and how to mend it.\n"
        "\n"
        "Examples:\n"
        "  dak info\n"
        "  dak info --json | jq .warnings\n"
        "  numactl --cpunodebind=1 --membind=1 dak info");
    command->callback([json] { print_info(*json); });
}

}  // namespace dak
