#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "temp_folder.h"

namespace dak {

/// A root directory with the procfs and sysfs files of an invented machine, removed at the end.
class FixtureTree {
  public:
    const std::filesystem::path& root() const { return folder_.path(); }

    /// Writes one file, `path` being relative to the root.
    void add(const std::string& path, std::string_view text) const {
        const auto file = root() / path;
        std::filesystem::create_directories(file.parent_path());
        std::ofstream(file) << text << '\n';
    }

    /// A machine with CPUs 0..`threads`-1 on one socket and two threads per core: CPU i and
    /// i + threads / 2 are siblings.
    void add_cpus(int threads) const {
        add("sys/devices/system/cpu/online", "0-" + std::to_string(threads - 1));
        for (int cpu = 0; cpu < threads; ++cpu) {
            const int core = cpu % (threads / 2);
            const std::string topology =
                "sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
            add(topology + "physical_package_id", "0");
            add(topology + "thread_siblings_list",
                std::to_string(core) + "," + std::to_string(core + threads / 2));
        }
    }

  private:
    testing_support::TempFolder folder_;
};

}  // namespace dak
