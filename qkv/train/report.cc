#include "qkv/train/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "qkv/base/file.h"
#include "qkv/base/progress.h"
#include "qkv/train/chart.h"
#include "qkv/train/html.h"
#include "qkv/train/report_assets.h"
#include "qkv/train/run_log.h"

namespace qkv {
namespace {

using Runs = std::vector<RunLog>;

// ---- Names and numbers

// Three digits: 850, 12.3k, 4.56M.
std::string count_text(double n) {
  return n < 1000 ? fmt::format("{:.0f}", n) : short_number(n, std::pow(10, std::floor(std::log10(n)) - 2));
}

// 100,000.
std::string grouped(int64_t n) {
  std::string digits = std::to_string(n);
  for (int64_t at = static_cast<int64_t>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<size_t>(at), ",");
  return digits;
}

// What the runs are called: the last part of their paths, or the paths where these are the same.
std::vector<std::string> names_of(const Runs& runs) {
  std::vector<std::string> names;
  for (const RunLog& r : runs) {
    const std::string last = std::filesystem::absolute(r.dir).lexically_normal().filename().string();
    names.push_back(last.empty() ? r.dir : last);
  }
  if (std::set<std::string>(names.begin(), names.end()).size() == names.size()) return names;
  names.clear();
  for (const RunLog& r : runs) names.push_back(r.dir);
  return names;
}

const std::vector<Point>* find_series(const RunLog& run, const std::string& field) {
  const auto it = run.series.find(field);
  return it == run.series.end() ? nullptr : &it->second;
}

// ---- Key figures

struct Figure {
  std::string label, value, note;
};

std::optional<int64_t> integer_setting(const RunLog& run, const std::string& key) {
  const std::string text = run.setting(key, "");
  int64_t n = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), n).ec != std::errc()) return std::nullopt;
  return n;
}

// As recorded, or steps times the tokens that the settings give each; nothing where neither is known.
std::optional<double> tokens_seen(const RunLog& run) {
  if (const auto* tokens = find_series(run, "tokens")) return tokens->back().y;
  double tokens = static_cast<double>(run.step);
  for (const char* key : {"train.batch", "train.accumulate", "model.context"}) {
    const auto n = integer_setting(run, key);
    if (!n) return std::nullopt;
    tokens *= static_cast<double>(*n);
  }
  return tokens;
}

double median(std::vector<Point> points) {
  const auto middle = points.begin() + static_cast<std::ptrdiff_t>(points.size() / 2);
  std::nth_element(points.begin(), middle, points.end(),
                   [](const Point& a, const Point& b) { return a.y < b.y; });
  return middle->y;
}

std::vector<Figure> figures_of(const RunLog& run) {
  std::vector<Figure> all;
  const auto at_step = [](const Point& p) { return "at step " + grouped(static_cast<int64_t>(p.x)); };
  if (const auto* losses = find_series(run, "valid_loss")) {
    const Point best = *std::min_element(losses->begin(), losses->end(),
                                         [](const Point& a, const Point& b) { return a.y < b.y; });
    all.push_back({"Best validation loss", fmt::format("{:.4f}", best.y), at_step(best)});
    all.push_back({"Last validation loss", fmt::format("{:.4f}", losses->back().y), at_step(losses->back())});
    all.push_back(
        {"Perplexity", fmt::format("{:.2f}", std::exp(losses->back().y)), "of the last validation"});
  }
  if (const auto* bits = find_series(run, "valid_bits_per_byte"))
    all.push_back({"Bits per byte", fmt::format("{:.4f}", bits->back().y), "of the last validation"});
  const auto* smoothed = find_series(run, "smoothed_loss");
  if (const auto* loss = smoothed ? smoothed : find_series(run, "loss"))
    all.push_back({"Training loss", fmt::format("{:.4f}", loss->back().y),
                   smoothed ? "smoothed, the last" : "the last"});
  const auto steps = integer_setting(run, "train.steps");
  all.push_back({"Steps", grouped(run.step), steps ? "of " + grouped(*steps) : ""});
  if (const auto tokens = tokens_seen(run))
    all.push_back({"Tokens seen", count_text(*tokens), "in training"});
  if (run.seconds > 0)
    all.push_back({"Time", duration_text(run.seconds), run.seconds < 3600 ? "min:s" : "h:min:s"});
  if (const auto* speed = find_series(run, "tokens_per_second"))
    all.push_back({"Tokens per second", count_text(median(*speed)), "median"});
  return all;
}

std::string figures_html(const RunLog& run) {
  std::string out = "<dl class=\"figures\">\n";
  for (const Figure& f : figures_of(run))
    out += fmt::format("<div><dt>{}</dt><dd>{}<span class=\"note\">{}</span></dd></div>\n", f.label,
                       escape_html(f.value), escape_html(f.note));
  return out + "</dl>\n";
}

// A row for each run.
std::string figures_html(const Runs& runs, const std::vector<std::string>& names) {
  std::vector<std::string> labels;
  std::vector<std::map<std::string, std::string>> rows;
  for (const RunLog& run : runs) {
    rows.emplace_back();
    for (const Figure& f : figures_of(run)) {
      if (std::find(labels.begin(), labels.end(), f.label) == labels.end()) labels.push_back(f.label);
      rows.back()[f.label] = f.value;
    }
  }
  std::string out = "<h2>Key figures</h2>\n<div class=\"scroll\"><table>\n<tr><th>Run</th>";
  for (const std::string& label : labels) out += fmt::format("<th>{}</th>", label);
  out += "</tr>\n";
  for (size_t i = 0; i < runs.size(); ++i) {
    out += fmt::format("<tr><th><span class=\"swatch s{}\"></span>{}</th>", i % 8, escape_html(names[i]));
    for (const std::string& label : labels) out += fmt::format("<td>{}</td>", escape_html(rows[i][label]));
    out += "</tr>\n";
  }
  return out + "</table></div>\n";
}

// ---- Charts

struct Field {
  std::string name, label;
  SeriesStyle style = SeriesStyle::line;
  int colour = 0;        // in a report about one run
  bool compared = true;  // also shown beside other runs
};

// A chart that is drawn when a run has recorded one of its fields.
struct Plan {
  std::string title, unit;
  std::vector<Field> fields;
  bool from_zero = true, may_be_log = false;
  bool may_be_cut = false;
  bool noisy = true;  // its course is drawn over the single values
  double scale = 1;   // from the field's unit to the chart's
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
      {.title = "Learning rate", .unit = "", .fields = {{"lr", "learning rate"}}, .noisy = false},
      {.title = "Throughput", .unit = "tokens per second", .fields = {{"tokens_per_second", "throughput"}}},
      {.title = "Gradient norm",
       .unit = "before clipping",
       .fields = {{"grad_norm", "gradient norm"}},
       .may_be_log = true},
      {.title = "Memory", .unit = "GB", .fields = {{"memory_mb", "memory"}}, .noisy = false, .scale = 1e-3},
  };
  return all;
}

// Charts of the fields that no plan and no key figure knows.
std::vector<Plan> further_plans(const Runs& runs) {
  std::set<std::string> known = {"seconds", "tokens", "valid_tokens", "valid_nats_per_character",
                                 "valid_bits_per_byte"};
  for (const Plan& plan : plans())
    for (const Field& field : plan.fields) known.insert(field.name);
  std::vector<Plan> further;
  for (const RunLog& run : runs)
    for (const auto& [name, points] : run.series) {
      if (!known.insert(name).second) continue;
      std::string title = name;
      std::replace(title.begin(), title.end(), '_', ' ');
      further.push_back(
          {.title = title, .unit = "", .fields = {{name, title}}, .from_zero = false, .may_be_log = true});
    }
  return further;
}

// Parts of a noisy curve whose means show its course.
constexpr int kCourse = 150;

// A field of the only run.
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
              .may_be_log = plan.may_be_log};
  std::string last_name;
  for (size_t i = 0; i < runs.size(); ++i)
    for (const Field& field : plan.fields) {
      const auto* found = find_series(runs[i], field.name);
      if (found == nullptr) continue;
      std::vector<Point> points = *found;
      for (Point& p : points) p.y *= plan.scale;
      if (runs.size() == 1) {
        add_curves(chart, field, points, plan.noisy);
      } else if (field.compared) {
        const std::string label = plan.fields.size() > 1 ? names[i] + ": " + field.label : names[i];
        if (field.style == SeriesStyle::line) points = averaged(points, kCourse);
        chart.series.push_back(
            {label, names[i] == last_name ? "" : names[i], points, field.style, static_cast<int>(i)});
        last_name = names[i];
      }
    }
  return chart;
}

std::string charts_html(const Runs& runs, const std::vector<std::string>& names) {
  std::string out;
  std::vector<Plan> all = plans();
  for (Plan& plan : further_plans(runs)) all.push_back(std::move(plan));
  for (const Plan& plan : all) {
    Chart chart = chart_of(plan, runs, names);
    if (chart.series.empty()) continue;
    if (out.empty()) chart.width = 980, chart.height = 380;  // the first one is as wide as the page
    out += draw(chart);
  }
  if (out.empty()) return "<p>No step has been recorded yet.</p>\n";
  return "<div class=\"charts\">\n" + out + "</div>\n";
}

// ---- Samples

std::string samples_html(const std::vector<Sample>& samples) {
  constexpr size_t kMost = 40, kLongest = 4000;  // samples; bytes of one
  const size_t shown = std::min(samples.size(), kMost);
  std::string out;
  for (size_t i = 0; i < shown; ++i) {  // spread evenly, with the first and the last
    const Sample& s = samples[shown == 1 ? 0 : i * (samples.size() - 1) / (shown - 1)];
    size_t end = std::min(s.text.size(), kLongest);
    while (end > 0 && end < s.text.size() && (s.text[end] & 0xC0) == 0x80) --end;  // not inside a character
    out += fmt::format(
        "<div class=\"sample\"><div class=\"step\">step {}</div><pre><span "
        "class=\"prompt\">{}</span>{}{}</pre></div>\n",
        grouped(s.step), escape_html(s.prompt), escape_html(s.text.substr(0, end)),
        end < s.text.size() ? "…" : "");
  }
  if (shown < samples.size())
    out += fmt::format("<p class=\"facts\">{} of {} samples.</p>\n", shown, samples.size());
  return out;
}

// ---- Settings

std::string settings_table(const Runs& runs, const std::vector<std::string>& names,
                           const std::vector<std::string>& keys) {
  std::string out = "<div class=\"scroll\"><table>\n";
  if (runs.size() > 1) {
    out += "<tr><th></th>";
    for (const std::string& name : names) out += fmt::format("<th>{}</th>", escape_html(name));
    out += "</tr>\n";
  }
  for (const std::string& key : keys) {
    out += fmt::format("<tr><th>{}</th>", escape_html(key));
    for (const RunLog& run : runs)
      out += fmt::format("<td class=\"value\">{}</td>", escape_html(run.setting(key, "–")));
    out += "</tr>\n";
  }
  return out + "</table></div>\n";
}

std::string settings_html(const Runs& runs, const std::vector<std::string>& names) {
  std::vector<std::string> keys, different;
  for (const RunLog& run : runs)
    for (const auto& [key, value] : run.settings)
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
  if (keys.empty()) return "";
  for (const std::string& key : keys)
    for (const RunLog& run : runs)
      if (run.setting(key, "") != runs.front().setting(key, "")) {
        different.push_back(key);
        break;
      }
  std::string out;
  if (!different.empty()) out += "<h2>Settings that differ</h2>\n" + settings_table(runs, names, different);
  return out + "<details><summary>All settings</summary>\n" + settings_table(runs, names, keys) +
         "</details>\n";
}

// ---- The page

// "3.3M parameters · 4 layers · ...": what is known of the model.
std::string facts_of(const RunLog& run) {
  std::string out =
      run.parameters == 0 ? "" : count_text(static_cast<double>(run.parameters)) + " parameters";
  const auto add = [&](const char* format, const char* key) {
    const std::string value = run.setting(key, "");
    if (!value.empty()) out += (out.empty() ? "" : " · ") + fmt::format(fmt::runtime(format), value);
  };
  add("{} layers", "model.layers");
  add("width {}", "model.width");
  add("{} heads", "model.heads");
  add("context {}", "model.context");
  return out;
}

std::string header_html(const Runs& runs, const std::vector<std::string>& names) {
  if (runs.size() > 1)
    return fmt::format(
               "<h1>{} runs</h1>\n<p class=\"facts\">Lines: means of {} parts of a run. Dots: "
               "validation.</p>\n",
               runs.size(), kCourse) +
           figures_html(runs, names);
  return fmt::format("<h1>{}</h1>\n<p class=\"facts\">{}</p>\n", escape_html(names[0]),
                     escape_html(facts_of(runs[0]))) +
         figures_html(runs[0]);
}

}  // namespace

std::string report_html(const std::vector<std::string>& run_dirs) {
  Runs runs;
  for (const std::string& dir : run_dirs) runs.push_back(read_run_log(dir));
  const std::vector<std::string> names = names_of(runs);
  std::string samples;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].samples.empty()) continue;
    if (runs.size() > 1) samples += fmt::format("<h3>{}</h3>\n", escape_html(names[i]));
    samples += samples_html(runs[i].samples);
  }
  if (!samples.empty()) samples = "<h2>Samples</h2>\n<section>\n" + samples + "</section>\n";
  // The policy forbids every request: the page holds all that it shows.
  return fmt::format(
      R"(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<title>{} - qkv</title>
<style>{}</style>
</head>
<body>
{}{}{}{}<script>{}</script>
</body>
</html>
)",
      escape_html(runs.size() == 1 ? names[0] : fmt::format("{}", fmt::join(names, ", "))), kReportStyle,
      header_html(runs, names), charts_html(runs, names), samples, settings_html(runs, names), kReportScript);
}

void write_report(const std::string& run_dir) {
  write_file_atomically(run_dir + "/report.html", report_html({run_dir}));
}

}  // namespace qkv
