#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace dak {

struct PlotPoint {
    double x = 0;
    double y = 0;
};

/// One line of a plot. NaN in y breaks it.
struct PlotSeries {
    std::string name;
    std::vector<PlotPoint> points;
    bool markers = false;  ///< a dot at each point
};

/// One diagram: lines over a common x axis. The y axis starts at zero unless it is logarithmic.
struct PlotPanel {
    std::string title;
    std::string x_label;
    std::string y_label;
    std::vector<PlotSeries> series;
    bool log_x = false;
    bool log_y = false;
    std::optional<double> marked_x;  ///< a dashed vertical line
    std::string mark;                ///< what it means
};

/// A self-contained SVG image of the panels, one below the other. Throws Error when a panel has no
/// finite point, or a logarithmic axis one that is not above zero.
std::string svg_plot(const std::vector<PlotPanel>& panels);

/// Writes it to a file. Throws Error when that fails.
void write_svg_plot(const std::filesystem::path& path, const std::vector<PlotPanel>& panels);

}  // namespace dak
