#include "base/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/units.h"

namespace dak {

namespace {
constexpr int kBarWidth = 30;
constexpr std::chrono::milliseconds kRedrawInterval{50};
}  // namespace

ProgressBar::ProgressBar(std::string title, int64_t total_bytes, bool enabled)
    : title_(std::move(title)),
      total_bytes_(total_bytes),
      enabled_(enabled),
      terminal_(::isatty(STDERR_FILENO) == 1) {}

ProgressBar::~ProgressBar() {
    if (drawn_ && terminal_) std::fputc('\n', stderr);
}

void ProgressBar::advance(int64_t bytes) {
    done_bytes_ += bytes;
    if (!enabled_ || !terminal_) return;
    const auto now = Clock::now();
    if (now - last_draw_ < kRedrawInterval) return;
    last_draw_ = now;
    draw();
}

void ProgressBar::finish() {
    if (!enabled_) return;
    draw();
    std::fputc('\n', stderr);
    drawn_ = false;
}

void ProgressBar::draw() {
    const double fraction =
        total_bytes_ > 0 ? std::min(1.0, static_cast<double>(done_bytes_) / total_bytes_) : 1.0;
    const std::chrono::duration<double> elapsed = Clock::now() - start_;
    const int filled = static_cast<int>(fraction * kBarWidth);
    const std::string line =
        fmt::format("{} [{}{}] {:3.0f}%  {}  {:.2f} GB/s", title_, std::string(filled, '#'),
                    std::string(kBarWidth - filled, '.'), fraction * 100, format_bytes(done_bytes_),
                    done_bytes_ / 1e9 / std::max(elapsed.count(), 1e-9));
    std::fputs(terminal_ ? ("\r" + line).c_str() : line.c_str(), stderr);
    std::fflush(stderr);
    drawn_ = true;
}

}  // namespace dak
