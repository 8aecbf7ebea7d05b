#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/svg_plot.h"

namespace dak {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

PlotPanel panel(std::vector<PlotPoint> points) {
    PlotPanel result;
    result.title = "a < b & c";
    result.x_label = "x";
    result.y_label = "y";
    result.series = {{"first", std::move(points), true}};
    return result;
}

size_t count(const std::string& text, const std::string& part) {
    size_t found = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
        ++found;
    return found;
}

TEST(SvgPlot, DrawsEveryPointAndEscapesText) {
    const std::string svg = svg_plot({panel({{0, 1}, {1, 3}, {2, 2}}), panel({{5, 5}})});
    EXPECT_THAT(svg, AllOf(StartsWith("<svg"), HasSubstr("</svg>"), HasSubstr("a &lt; b &amp; c"),
                           Not(HasSubstr("nan")), Not(HasSubstr("inf"))));
    EXPECT_EQ(count(svg, "<circle"), 4u);
    EXPECT_EQ(count(svg, "<path"), 2u);
}

TEST(SvgPlot, HighestPointIsInsideAndTheAxisStartsAtZero) {
    PlotPanel it = panel({{1, 100}, {2, 400}});
    const std::string svg = svg_plot({it});
    EXPECT_THAT(svg, AllOf(HasSubstr(">0</text>"), HasSubstr(">400</text>")));
    it.log_y = true;
    EXPECT_THAT(svg_plot({it}), AllOf(HasSubstr(">100</text>"), Not(HasSubstr(">0</text>"))));
}

TEST(SvgPlot, NanBreaksTheLine) {
    const std::string svg = svg_plot({panel({{0, 1}, {1, NAN}, {2, 2}})});
    const size_t path = svg.find("<path d=\"");
    const std::string line = svg.substr(path, svg.find('>', path) - path);
    EXPECT_EQ(count(line, "M"), 2u);
    EXPECT_EQ(count(line, "L"), 0u);
}

TEST(SvgPlot, RefusesEmptyPanelsAndLogarithmsOfZero) {
    EXPECT_THROW(svg_plot({panel({})}), Error);
    PlotPanel it = panel({{0, 1}});
    it.log_x = true;
    EXPECT_THROW(svg_plot({it}), Error);
}

TEST(SvgPlot, WritesAFile) {
    const auto path = std::filesystem::path(testing::TempDir()) / "dak-plot.svg";
    write_svg_plot(path, {panel({{0, 1}, {1, 2}})});
    EXPECT_EQ(read_text_file(path), svg_plot({panel({{0, 1}, {1, 2}})}));
    std::filesystem::remove(path);
    EXPECT_THROW(write_svg_plot("/nonexistent/plot.svg", {panel({{0, 1}})}), Error);
}

}  // namespace
}  // namespace dak
