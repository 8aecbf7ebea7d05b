#pragma once

#include <cstdint>

namespace CLI {
class App;
}

namespace dak {

/// Bounds of options that only a slip of the keyboard exceeds.
inline constexpr int64_t kMaxTokens = 1'000'000'000;
inline constexpr int64_t kMaxBatch = 65'536;

// Each adds one subcommand to the program: its options, its help and what it does. The work runs
// while the command line is parsed; it throws Error when it fails.

void add_bench(CLI::App& app);
void add_info(CLI::App& app);
void add_plan(CLI::App& app);
void add_profile(CLI::App& app);
void add_run(CLI::App& app);

}  // namespace dak
