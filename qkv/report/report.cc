#include "qkv/report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "qkv/base/file.h"
#include "qkv/base/machine.h"
#include "qkv/base/progress.h"
#include "qkv/metrics/baseline_names.h"
#include "qkv/metrics/evaluation.h"
#include "qkv/report/chart.h"
#include "qkv/report/fold_scores.h"
#include "qkv/report/heat_map.h"
#include "qkv/report/html.h"
#include "qkv/report/report_assets.h"
#include "qkv/report/report_charts.h"
#include "qkv/report/trace_section.h"

namespace qkv {
namespace {

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

// Names of the runs: the last parts of their paths, or the paths if those are equal.
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

// ---- Scores

// In display order; others follow by name.
constexpr const char* kScores[] = {"bleu",     "accuracy", "exact_match", "f1",   "macro_f1", "matthews",
                                   "micro_f1", "pearson",  "spearman",    "rmse", "mae"};

// Scores of one model or baseline, and the data they were measured on.
struct ScoreRow {
  std::string who, by;
  std::map<std::string, double> scores;
};

// The scores of the best model, and of baselines on the same examples.
std::vector<ScoreRow> score_rows(const RunLog& run) {
  std::vector<ScoreRow> rows;
  if (run.best) {
    rows.push_back({fmt::format("the best model, of step {}", grouped(run.best->step)), run.best->of, {}});
    rows.back().scores.insert(run.best->scores.begin(), run.best->scores.end());
    // The test is done once, at the end; it does not record the step of the best model.
    if (run.best->of == "test") rows.back().who = "the best model";
  }
  if (!run.best || run.best->of != "validation") {
    ScoreRow last{"the last model", "validation", {}};
    for (const char* s : kScores)
      if (const auto* values = run.find(fmt::format("valid_{}", s))) last.scores[s] = values->back().y;
    if (!last.scores.empty()) rows.push_back(last);
  }
  const bool tested = run.best && run.best->of == "test";
  for (const auto& [name, values] : run.series)
    if (name.starts_with(kBaselinePrefix))
      rows.push_back({baseline_name(name),
                      tested ? "test" : "validation",
                      {{baseline_score(baseline_name(name)), values.back().y}}});
  return rows;
}

std::string scores_html(const Runs& runs, const std::vector<std::string>& names) {
  std::vector<std::pair<size_t, ScoreRow>> rows;
  std::vector<std::string> columns;
  std::set<std::string> found;
  for (size_t i = 0; i < runs.size(); ++i)
    for (ScoreRow& row : score_rows(runs[i])) {
      for (const auto& [name, value] : row.scores) found.insert(name);
      rows.emplace_back(i, std::move(row));
    }
  if (rows.empty()) return "";
  for (const char* s : kScores)
    if (found.erase(s) > 0) columns.emplace_back(s);
  columns.insert(columns.end(), found.begin(), found.end());
  std::string out = "<h2>Scores</h2>\n<div class=\"scroll\"><table class=\"scores\">\n<tr>";
  if (runs.size() > 1) out += "<th>Run</th>";
  out += "<th></th><th>judged by</th>";
  for (const std::string& c : columns) out += fmt::format("<th>{}</th>", escape_html(score_label(c)));
  out += "</tr>\n";
  for (const auto& [run, row] : rows) {
    out += "<tr>";
    if (runs.size() > 1)
      out += fmt::format("<th><span class=\"swatch s{}\"></span>{}</th>", run % 8, escape_html(names[run]));
    out += fmt::format("<td>{}</td><td>{}</td>", escape_html(row.who), escape_html(row.by));
    for (const std::string& c : columns) {
      const auto it = row.scores.find(c);
      out += fmt::format("<td>{}</td>", it == row.scores.end() ? "–" : score_text(c, it->second));
    }
    out += "</tr>\n";
  }
  return out + "</table></div>\n";
}

std::string confusions_html(const Runs& runs, const std::vector<std::string>& names) {
  std::string out;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (!runs[i].best || runs[i].best->confusion.empty()) continue;
    out += draw_confusion(
        fmt::format("{}Confusion matrix ({})", runs.size() > 1 ? names[i] + ": " : "", runs[i].best->of),
        runs[i].best->labels, runs[i].best->confusion);
  }
  return out;
}

// The confusion matrix of all folds together, if they have the same classes.
std::string confusion_of_folds(const Runs& folds) {
  std::vector<std::string> labels;
  std::vector<int64_t> sum;
  for (const RunLog& run : folds) {
    if (!run.best || run.best->of != "test" || run.best->confusion.empty()) continue;
    if (sum.empty()) {
      labels = run.best->labels;
      sum = run.best->confusion;
      continue;
    }
    if (run.best->labels != labels) return "";
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += run.best->confusion[i];
  }
  return sum.empty() ? "" : draw_confusion("Confusion matrix (test, all folds together)", labels, sum);
}

// ---- Mistakes

// The beginning of a text that ends with a whole character.
std::string beginning(const std::string& text, size_t most) {
  size_t end = std::min(text.size(), most);
  while (end > 0 && end < text.size() && (text[end] & 0xC0) == 0x80) --end;
  return text.substr(0, end) + (end < text.size() ? "…" : "");
}

// A row for each of the worst mistakes.
std::string mistakes_html(const Runs& runs, const std::vector<std::string>& names) {
  constexpr size_t kLongest = 300;  // bytes of a text
  std::string out;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (!runs[i].best || runs[i].best->mistakes.empty()) continue;
    const RunScores& best = *runs[i].best;
    const bool answers = best.mistakes.front().answer, numbers = best.mistakes.front().number,
               tags = best.mistakes.front().word.has_value();
    out +=
        fmt::format("<h2>{}{} ({})</h2>\n<p class=\"facts\">{} of {}, {} first</p>\n",
                    runs.size() > 1 ? escape_html(names[i]) + ": " : "", numbers ? "Predictions" : "Mistakes",
                    escape_html(best.of), best.mistakes.size(), grouped(best.mistaken),
                    answers   ? "those with the lowest F1"
                    : numbers ? "those with the largest error"
                              : "the most confident");
    out += fmt::format(
        "<div class=\"scroll\"><table class=\"mistakes\">\n<tr><th>text</th>{}<th>true</th>"
        "<th>predicted</th><th>{}</th></tr>\n",
        tags ? "<th>word</th>" : "",
        answers   ? "F1"
        : numbers ? "error"
                  : "probability");
    for (const Mistake& m : best.mistakes) {
      out += fmt::format("<tr><td title=\"{}\">{}", escape_html(m.place),
                         escape_html(beginning(m.text, kLongest)));
      if (!m.second.empty()) out += "<br>" + escape_html(beginning(m.second, kLongest));
      if (tags) out += fmt::format("</td><td>{}", escape_html(m.word.value_or("")));
      out += fmt::format("</td><td>{}</td><td>{}</td><td>{:.4f}</td></tr>\n", escape_html(m.right),
                         escape_html(m.predicted.value_or("(truncated)")), m.score);
    }
    out += "</table></div>\n";
  }
  return out;
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

// The number of tokens as recorded, or steps times tokens per step from the settings; nullopt if neither is
// known.
std::optional<double> tokens_seen(const RunLog& run) {
  if (const auto* tokens = run.find("tokens")) return tokens->back().y;
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
  bool of_classes = false;  // perplexity is meaningless for classes
  if (run.best && run.best->of == "test")
    for (const char* s : kScores) {
      const auto& scores = run.best->scores;
      const auto it =
          std::ranges::find(scores, std::string(s), [](const auto& score) { return score.first; });
      if (it == scores.end()) continue;
      all.push_back({fmt::format("Test {}", score_label(s)), score_text(s, it->second), "of the best model"});
      break;
    }
  for (const char* s : kScores)
    if (const auto* values = run.find(fmt::format("valid_{}", s))) {
      const Point best = *std::max_element(values->begin(), values->end(),
                                           [](const Point& a, const Point& b) { return a.y < b.y; });
      all.push_back(
          {fmt::format("Best validation {}", score_label(s)), score_text(s, best.y), at_step(best)});
      of_classes = std::string_view(s) != "bleu";
      break;
    }
  if (const auto* losses = run.find("valid_loss")) {
    const Point best = *std::min_element(losses->begin(), losses->end(),
                                         [](const Point& a, const Point& b) { return a.y < b.y; });
    all.push_back({"Best validation loss", fmt::format("{:.4f}", best.y), at_step(best)});
    all.push_back({"Last validation loss", fmt::format("{:.4f}", losses->back().y), at_step(losses->back())});
    if (!of_classes)
      all.push_back(
          {"Perplexity", fmt::format("{:.2f}", std::exp(losses->back().y)), "of the last validation"});
  }
  if (const auto* bits = run.find("valid_bits_per_byte"))
    all.push_back({"Bits per byte", fmt::format("{:.4f}", bits->back().y), "of the last validation"});
  const auto* smoothed = run.find("smoothed_loss");
  if (const auto* loss = smoothed ? smoothed : run.find("loss"))
    all.push_back({"Training loss", fmt::format("{:.4f}", loss->back().y),
                   fmt::format("{}{}", smoothed ? "smoothed, the last" : "the last",
                               label_smoothing(run) > 0 ? ", with label smoothing" : "")});
  const auto steps = integer_setting(run, "train.steps");
  all.push_back({"Steps", grouped(run.step), steps ? "of " + grouped(*steps) : ""});
  if (const auto tokens = tokens_seen(run))
    all.push_back({"Tokens seen", count_text(*tokens), "in training"});
  if (run.seconds > 0)
    all.push_back({"Time", duration_text(run.seconds), run.seconds < 3600 ? "min:s" : "h:min:s"});
  if (const auto* speed = run.find("tokens_per_second"))
    all.push_back({"Tokens per second", count_text(median(*speed)), "median"});
  if (const auto* memory = run.find("memory_mb"))
    all.push_back({"Memory", memory_text(1e6 * std::ranges::max(*memory, {}, &Point::y).y), "peak"});
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

// ---- Samples

std::string samples_html(const std::vector<Sample>& samples) {
  constexpr size_t kMost = 40, kLongest = 4000;  // number of samples; bytes of a sample
  const size_t shown = std::min(samples.size(), kMost);
  std::string out;
  for (size_t i = 0; i < shown; ++i) {  // spread evenly, including the first and the last
    const Sample& s = samples[shown == 1 ? 0 : i * (samples.size() - 1) / (shown - 1)];
    out += fmt::format(
        "<div class=\"sample\"><div class=\"step\">step {}</div><pre><span "
        "class=\"prompt\">{}</span>{}</pre></div>\n",
        grouped(s.step), escape_html(s.prompt), escape_html(beginning(s.text, kLongest)));
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

// "3.3M parameters · 4 layers · ...": the known facts about the model.
std::string facts_of(const RunLog& run) {
  std::string out =
      run.parameters == 0 ? "" : count_text(static_cast<double>(run.parameters)) + " parameters";
  const auto add = [&](const char* format, const char* key) {
    const std::string value = run.setting(key, "");
    if (!value.empty()) out += (out.empty() ? "" : " · ") + fmt::format(fmt::runtime(format), value);
  };
  add(run.setting("model.layers", "") == "1" ? "{} layer" : "{} layers", "model.layers");
  add("width {}", "model.width");
  add("{} heads", "model.heads");
  add("context {}", "model.context");
  return out;
}

std::string header_html(const Runs& runs, const std::vector<std::string>& names) {
  if (runs.size() > 1)
    return fmt::format(
               "<h1>{} runs</h1>\n<p class=\"facts\">Solid lines: means of {} parts of a run. Dashed "
               "lines and dots: validation.</p>\n",
               runs.size(), kCourse) +
           figures_html(runs, names);
  return fmt::format("<h1>{}</h1>\n<p class=\"facts\">{}</p>\n", escape_html(names[0]),
                     escape_html(facts_of(runs[0]))) +
         figures_html(runs[0]);
}

// ---- Cross-validation

// The scores of the finished folds, a row each, with means and deviations.
std::string fold_scores_html(const Runs& folds) {
  std::vector<FoldScores> scores;
  int64_t finished = 0;
  for (const RunLog& run : folds) {
    const bool tested =
        std::ranges::any_of(run.series, [](const auto& field) { return field.first.starts_with("test_"); });
    if (!tested) break;
    add_fold_scores(run, ++finished, scores);
  }
  if (finished == 0) return "<p class=\"facts\">No fold is finished yet.</p>\n";
  std::string out = "<h2>Scores of the folds</h2>\n<div class=\"scroll\"><table class=\"scores\">\n";
  const auto rows = fold_rows(scores);
  for (size_t r = 0; r < rows.size(); ++r) {
    const char* summary = r + 2 >= rows.size() ? " class=\"summary\"" : "";
    out += fmt::format("<tr{}>", summary);
    for (size_t c = 0; c < rows[r].size(); ++c)
      out += fmt::format("<{0}>{1}</{0}>", r == 0 || c == 0 ? "th" : "td",
                         escape_html(r == 0 && c > 0 ? score_label(rows[r][c]) : rows[r][c]));
    out += "</tr>\n";
  }
  return out + "</table></div>\n";
}

std::string fold_header_html(const std::string& name, const Runs& folds,
                             const std::vector<std::string>& names) {
  const std::string facts = facts_of(folds.front());
  return fmt::format("<h1>{}</h1>\n<p class=\"facts\">Cross-validation, {} folds{}{}</p>\n",
                     escape_html(name), folds.front().setting("data.folds", std::to_string(folds.size())),
                     facts.empty() ? "" : " · ", escape_html(facts)) +
         fold_scores_html(folds) + figures_html(folds, names);
}

// ---- The whole page

// The policy forbids all requests, because the page is self-contained.
std::string page_html(const std::string& title, const std::string& body) {
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
{}<script>{}</script>
</body>
</html>
)",
      escape_html(title), kReportStyle, body, kReportScript);
}

std::string samples_of_runs(const Runs& runs, const std::vector<std::string>& names) {
  std::string samples;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].samples.empty()) continue;
    if (runs.size() > 1) samples += fmt::format("<h3>{}</h3>\n", escape_html(names[i]));
    samples += samples_html(runs[i].samples);
  }
  return samples.empty() ? "" : "<h2>Samples</h2>\n<section>\n" + samples + "</section>\n";
}

// The name of a folder on its page.
std::string name_of_folder(const std::string& dir) {
  const auto path = std::filesystem::absolute(dir).lexically_normal();
  const std::string last = (path.has_filename() ? path : path.parent_path()).filename().string();
  return last.empty() ? dir : last;
}

std::string page_of_folds(const std::string& dir, const Runs& folds) {
  const std::vector<std::string> names = names_of(folds);
  const std::string name = name_of_folder(dir);
  return page_html(name, fold_header_html(name, folds, names) + charts_html(folds, names) +
                             confusion_of_folds(folds) + samples_of_runs(folds, names) +
                             settings_html(folds, names));
}

}  // namespace

std::string report_html(const std::vector<std::string>& run_dirs) {
  Runs runs;
  for (const std::string& dir : run_dirs) {
    const bool is_run = file_exists(dir + "/metrics.jsonl");
    const std::vector<std::string> folds = is_run ? std::vector<std::string>{} : runs_of_folds(dir);
    for (const std::string& fold : folds) runs.push_back(read_run_log(fold));
    if (folds.empty()) runs.push_back(read_run_log(dir, run_dirs.size() == 1));
    if (!folds.empty() && run_dirs.size() == 1) return page_of_folds(dir, runs);
  }
  const std::vector<std::string> names = names_of(runs);
  return page_html(runs.size() == 1 ? names[0] : fmt::format("{}", fmt::join(names, ", ")),
                   header_html(runs, names) + charts_html(runs, names) + scores_html(runs, names) +
                       confusions_html(runs, names) + mistakes_html(runs, names) +
                       (runs.size() == 1 ? traces_html(runs[0]) : "") + samples_of_runs(runs, names) +
                       settings_html(runs, names));
}

void write_report(const std::string& run_dir) {
  write_file_atomically(run_dir + "/report.html", report_html({run_dir}));
}

}  // namespace qkv
