#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dak {

/// Watches streamed text for stop strings and holds back what might be the beginning of one.
class StopStrings {
  public:
    explicit StopStrings(std::vector<std::string> strings) : strings_(std::move(strings)) {}

    /// Adds text; returns what can be shown now. After a stop string was found, what stood before
    /// it has been returned and the rest is dropped.
    std::string push(std::string_view text);

    /// What was held back, at the end of a generation that found no stop string.
    std::string finish();

    bool found() const { return found_; }

  private:
    std::vector<std::string> strings_;
    std::string pending_;
    bool found_ = false;
};

}  // namespace dak
