// Line charts over training steps, drawn as SVG.
//
// Colours and fonts come from the page's style sheet: series i has the class "s<i % 8>". The page's script
// reads values back from the drawing with the scales that an <svg> carries in its data attributes.
#pragma once

#include <string>
#include <vector>

namespace qkv {

// One value of a curve.
struct Point {
  double x, y;  // step, value
};

// Style of a series: a line; a faint line behind the others; a line with a mark at every point.
enum class SeriesStyle { line, faint, marks };

// A curve and its labels.
struct Series {
  std::string label;               // label beside its values
  std::string legend = {};         // label in the legend; empty: not shown
  std::vector<Point> points = {};  // x ascending, all finite
  SeriesStyle style = SeriesStyle::line;
  int colour = 0;
  bool dashed = false;
};

// Curves on common axes.
struct Chart {
  std::string title, unit;
  std::vector<Series> series = {};
  bool from_zero = false;   // the axis begins at 0
  bool may_be_cut = false;  // values of a steep beginning may be cut off if the rest would look flat; at most
                            // one chart of a page
  bool may_be_log = false;  // uses a logarithmic axis if values span decades
  double best = 0;          // best value of a score: the axis ends there if all values are equal; 0: no score
  bool always_legend = false;     // show a legend even for a single series
  int width = 460, height = 250;  // pixels
  int narrow_width = 0;           // width of a second drawing for narrow screens; 0: one drawing for all
};

// Draws a <figure>: title, unit, legend if there are several series, drawing. If there are two drawings,
// the page shows the one that fits.
std::string draw(const Chart& chart);

// Keeps the first and the last point, and the lowest and the highest of each of `columns` equal parts of
// [low, high]. A drawing that is `columns` pixels wide cannot show more.
std::vector<Point> thin(const std::vector<Point>& points, double low, double high, int columns);

// The means of `count` equal parts, each at its last step: the trend of a noisy curve.
std::vector<Point> averaged(const std::vector<Point>& points, size_t count);

// About `count` round numbers (1, 2 or 5 times a power of ten apart) inside [low, high].
std::vector<double> linear_ticks(double low, double high, int count);

// 1, 2 and 5 times powers of ten (only the powers if the range is wide) inside [low, high]. REQUIRES: low >
// 0.
std::vector<double> log_ticks(double low, double high);

// A short form of a number, exact to about `spacing`: 0.25, 1.5e-3, 12.5k, 3M.
std::string short_number(double value, double spacing);

}  // namespace qkv
