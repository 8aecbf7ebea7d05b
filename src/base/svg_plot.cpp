#include "base/svg_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>

#include "base/error.h"

namespace dak {

namespace {

// Sizes in pixels.
constexpr double kWidth = 760, kPanelHeight = 330;
constexpr double kLeft = 74, kRight = 180, kTop = 42, kBottom = 54;
constexpr double kPlotWidth = kWidth - kLeft - kRight;
constexpr double kPlotHeight = kPanelHeight - kTop - kBottom;
constexpr int kTicks = 6;

/// Colours that people with any colour vision tell apart (Okabe and Ito).
constexpr std::array<const char*, 7> kColors = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                "#e69f00", "#56b4e9", "#000000"};

std::string escaped(const std::string& text) {
    std::string result;
    for (const char c : text) {
        if (c == '<') {
            result += "&lt;";
        } else if (c == '>') {
            result += "&gt;";
        } else if (c == '&') {
            result += "&amp;";
        } else {
            result += c;
        }
    }
    return result;
}

/// An axis: its range, and where a value lies on it (0..1).
class Axis {
  public:
    Axis(double low, double high, bool logarithmic) : low_(low), high_(high), log_(logarithmic) {
        if (high_ <= low_) high_ = low_ + 1;
    }

    double place(double value) const {
        return log_ ? std::log(value / low_) / std::log(high_ / low_)
                    : (value - low_) / (high_ - low_);
    }

    std::vector<double> ticks() const { return log_ ? log_ticks() : linear_ticks(); }

  private:
    std::vector<double> linear_ticks() const {
        const double rough = (high_ - low_) / kTicks;
        const double power = std::pow(10.0, std::floor(std::log10(rough)));
        const double step = power * (rough / power > 5   ? 10
                                     : rough / power > 2 ? 5
                                     : rough / power > 1 ? 2
                                                         : 1);
        std::vector<double> ticks;
        for (double k = std::ceil(low_ / step); k * step <= high_ * (1 + 1e-9); ++k) {
            ticks.push_back(k * step);
        }
        return ticks;
    }

    std::vector<double> log_ticks() const {
        std::vector<double> ticks;
        const bool wide = high_ / low_ > 100;
        for (double power = std::pow(10.0, std::floor(std::log10(low_))); power <= high_;
             power *= 10) {
            for (const double digit : {1.0, 2.0, 5.0}) {
                const double tick = digit * power;
                const bool inside = tick >= low_ * (1 - 1e-9) && tick <= high_ * (1 + 1e-9);
                if (inside && (digit == 1 || !wide)) ticks.push_back(tick);
            }
        }
        return ticks;
    }

    double low_, high_;
    bool log_;
};

Axis axis_over(const PlotPanel& panel, double PlotPoint::*coordinate, bool logarithmic,
               bool from_zero) {
    double low = INFINITY, high = -INFINITY;
    for (const PlotSeries& series : panel.series) {
        for (const PlotPoint& point : series.points) {
            const double value = point.*coordinate;
            if (!std::isfinite(value)) continue;
            require(!logarithmic || value > 0, "plot '{}': {} on a logarithmic axis", panel.title,
                    value);
            low = std::min(low, value);
            high = std::max(high, value);
        }
    }
    require(low <= high, "plot '{}' has no points", panel.title);
    if (from_zero && !logarithmic) {
        low = std::min(0.0, low);
        high += 0.05 * (high - low);  // room above the highest point
    }
    return {low, high, logarithmic};
}

class PanelWriter {
  public:
    PanelWriter(const PlotPanel& panel, double top)
        : panel_(panel),
          top_(top),
          x_(axis_over(panel, &PlotPoint::x, panel.log_x, false)),
          y_(axis_over(panel, &PlotPoint::y, panel.log_y, true)) {}

    std::string write() {
        add_frame();
        for (size_t i = 0; i < panel_.series.size(); ++i) add_series(i);
        if (panel_.marked_x) add_mark();
        return std::move(svg_);
    }

  private:
    double x(double value) const { return kLeft + x_.place(value) * kPlotWidth; }
    double y(double value) const { return top_ + kTop + (1 - y_.place(value)) * kPlotHeight; }

    void text(double px, double py, const char* anchor, const std::string& words,
              const std::string& extra = {}) {
        svg_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", px,
                            py, anchor, extra, escaped(words));
    }

    void line(double x1, double y1, double x2, double y2, const char* style) {
        svg_ += fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" {}/>\n",
                            x1, y1, x2, y2, style);
    }

    void add_frame() {
        const double bottom = top_ + kTop + kPlotHeight;
        text(kLeft, top_ + kTop - 16, "start", panel_.title, " font-weight=\"bold\"");
        for (const double tick : y_.ticks()) {
            line(kLeft, y(tick), kLeft + kPlotWidth, y(tick), "stroke=\"#ddd\"");
            text(kLeft - 8, y(tick) + 4, "end", fmt::format("{:.6g}", tick));
        }
        for (const double tick : x_.ticks()) {
            line(x(tick), bottom, x(tick), bottom + 5, "stroke=\"#444\"");
            text(x(tick), bottom + 20, "middle", fmt::format("{:.6g}", tick));
        }
        line(kLeft, bottom, kLeft + kPlotWidth, bottom, "stroke=\"#444\"");
        line(kLeft, top_ + kTop, kLeft, bottom, "stroke=\"#444\"");
        text(kLeft + kPlotWidth / 2, bottom + 40, "middle", panel_.x_label);
        const double middle = top_ + kTop + kPlotHeight / 2;
        text(18, middle, "middle", panel_.y_label,
             fmt::format(" transform=\"rotate(-90 18 {:.1f})\"", middle));
    }

    void add_series(size_t index) {
        const PlotSeries& series = panel_.series[index];
        const char* const color = kColors[index % kColors.size()];
        std::string path;
        bool pen_down = false;
        for (const PlotPoint& point : series.points) {
            if (!std::isfinite(point.y)) {
                pen_down = false;
                continue;
            }
            path += fmt::format("{}{:.1f} {:.1f} ", pen_down ? 'L' : 'M', x(point.x), y(point.y));
            pen_down = true;
            if (series.markers) {
                svg_ += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"/>\n",
                                    x(point.x), y(point.y), color);
            }
        }
        svg_ += fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>\n",
                            path, color);
        const double at = top_ + kTop + 14 + 20 * static_cast<double>(index);
        const double left = kLeft + kPlotWidth + 14;
        svg_ += fmt::format(
            "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" "
            "stroke-width=\"3\"/>\n",
            left, at - 4, left + 20, at - 4, color);
        text(left + 26, at, "start", series.name);
    }

    void add_mark() {
        const double at = x(*panel_.marked_x);
        line(at, top_ + kTop, at, top_ + kTop + kPlotHeight,
             "stroke=\"#888\" stroke-dasharray=\"5 4\"");
        text(at + 5, top_ + kTop + 12, "start", panel_.mark, " fill=\"#666\"");
    }

    const PlotPanel& panel_;
    double top_;
    Axis x_, y_;
    std::string svg_;
};

}  // namespace

std::string svg_plot(const std::vector<PlotPanel>& panels) {
    const double height = kPanelHeight * static_cast<double>(panels.size());
    std::string svg = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
        "viewBox=\"0 0 {0} {1}\" font-family=\"sans-serif\" font-size=\"12\">\n"
        "<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n",
        kWidth, height);
    for (size_t i = 0; i < panels.size(); ++i) {
        svg += PanelWriter(panels[i], kPanelHeight * static_cast<double>(i)).write();
    }
    return svg + "</svg>\n";
}

void write_svg_plot(const std::filesystem::path& path, const std::vector<PlotPanel>& panels) {
    std::ofstream file(path);
    file << svg_plot(panels);
    file.close();
    require(file.good(), "{}: cannot be written", path.string());
}

}  // namespace dak
