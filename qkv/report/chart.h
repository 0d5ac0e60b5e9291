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

// How a series is drawn: a line; a faint one, behind the others; a line with a mark at every point.
enum class SeriesStyle { line, faint, marks };

// One curve and how it is labelled.
struct Series {
  std::string label;               // with its values
  std::string legend = {};         // beside the title; empty: not there
  std::vector<Point> points = {};  // x ascending, all finite
  SeriesStyle style = SeriesStyle::line;
  int colour = 0;
  bool dashed = false;
};

// Curves on common axes.
struct Chart {
  std::string title, unit;
  std::vector<Series> series = {};
  bool from_zero = false;  // the axis begins at 0
  bool may_be_cut =
      false;  // a steep beginning may leave it where the rest would be flat; one chart of a page
  bool may_be_log = false;        // a logarithmic axis where the values span decades
  double best = 0;                // of a score: where all values are one, the axis ends here; 0: no score
  bool always_legend = false;     // also of a single series
  int width = 460, height = 250;  // pixels
  int narrow_width = 0;           // of a second drawing, for narrow screens; 0: the one is for all
};

// A <figure>: title, unit, legend where there is more than one series, drawing. Of two drawings the page
// shows the one that fits.
std::string draw(const Chart& chart);

// At most two points (the lowest and the highest) of each of `columns` equal parts of [low, high], besides
// the first and the last point: what a drawing so many pixels wide can show.
std::vector<Point> thin(const std::vector<Point>& points, double low, double high, int columns);

// The means of `count` equal parts, each at its last step: a noisy curve's course.
std::vector<Point> averaged(const std::vector<Point>& points, size_t count);

// Round numbers (1, 2 or 5 times a power of ten apart), about `count` of them, the outermost inside [low,
// high].
std::vector<double> linear_ticks(double low, double high, int count);

// 1, 2 and 5 times powers of ten (only the powers where the range is wide) inside [low, high]. REQUIRES: low
// > 0.
std::vector<double> log_ticks(double low, double high);

// A number in few characters, exact to about `spacing`: 0.25, 1.5e-3, 12.5k, 3M.
std::string short_number(double value, double spacing);

}  // namespace qkv
