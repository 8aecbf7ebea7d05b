#pragma once

#include <string>
#include <vector>

#include "base/svg_plot.h"
#include "hardware/profile.h"

namespace dak {

/// A profile for people: rates beside the datasheet's, the window and how the sum of rates moves
/// around it, costs. `warnings` close it.
std::string format_profile(const HardwareProfile& profile,
                           const std::vector<std::string>& warnings);

/// The window sweep as a plot: the sum of rates against the bytes in flight, and both rates at the
/// product's number of slots. Nothing when the profile has no sweep.
std::vector<PlotPanel> window_panels(const HardwareProfile& profile);

}  // namespace dak
