#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace dak {

/// A byte-counting progress bar on stderr: redrawn in place on a terminal, otherwise one line at
/// the end. Not thread-safe.
class ProgressBar {
  public:
    ProgressBar(std::string title, int64_t total_bytes, bool enabled = true);
    ~ProgressBar();
    ProgressBar(const ProgressBar&) = delete;
    ProgressBar& operator=(const ProgressBar&) = delete;

    void advance(int64_t bytes);

    /// Draws the final state with the mean rate. Without it the bar is left unfinished, as it
    /// should be when an error interrupts the work.
    void finish();

  private:
    using Clock = std::chrono::steady_clock;
    void draw();

    std::string title_;
    int64_t total_bytes_;
    int64_t done_bytes_ = 0;
    bool enabled_;
    bool terminal_;
    bool drawn_ = false;
    Clock::time_point start_ = Clock::now();
    Clock::time_point last_draw_{};
};

}  // namespace dak
