#include "qkv/report/report_charts.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>

#include "qkv/report/chart.h"

namespace qkv {
namespace {

struct Field {
  std::string name, label;
  SeriesStyle style = SeriesStyle::line;
  int colour = 0;        // colour in a report about one run
  bool compared = true;  // also shown when runs are compared
};

// A chart that is drawn if a run has recorded one of its fields.
struct Plan {
  std::string title, unit;
  std::vector<Field> fields;
  bool from_zero = true, may_be_log = false;
  bool may_be_cut = false;
  bool noisy = true;          // its trend is drawn over the values
  double scale = 1;           // factor from the field's unit to the chart's
  bool each = false;          // for several runs: draw a separate chart for each field
  double best = 0;            // best value of a score; 0: no score
  bool only_changes = false;  // not drawn if it hardly changes, because a key figure has it
  int height = 250;
};

const std::vector<Plan>& plans() {
  static const std::vector<Plan> all = {
      {.title = "Loss",
       .unit = "nats per token",
       .fields = {{"loss", "training", SeriesStyle::faint, 0, false},
                  {"smoothed_loss", "training, smoothed", SeriesStyle::line, 0},
                  {"valid_loss", "validation", SeriesStyle::marks, 1},
                  {"ema_valid_loss", "validation, averaged weights", SeriesStyle::marks, 2, false}},
       .from_zero = false,
       .may_be_cut = true,
       .noisy = false},
      {.title = "Validation scores",
       .unit = "1 is best",
       .fields = {{"valid_accuracy", "accuracy", SeriesStyle::marks, 0},
                  {"valid_exact_match", "exact match", SeriesStyle::marks, 0},
                  {"valid_f1", "F1", SeriesStyle::marks, 1},
                  {"valid_macro_f1", "macro F1", SeriesStyle::marks, 2},
                  {"valid_matthews", "Matthews", SeriesStyle::marks, 3}},
       .from_zero = false,
       .noisy = false,
       .each = true,
       .best = 1},
      {.title = "Validation BLEU",
       .unit = "0 to 100, greedy",
       .fields = {{"valid_bleu", "BLEU", SeriesStyle::marks, 1}},
       .noisy = false,
       .best = 100},
      {.title = "Learning rate", .unit = "", .fields = {{"lr", "learning rate"}}, .noisy = false},
      {.title = "Throughput", .unit = "tokens per second", .fields = {{"tokens_per_second", "throughput"}}},
      {.title = "Gradient norm",
       .unit = "before clipping",
       .fields = {{"grad_norm", "gradient norm"}},
       .may_be_log = true},
      {.title = "Memory",
       .unit = "GB",
       .fields = {{"memory_mb", "memory"}},
       .noisy = false,
       .scale = 1e-3,
       .only_changes = true,
       .height = 150},
  };
  return all;
}

// The unit of the loss; plain nats if the runs' objectives differ.
std::string loss_unit(const Runs& runs) {
  const std::string objective = runs.front().setting("train.objective", "");  // in quotes
  for (const RunLog& run : runs)
    if (run.setting("train.objective", "") != objective) return "nats";
  const auto is = [&](const char* name) { return objective.find(name) != std::string::npos; };
  if (is("classify") || is("multi_label") || is("multiple_choice") || is("answer")) return "nats per example";
  if (is("regression")) return "squared error";
  if (is("tag")) return "nats per word";
  return is("masked") || is("permutation") ? "nats per hidden token" : "nats per token";
}

// A note that the training loss, unlike the validation loss, includes label smoothing.
std::string smoothing_note(const Runs& runs) {
  for (const RunLog& run : runs)
    if (const double part = label_smoothing(run); part > 0)
      return runs.size() > 1 ? "; the training loss includes label smoothing"
                             : fmt::format("; the training loss includes label smoothing of {:g}", part);
  return "";
}

// True if one of the plan's curves varies by more than a tenth.
bool changes(const Plan& plan, const Runs& runs) {
  for (const RunLog& run : runs)
    for (const Field& field : plan.fields)
      if (const auto* points = run.find(field.name)) {
        const auto [least, most] = std::ranges::minmax(*points, {}, &Point::y);
        if (most.y - least.y > 0.1 * std::abs(most.y)) return true;
      }
  return false;
}

// Charts of the fields without a plan or a key figure.
std::vector<Plan> further_plans(const Runs& runs) {
  std::set<std::string> known = {"seconds", "tokens", "valid_tokens", "valid_nats_per_character",
                                 "valid_bits_per_byte"};
  for (const Plan& plan : plans())
    for (const Field& field : plan.fields) known.insert(field.name);
  std::vector<Plan> further;
  for (const RunLog& run : runs)
    for (const auto& [name, points] : run.series) {
      if (name.starts_with("test_") || name.starts_with("baseline_")) continue;  // recorded once, at the end
      if (!known.insert(name).second) continue;
      std::string title = name;
      std::replace(title.begin(), title.end(), '_', ' ');
      further.push_back(
          {.title = title, .unit = "", .fields = {{name, title}}, .from_zero = false, .may_be_log = true});
    }
  return further;
}

// Adds the curves of a field of a single run.
void add_curves(Chart& chart, const Field& field, const std::vector<Point>& points, bool noisy) {
  Series s{field.label, field.label, points, field.style, field.colour};
  if (noisy && points.size() > 2 * kCourse) {
    s.style = SeriesStyle::faint;
    chart.series.push_back(s);
    s = {"mean", "mean", averaged(points, kCourse), SeriesStyle::line, field.colour};
  }
  chart.series.push_back(std::move(s));
}

Chart chart_of(const Plan& plan, const Runs& runs, const std::vector<std::string>& names) {
  Chart chart{.title = plan.title,
              .unit = plan.unit,
              .from_zero = plan.from_zero,
              .may_be_cut = plan.may_be_cut,
              .may_be_log = plan.may_be_log,
              .best = plan.best,
              .always_legend = plan.best > 0 && runs.size() == 1,
              .height = plan.height};
  const bool two_kinds = runs.size() > 1 && std::ranges::any_of(plan.fields, [](const Field& f) {
                           return f.style == SeriesStyle::line && f.compared;
                         });
  bool any_dashed = false;
  std::string last_name;
  for (size_t i = 0; i < runs.size(); ++i)
    for (const Field& field : plan.fields) {
      const auto* found = runs[i].find(field.name);
      if (found == nullptr) continue;
      std::vector<Point> points = *found;
      for (Point& p : points) p.y *= plan.scale;
      if (runs.size() == 1) {
        add_curves(chart, field, points, plan.noisy);
      } else if (field.compared) {
        const std::string label = plan.fields.size() > 1 ? names[i] + ": " + field.label : names[i];
        if (field.style == SeriesStyle::line) points = averaged(points, kCourse);
        const bool dashed = two_kinds && field.style == SeriesStyle::marks;
        any_dashed |= dashed;
        chart.series.push_back(
            {label, names[i] == last_name ? "" : names[i], points, field.style, static_cast<int>(i), dashed});
        last_name = names[i];
      }
    }
  if (any_dashed) chart.unit += "; dashed: validation";
  return chart;
}

}  // namespace

double label_smoothing(const RunLog& run) {
  return std::strtod(run.setting("train.label_smoothing", "0").c_str(), nullptr);
}

std::string charts_html(const Runs& runs, const std::vector<std::string>& names) {
  std::string out;
  std::vector<Plan> all;
  for (Plan plan : plans()) {
    if (plan.fields.front().name == "loss") plan.unit = loss_unit(runs) + smoothing_note(runs);
    if (plan.only_changes && !changes(plan, runs)) continue;
    if (!plan.each || runs.size() == 1) {
      all.push_back(plan);
      continue;
    }
    for (const Field& field : plan.fields) {
      all.push_back(plan);
      all.back().title += ": " + field.label;
      all.back().fields = {field};
    }
  }
  for (Plan& plan : further_plans(runs)) all.push_back(std::move(plan));
  for (const Plan& plan : all) {
    Chart chart = chart_of(plan, runs, names);
    if (chart.series.empty()) continue;
    if (out.empty()) chart.width = 980, chart.height = 380, chart.narrow_width = 440;  // full page width
    out += draw(chart);
  }
  if (out.empty()) return "<p>No step has been recorded yet.</p>\n";
  return "<div class=\"charts\">\n" + out + "</div>\n";
}

}  // namespace qkv
