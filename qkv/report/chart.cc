#include "qkv/report/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "qkv/report/html.h"

namespace qkv {
namespace {

// Pixels around the plot.
constexpr double kLeft = 52, kRight = 20, kTop = 10, kBottom = 30;
// Values further apart than this are easier to read on a logarithmic axis.
constexpr double kDecades = 50;
// Smaller values are drawn as 0.
constexpr double kTiny = 1e-100;
// The share of the steps whose values may be cut off.
constexpr double kBeginning = 0.05;

// Maps values onto pixels.
struct Scale {
  double low = 0, high = 1;  // values
  double from = 0, to = 1;   // pixels
  bool log = false;

  double operator()(double value) const {
    const double part = log ? std::log(value / low) / std::log(high / low) : (value - low) / (high - low);
    return from + part * (to - from);
  }
};

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  void include(double v) {
    low = std::min(low, v);
    high = std::max(high, v);
  }
};

// The spacing of about `count` round numbers in `extent`.
double tick_spacing(double extent, int count) {
  const double least = extent / count;
  const double power = std::pow(10, std::floor(std::log10(least)));
  for (const double factor : {1., 2., 5.})
    if (factor * power >= least * 0.999) return factor * power;
  return 10 * power;
}

// The multiples of `spacing` inside [low, high].
std::vector<double> ticks_apart(double spacing, double low, double high) {
  std::vector<double> ticks;
  const double first = std::ceil(low / spacing - 1e-9), last = std::floor(high / spacing + 1e-9);
  for (int i = 0; i <= last - first; ++i) ticks.push_back((first + i) * spacing);
  return ticks;
}

// The values from `first_step` on.
Range range_of(const Chart& chart, double first_step) {
  Range range;
  for (const Series& s : chart.series)
    for (const Point& p : s.points)
      if (p.x >= first_step) range.include(p.y);
  return range;
}

// A vertical axis, its ticks, and whether values are cut off.
struct VerticalAxis {
  Scale scale;
  std::vector<double> ticks;
  bool cut = false;
};

VerticalAxis vertical_axis(const Chart& chart, double last_step) {
  VerticalAxis axis;
  Range range = range_of(chart, 0);
  if (chart.may_be_cut) {
    const Range later = range_of(chart, kBeginning * last_step);
    axis.cut = later.low == range.low && later.high - later.low < 0.6 * (range.high - range.low);
    if (axis.cut) range = later;
  }
  Scale& scale = axis.scale = {range.low, range.high, chart.height - kBottom, kTop};
  if (chart.may_be_log && range.low > kTiny && range.high / range.low > kDecades) {
    scale.log = true;
    scale.low /= 1.2;
    scale.high *= 1.2;
    axis.ticks = log_ticks(scale.low, scale.high);
    return axis;
  }
  if (chart.from_zero) scale.low = std::min(0.0, scale.low);
  const double magnitude = std::max(std::abs(scale.low), std::abs(scale.high));
  if (scale.high - scale.low <= 1e-9 * magnitude || magnitude < kTiny) {  // all values are equal
    const bool zero = magnitude < kTiny;
    if (chart.best > 0 && scale.high <= chart.best && scale.low >= -chart.best) {
      scale.low = scale.low < 0 ? -chart.best : 0;
      scale.high = chart.best;
    } else {
      if (!zero || !chart.from_zero) scale.low -= zero ? 1 : magnitude / 2;
      scale.high += zero ? 1 : magnitude / 2;
    }
  }
  // The axis ends at round numbers.
  const double spacing = tick_spacing(scale.high - scale.low, chart.height / 45);
  scale.low = std::floor(scale.low / spacing + 1e-9) * spacing;
  scale.high = std::ceil(scale.high / spacing - 1e-9) * spacing;
  axis.ticks = ticks_apart(spacing, scale.low, scale.high);
  return axis;
}

Scale horizontal_scale(const Chart& chart) {
  double last = 1;
  for (const Series& s : chart.series)
    if (!s.points.empty()) last = std::max(last, s.points.back().x);
  return {0, last, kLeft, chart.width - kRight};
}

std::string class_of(const Series& s) {
  const char* style = s.style == SeriesStyle::faint   ? " faint"
                      : s.style == SeriesStyle::marks ? " marked"
                                                      : "";
  return fmt::format("s{}{}{}", s.colour % 8, style, s.dashed ? " dashed" : "");
}

std::string grid(const Chart& chart, const Scale& x, const Scale& y, const std::vector<double>& y_ticks) {
  std::string out;
  const auto put = std::back_inserter(out);
  const double spacing = y_ticks.size() > 1 && !y.log ? y_ticks[1] - y_ticks[0] : 0;
  for (const double t : y_ticks) {
    fmt::format_to(put, R"(<line class="grid" x1="{0:.1f}" x2="{1:.1f}" y1="{2:.1f}" y2="{2:.1f}"/>)", x.from,
                   x.to, y(t));
    fmt::format_to(put, R"(<text x="{:.1f}" y="{:.1f}" text-anchor="end">{}</text>)", x.from - 8, y(t) + 4,
                   short_number(t, spacing > 0 ? spacing : t));
  }
  fmt::format_to(put, R"(<text x="{:.1f}" y="{:.1f}" text-anchor="end">step</text>)", x.from - 14,
                 y.from + 18);
  const std::vector<double> x_ticks =
      linear_ticks(x.low, x.high, static_cast<int>(std::min(chart.width / 90.0, x.high)));
  for (const double t : x_ticks) {
    fmt::format_to(put, R"(<line class="axis" x1="{0:.1f}" x2="{0:.1f}" y1="{1:.1f}" y2="{2:.1f}"/>)", x(t),
                   y.from, y.from + 4);
    fmt::format_to(put, R"(<text x="{:.1f}" y="{:.1f}" text-anchor="middle">{}</text>)", x(t), y.from + 18,
                   short_number(t, x_ticks[1] - x_ticks[0]));
  }
  fmt::format_to(put, R"(<line class="axis" x1="{0:.1f}" x2="{1:.1f}" y1="{2:.1f}" y2="{2:.1f}"/>)", x.from,
                 x.to, y.from);
  return out;
}

std::string curve(const Series& s, const Scale& x, const Scale& y) {
  std::string out;
  const auto put = std::back_inserter(out);
  const std::vector<Point> points = thin(s.points, x.low, x.high, static_cast<int>(x.to - x.from));
  fmt::format_to(put, R"(<polyline class="{}" data-label="{}" points=")", class_of(s), escape_html(s.label));
  for (const Point& p : points) fmt::format_to(put, "{:.2f},{:.2f} ", x(p.x), y(p.y));
  if (!points.empty()) out.pop_back();
  out += "\"/>";
  constexpr size_t kMostMarks = 60;  // more would hide the line
  const bool marks = s.style == SeriesStyle::marks && points.size() <= kMostMarks;
  if (marks || points.size() == 1)
    for (const Point& p : points)
      fmt::format_to(
          put, R"(<circle class="s{}" cx="{:.2f}" cy="{:.2f}" r="3"><title>step {}: {:.6g}</title></circle>)",
          s.colour % 8, x(p.x), y(p.y), p.x, p.y);
  return out;
}

std::string legend(const Chart& chart) {
  if (chart.series.size() < 2 && !chart.always_legend) return "";
  std::string out = "<ul class=\"legend\">";
  for (const Series& s : chart.series)
    if (!s.legend.empty())
      out += fmt::format(R"(<li><span class="swatch {}"></span>{}</li>)", class_of(s), escape_html(s.legend));
  return out + "</ul>";
}

// The <svg> of a chart. `shown`: its class, if not all screens show it.
std::string drawing(const Chart& chart, const Scale& x, const VerticalAxis& axis, const char* shown) {
  const auto& [y, ticks, cut] = axis;
  std::string out = fmt::format(
      R"(<svg{} viewBox="0 0 {} {}" role="img" aria-label="{} over steps" data-x="{:.12g} {:.12g} {} {}" data-y="{:.12g} {:.12g} {} {}" data-log="{}">)",
      *shown == '\0' ? "" : fmt::format(" class=\"{}\"", shown), chart.width, chart.height,
      escape_html(chart.title), x.low, x.high, x.from, x.to, y.low, y.high, y.from, y.to, y.log ? 1 : 0);
  out += grid(chart, x, y, ticks);
  if (cut)
    out += fmt::format(
        R"svg(<clipPath id="plot-{1}"><rect x="0" y="{0}" width="{1}" height="{2}"/></clipPath><g clip-path="url(#plot-{1})">)svg",
        y.to, chart.width, chart.height - y.to);
  for (const Series& s : chart.series) out += curve(s, x, y);
  return out + (cut ? "</g>" : "") + "</svg>";
}

}  // namespace

std::string draw(const Chart& chart) {
  const Scale x = horizontal_scale(chart);
  const VerticalAxis axis = vertical_axis(chart, x.high);
  std::string out = fmt::format(
      R"(<figure><figcaption><span class="title">{}</span> <span class="unit">{}{}{}</span>{}</figcaption>)",
      escape_html(chart.title), escape_html(chart.unit), axis.scale.log ? ", logarithmic" : "",
      axis.cut ? ", without the beginning" : "", legend(chart));
  out += drawing(chart, x, axis, chart.narrow_width > 0 ? "wide" : "");
  if (chart.narrow_width > 0) {
    Chart narrow = chart;
    narrow.width = chart.narrow_width;
    narrow.height = 260;
    const Scale narrow_x = horizontal_scale(narrow);
    out += drawing(narrow, narrow_x, vertical_axis(narrow, narrow_x.high), "narrow");
  }
  return out + "</figure>\n";
}

std::vector<Point> thin(const std::vector<Point>& points, double low, double high, int columns) {
  if (points.size() <= 2 * static_cast<size_t>(columns)) return points;
  const auto column_of = [&](const Point& p) {
    return static_cast<int>(std::clamp((p.x - low) / (high - low) * columns, 0.0, columns - 1.0));
  };
  const auto lower = [](const Point& a, const Point& b) { return a.y < b.y; };
  std::vector<Point> kept = {points.front()};
  // Between the first and the last point, keeps the lowest and highest of each column in their order.
  for (auto begin = points.begin() + 1; begin < points.end() - 1;) {
    const auto end = std::find_if(begin, points.end() - 1,
                                  [&](const Point& p) { return column_of(p) != column_of(*begin); });
    auto [lowest, highest] = std::minmax_element(begin, end, lower);
    if (highest < lowest) std::swap(lowest, highest);
    kept.push_back(*lowest);
    if (highest != lowest) kept.push_back(*highest);
    begin = end;
  }
  kept.push_back(points.back());
  return kept;
}

std::vector<Point> averaged(const std::vector<Point>& points, size_t count) {
  if (points.size() <= count) return points;
  std::vector<Point> means;
  for (size_t begin = 0, part = 1; begin < points.size(); ++part) {
    const size_t end = part * points.size() / count;
    double sum = 0;
    for (size_t i = begin; i < end; ++i) sum += points[i].y;
    means.push_back({points[end - 1].x, sum / static_cast<double>(end - begin)});
    begin = end;
  }
  return means;
}

std::vector<double> linear_ticks(double low, double high, int count) {
  return ticks_apart(tick_spacing(high - low, count), low, high);
}

std::vector<double> log_ticks(double low, double high) {
  std::vector<double> ticks;
  const bool wide = high / low > 1e3;
  const double stride = std::ceil(std::log10(high / low) / 8);  // powers of ten
  for (double power = std::floor(std::log10(low)); power <= std::ceil(std::log10(high)); power += stride)
    for (const double factor : {1., 2., 5.}) {
      const double tick = factor * std::pow(10, power);
      if (tick >= low && tick <= high && (!wide || factor == 1)) ticks.push_back(tick);
    }
  return ticks;
}

std::string short_number(double value, double spacing) {
  const double magnitude = std::abs(value);
  if (magnitude < spacing * 1e-6) return "0";
  const auto decimals = [](double unit) {
    return std::clamp(static_cast<int>(-std::floor(std::log10(unit) + 1e-9)), 0, 9);
  };
  if (magnitude < 0.01 && spacing < 1e-3) {
    const double power = std::floor(std::log10(magnitude) + 1e-9), unit = std::pow(10, power);
    return fmt::format("{:.{}f}e{:.0f}", value / unit, decimals(spacing / unit), power);
  }
  for (const auto& [unit, name] : {std::pair(1e9, 'G'), {1e6, 'M'}, {1e3, 'k'}})
    if (magnitude >= unit) return fmt::format("{:.{}f}{}", value / unit, decimals(spacing / unit), name);
  return fmt::format("{:.{}f}", value, decimals(spacing));
}

}  // namespace qkv
