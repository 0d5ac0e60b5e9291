// Charts, and the report page of a run.
// Covers: qkv/report/chart.cc, qkv/report/heat_map.cc, qkv/report/html.cc, qkv/report/report_charts.cc
// Covers: qkv/metrics/mistakes.cc, qkv/report/run_log.cc
#include "qkv/report/report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "qkv/base/file.h"
#include "qkv/report/chart.h"
#include "qkv/report/heat_map.h"
#include "qkv/report/html.h"
#include "qkv/report/run_log.h"
#include "tests/unit/expect_error.h"
#include "tests/unit/mutation.h"
#include "tests/unit/scratch_dir.h"

namespace qkv::report_test {
namespace {

using testing::expect_error;
using testing::ScratchDir;

void expect_in(const std::string& page, std::initializer_list<std::string> parts) {
  for (const std::string& part : parts) EXPECT_NE(page.find(part), std::string::npos) << part;
}

TEST(Html, IsEscaped) {
  EXPECT_EQ(escape_html("<a href=\"x\">'&'</a>"), "&lt;a href=&quot;x&quot;&gt;&#39;&amp;&#39;&lt;/a&gt;");
  EXPECT_EQ(escape_html("é\n\t你"), "é\n\t你");
  EXPECT_EQ(escape_html(std::string("a\0b\x1B\xFF\xE4\xBD", 7)), "a\uFFFDb\uFFFD\uFFFD\uFFFD");
}

TEST(Chart, TicksAreRound) {
  EXPECT_EQ(linear_ticks(0, 10, 5), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(linear_ticks(1.3, 3.9, 5), (std::vector<double>{2, 3}));
  EXPECT_EQ(linear_ticks(-20, 20, 4), (std::vector<double>{-20, -10, 0, 10, 20}));
  EXPECT_EQ(log_ticks(0.3, 30), (std::vector<double>{0.5, 1, 2, 5, 10, 20}));
  EXPECT_EQ(log_ticks(0.5, 2e3), (std::vector<double>{1, 10, 100, 1000}));
}

TEST(Chart, NumbersAreShort) {
  EXPECT_EQ(short_number(0, 0.5), "0");
  EXPECT_EQ(short_number(1.5, 0.5), "1.5");
  EXPECT_EQ(short_number(2, 0.5), "2.0");
  EXPECT_EQ(short_number(500, 500), "500");
  EXPECT_EQ(short_number(1500, 500), "1.5k");
  EXPECT_EQ(short_number(20000, 5000), "20k");
  EXPECT_EQ(short_number(1234567, 1e4), "1.23M");
  EXPECT_EQ(short_number(5e-4, 5e-4), "5e-4");
  EXPECT_EQ(short_number(1.5e-3, 5e-4), "1.5e-3");
  EXPECT_EQ(short_number(-0.25, 0.05), "-0.25");
}

TEST(Chart, ThinningKeepsWhatADrawingShows) {
  std::vector<Point> points;
  for (int i = 0; i < 100'000; ++i) points.push_back({static_cast<double>(i), std::sin(i * 0.001)});
  points[34'567].y = 5;  // one step that must be visible
  points[70'001].y = -5;
  const auto kept = thin(points, 0, 99'999, 400);
  EXPECT_LE(kept.size(), 802u);
  EXPECT_GE(kept.size(), 400u);
  EXPECT_EQ(kept.front().x, 0);
  EXPECT_EQ(kept.back().x, 99'999);
  int extremes = 0;
  for (size_t i = 0; i < kept.size(); ++i) {
    ASSERT_TRUE(i == 0 || kept[i].x > kept[i - 1].x);
    EXPECT_EQ(kept[i].y, points[static_cast<size_t>(kept[i].x)].y);
    extremes += std::abs(kept[i].y) == 5;
  }
  EXPECT_EQ(extremes, 2);
  const std::vector<Point> few(points.begin(), points.begin() + 10);
  EXPECT_EQ(thin(few, 0, 9, 400).size(), 10u);
}

TEST(Chart, MeansShowTheCourse) {
  std::vector<Point> points;
  for (int i = 0; i < 1000; ++i) points.push_back({i + 1.0, i % 2 ? 3.0 : 1.0});
  const auto means = averaged(points, 100);
  ASSERT_EQ(means.size(), 100u);
  for (const Point& p : means) EXPECT_EQ(p.y, 2);
  EXPECT_EQ(means.front().x, 10);
  EXPECT_EQ(means.back().x, 1000);
  EXPECT_EQ(averaged(means, 100).size(), 100u);
}

// The coordinates fit the values: the scales of the drawing convert them back.
TEST(Chart, DrawsPointsAtTheirPlaces) {
  Chart chart{.title = "T <1>", .unit = "u", .from_zero = true, .width = 200, .height = 100};
  chart.series = {{.label = "a", .points = {{0, 0}, {50, 5}, {100, 10}}}};
  const std::string svg = draw(chart);
  expect_in(svg, {"T &lt;1&gt;", "data-x=\"0 100 52 180\"", "data-y=\"0 10 70 10\"", "data-log=\"0\"",
                  "points=\"52.00,70.00 116.00,40.00 180.00,10.00\"", ">10</text>"});
  chart.may_be_log = true;
  chart.series[0].points = {{0, 0.01}, {100, 100}};
  expect_in(draw(chart), {"data-log=\"1\"", "logarithmic", ">100</text>", ">0.01</text>"});
}

TEST(Chart, ASteepBeginningDoesNotFlattenTheRest) {
  Chart chart{.title = "T", .unit = "u", .may_be_cut = true};
  chart.series = {{.label = "a"}};
  for (int step = 1; step <= 1000; ++step)
    chart.series[0].points.push_back({step * 1.0, 2 + 8 / (1 + step * 0.2)});
  expect_in(draw(chart), {"without the beginning", "data-y=\"2 2.8 "});
  for (Point& p : chart.series[0].points) p.y = 10 - p.x / 200;
  const std::string straight = draw(chart);
  expect_in(straight, {"data-y=\"5 10 "});
  EXPECT_EQ(straight.find("without the beginning"), std::string::npos);
}

// The axis of a constant score spans from the worst to the best value.
TEST(Chart, AFlatScoreHasTheWholeAxis) {
  Chart chart{.title = "T", .unit = "", .best = 1, .always_legend = true};
  for (const auto& [value, axis] :
       {std::pair(0.0, "data-y=\"0 1 "), {0.8, "data-y=\"0 1 "}, {-0.5, "data-y=\"-1 1 "}}) {
    chart.series = {{.label = "exact match", .legend = "exact match", .points = {{1, value}, {2, value}}}};
    expect_in(draw(chart), {axis, "class=\"legend\""});
  }
  chart.series[0].points = {{1, 0.5}, {2, 0.75}};
  expect_in(draw(chart), {"data-y=\"0.5 0.75 "});
  Chart zero{.title = "T", .unit = "", .from_zero = true};
  zero.series = {{.label = "a", .points = {{1, 0}, {2, 0}}}};
  const std::string drawn = draw(zero);
  expect_in(drawn, {"data-y=\"0 1 "});
  EXPECT_EQ(drawn.find("legend"), std::string::npos);
}

TEST(Chart, OnNarrowScreensAnotherIsShown) {
  Chart chart{.title = "T", .unit = "", .may_be_cut = true, .width = 980, .height = 380, .narrow_width = 440};
  chart.series = {{.label = "a", .dashed = true}};
  for (int step = 1; step <= 1000; ++step)
    chart.series[0].points.push_back({step * 1.0, 2 + 8 / (1 + step * 0.2)});
  const std::string drawn = draw(chart);
  expect_in(drawn,
            {"<svg class=\"wide\" viewBox=\"0 0 980 380\"", "<svg class=\"narrow\" viewBox=\"0 0 440 260\"",
             "id=\"plot-980\"", "id=\"plot-440\"", "<polyline class=\"s0 dashed\""});
}

TEST(Chart, OnePointIsSeen) {
  Chart chart;
  chart.series = {{.label = "a", .points = {{7, 0.25}}}};
  expect_in(draw(chart), {"<circle", "step 7: 0.25"});
}

constexpr const char* kMetrics =
    R"({"step":1,"loss":4.0,"smoothed_loss":4.0,"lr":0.001,"tokens_per_second":1000,"seconds":10}
{"step":2,"loss":3.0,"smoothed_loss":3.95,"lr":0.002,"tokens_per_second":3000,"seconds":20,"z_loss":0.5}
{"step":2,"valid_loss":2.5,"valid_bits_per_byte":1.75}
{"step":2,"sample":"</pre><script>alert(1)</script>","prompt":"A&B"}
{"step":3,"loss":2.0,"smoothed_loss":3.8525,"lr":0.003,"tokens_per_second":2000,"seconds":5}
{"step":4,"valid_loss":2.75,"valid_bits_per_byte":1.9}
)";
constexpr const char* kConfig =
    "[model]\ncontext = 32\nlayers = 3\n[train]\nsteps = 5\nbatch = 8\naccumulate = 2\n";

TEST(RunLog, IsReadBack) {
  const ScratchDir dir;
  dir.write("metrics.jsonl", kMetrics + std::string("{\"step\":5,\"lo"));
  dir.write("config.toml", kConfig);
  const RunLog run = read_run_log(dir.path() + "/");
  EXPECT_EQ(run.dir, dir.path());
  EXPECT_EQ(run.step, 4);
  EXPECT_EQ(run.seconds, 25);  // sum of two sessions
  EXPECT_EQ(run.series.at("loss").size(), 3u);
  EXPECT_EQ(run.series.at("valid_loss")[1].x, 4);
  EXPECT_EQ(run.series.at("valid_loss")[1].y, 2.75);
  ASSERT_EQ(run.samples.size(), 1u);
  EXPECT_EQ(run.samples[0].prompt, "A&B");
  EXPECT_EQ(run.settings[0], (std::pair<std::string, std::string>("model.context", "32")));
  EXPECT_EQ(run.setting("train.steps", ""), "5");
  EXPECT_EQ(run.setting("train.none", "-"), "-");
}

TEST(RunLog, DamageIsNamed) {
  const ScratchDir dir;
  const std::string path = dir.path() + "/metrics.jsonl";
  const auto refuse = [&](const std::string& lines, std::initializer_list<std::string> parts) {
    dir.write("metrics.jsonl", lines);
    expect_error([&] { read_run_log(dir.path()); }, parts);
  };
  expect_error([&] { read_run_log(dir.path()); }, {dir.path(), "metrics.jsonl"});
  refuse("{\"step\":1}\n{\"step\":\n", {path + ":2", "JSON"});
  refuse("{\"step\":1}\n\n", {path + ":2", "JSON"});
  refuse("7\n", {path + ":1", "object"});
  refuse("{\"loss\":1}\n", {path + ":1", "step"});
  refuse("{\"step\":-1}\n", {path + ":1", "step", "-1"});
  refuse("{\"step\":1.5}\n", {path + ":1", "step"});
  refuse("{\"step\":1,\"loss\":1e999}\n", {path + ":1"});
  refuse("{\"step\":1,\"loss\":-1e200}\n", {path + ":1", "loss", "1e+100"});
  refuse("{\"step\":2}\n{\"step\":1}\n", {path + ":2", "step", "at least 2"});
  refuse("{\"step\":1,\"sample\":5}\n", {path + ":1", "sample", "string"});
  dir.write("metrics.jsonl", "");
  dir.write("config.toml", "a = 1\nb = \n");
  expect_error([&] { read_run_log(dir.path()); }, {"config.toml:2"});
}

TEST(Report, ShowsTheNumbers) {
  const ScratchDir dir;
  dir.write("metrics.jsonl", kMetrics);
  dir.write("config.toml", kConfig);
  const std::string page = report_html({dir.path()});
  expect_in(page, {"2.5000", "at step 2", "2.7500", "15.64", "1.9000", "3.8525", "of 5", "2.05k", "0:25",
                   "2.00k", "3 layers", "model.context", "z loss", "Learning rate", "Throughput",
                   "<span class=\"prompt\">A&amp;B</span>&lt;/pre&gt;&lt;script&gt;alert(1)"});
  EXPECT_EQ(page.find("<script>alert"), std::string::npos);
  EXPECT_EQ(page.find("Memory"), std::string::npos);
  EXPECT_EQ(page.find("Gradient norm"), std::string::npos);
  EXPECT_EQ(page.find("src="), std::string::npos);  // nothing is fetched
  write_report(dir.path());
  EXPECT_EQ(read_file(dir.path() + "/report.html"), page);
}

constexpr const char* kScores =
    R"({"of":"test","step":4,"loss":0.5,"scores":{"accuracy":0.6875,"matthews":0.25},)"
    R"("labels":["<b> & 'x'","tool","never"],"confusion":[30,4,0,6,1037,0,0,0,0],)"
    R"("mistaken":10,"mistakes":[{"place":"a.tsv:3","text":"A <hammer>","true":"tool",)"
    R"("predicted":"<b> & 'x'","probability":0.875}]})";
constexpr const char* kScored =
    R"({"step":2,"valid_loss":2.5,"valid_accuracy":0.5,"valid_f1":0.25}
{"step":4,"valid_loss":2.75,"valid_accuracy":0.8125,"valid_f1":0.375}
{"step":4,"test_accuracy":0.6875,"baseline_naive <Bayes>":0.4375}
)";

TEST(Report, OfScores) {
  const ScratchDir dir;
  dir.write("metrics.jsonl", kScored);
  std::string page = report_html({dir.path()});  // without evaluation.json
  expect_in(page, {"Best validation accuracy", "81.25%", "at step 4", "Validation scores", "the last model",
                   "37.50%", "naive &lt;Bayes&gt;", "43.75%"});
  for (const char* absent : {"Perplexity", "Confusion matrix", ">baseline", ">test accuracy"})
    EXPECT_EQ(page.find(absent), std::string::npos) << absent;
  dir.write("evaluation.json", kScores);
  page = report_html({dir.path()});
  expect_in(page,
            {"the best model", "<td>test</td>", "68.75%", "0.2500", "Confusion matrix (test)",
             "Test accuracy", ">30</text>", ">4</text>", ">6</text>", ">1037</text>", "2 of 3 classes occur",
             "&lt;b&gt; &amp; &#39;x&#39;", "tool found as &lt;b&gt; &amp; &#39;x&#39;: 6 (0.6% of its row)",
             "Mistakes (test)", "1 of 10, the most confident first",
             "title=\"a.tsv:3\">A &lt;hammer&gt;</td><td>tool</td><td>&lt;b&gt; &amp; &#39;x&#39;</td>"
             "<td>0.8750</td>"});
  EXPECT_EQ(page.find("<b>"), std::string::npos);
  EXPECT_EQ(page.find("never"), std::string::npos);
  // Next to another run: a chart for each score.
  std::filesystem::create_directories(dir.path() + "/other");
  dir.write("other/metrics.jsonl", kMetrics);
  page = report_html({dir.path(), dir.path() + "/other"});
  expect_in(page, {"Validation scores: accuracy", "Validation scores: F1", "other", "68.75%"});
}

TEST(Report, TellsLabelSmoothingAndMemory) {
  const ScratchDir dir;
  const auto page = [&](const std::string& lines, const std::string& config) {
    dir.write("metrics.jsonl", lines);
    dir.write("config.toml", config);
    return report_html({dir.path()});
  };
  const std::string steps =
      "{\"step\":1,\"loss\":4.5,\"memory_mb\":60}\n{\"step\":2,\"loss\":4.5,\"valid_loss\":4,\"memory_mb\":"
      "61}\n";
  const std::string smooth = page(steps, "[train]\nlabel_smoothing = 0.1\n");
  expect_in(smooth, {"the training loss includes label smoothing of 0.1", "with label smoothing", "61 MB"});
  EXPECT_EQ(smooth.find("aria-label=\"Memory"), std::string::npos);  // constant: a number is enough
  EXPECT_EQ(page(steps, "[train]\nlabel_smoothing = 0.0\n").find("smoothing of"), std::string::npos);
  expect_in(page("{\"step\":1,\"memory_mb\":60}\n{\"step\":2,\"memory_mb\":90}\n", ""),
            {"aria-label=\"Memory"});
}

TEST(Report, ShowsMistakesOfTagsAndAnswers) {
  const ScratchDir dir;
  dir.write("metrics.jsonl", kScored);
  const auto page = [&](const std::string& mistake) {
    dir.write(
        "evaluation.json",
        R"({"of":"validation","step":4,"scores":{"f1":0.5},"mistaken":1,"mistakes":[)" + mistake + "]}");
    return report_html({dir.path()});
  };
  // A word that truncation removed has no prediction.
  expect_in(page(R"({"place":"a:1","text":"a b","word":"b","true":"X","predicted":null,"probability":0})"),
            {"<th>word</th>", "<td>b</td><td>X</td><td>(truncated)</td>"});
  const std::string long_text(400, 'q');
  const std::string answers = page(R"({"place":"a:1","text":"Who?","second":")" + long_text +
                                   R"(","true":"she","predicted":"he","f1":0.25})");
  expect_in(answers,
            {"those with the lowest F1", "<th>F1</th>", "Who?<br>qqq", "q…</td><td>she</td>", "0.2500"});
  EXPECT_EQ(answers.find("<th>word</th>"), std::string::npos);
}

TEST(Report, OfFolds) {
  const ScratchDir dir;
  for (int fold = 1; fold <= 3; ++fold) {
    const std::string name = fmt::format("fold-{}", fold);
    std::filesystem::create_directories(dir.path() + "/" + name);
    // The third is still running.
    dir.write(name + "/metrics.jsonl",
              fold == 3 ? "{\"step\":2,\"loss\":2.5}\n"
                        : fmt::format("{{\"step\":2,\"loss\":2.5}}\n{{\"step\":4,\"test_accuracy\":{},"
                                      "\"test_matthews\":0.25,\"baseline_naive_bayes\":0.5}}\n",
                                      fold == 1 ? 0.75 : 0.25));
    dir.write(name + "/config.toml", "[data]\nfolds = 3\n");
    if (fold < 3) dir.write(name + "/evaluation.json", kScores);
  }
  const std::string page = report_html({dir.path() + "/"});
  expect_in(page, {"Cross-validation, 3 folds", "baseline: naive Bayes", "75.00%", "25.00%", ">50.00%<",
                   "35.36%", "0.2500", ">mean<", ">deviation<", "Confusion matrix (test, all folds together)",
                   ">2074</text>", "fold-3"});
  expect_in(report_html({dir.path() + "/fold-1"}), {"<h1>fold-1</h1>"});
  write_report(dir.path());
  EXPECT_EQ(read_file(dir.path() + "/report.html"), report_html({dir.path()}));
  // For a missing run, the error lists the existing ones.
  expect_error([&] { report_html({dir.path() + "/fold-7"}); }, {"fold-7", "metrics.jsonl", "fold-1, fold-2"});
  std::filesystem::remove_all(dir.path() + "/fold-1");
  expect_error([&] { report_html({dir.path()}); }, {"metrics.jsonl", "fold-2, fold-3"});
}

TEST(Report, OfDamagedScores) {
  const ScratchDir dir;
  dir.write("metrics.jsonl", kScored);
  const auto refuse = [&](const std::string& from, const std::string& to,
                          std::initializer_list<std::string> parts) {
    std::string damaged = kScores;
    damaged.replace(damaged.find(from), from.size(), to);
    dir.write("evaluation.json", damaged);
    expect_error([&] { report_html({dir.path()}); }, parts);
  };
  refuse("[30,4,", "[30,", {"evaluation.json", "confusion", "3 x 3"});
  refuse("30", "-30", {"evaluation.json", "confusion[0]"});
  refuse("0.6875", "\"a\"", {"evaluation.json", "accuracy"});
  refuse("\"tool\"", "7", {"evaluation.json", "labels[1]"});
  refuse("\"test\"", "3", {"evaluation.json", "of"});
  refuse("}]}", "}]", {"evaluation.json", "JSON"});
  refuse("\"A <hammer>\"", "1", {"evaluation.json", "mistakes[0].text"});
  // Labels alone do not make a heat map.
  dir.write("evaluation.json", R"({"of":"test","step":4,"scores":{"accuracy":0.5},"labels":["a","b"]})");
  EXPECT_EQ(report_html({dir.path()}).find("Confusion matrix"), std::string::npos);
}

// The numbers of the drawn cells, and their positions.
TEST(HeatMap, OfFewAndOfManyClasses) {
  const auto labels = [](size_t n) {
    std::vector<std::string> out;
    for (size_t i = 0; i < n; ++i) out.push_back(fmt::format("class {} of a rather long name", i));
    return out;
  };
  const auto count_of = [](const std::string& text, const std::string& part) {
    size_t n = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
    return n;
  };
  for (const size_t n : {size_t{1}, kMostNumbered, kMostNumbered + 1, kMostDrawn + 50}) {
    std::vector<int64_t> count(n * n);
    for (size_t c = 0; c < n; ++c) count[c * n + c] = 1000 + static_cast<int64_t>(c);
    const std::string svg = draw_confusion("T", labels(n), count);
    const size_t drawn = std::min(n, kMostDrawn);
    EXPECT_EQ(count_of(svg, "<rect class=\"hit\""), drawn) << n;
    EXPECT_EQ(count_of(svg, "class=\"count on\""), n <= kMostNumbered ? n : 0) << n;
    EXPECT_EQ(count_of(svg, "class 0 of a rather lon…"), n <= kMostDrawn ? 2u : 0u) << n;
    EXPECT_EQ(count_of(svg, fmt::format("class {} of a rather", n - 1)), 2 * 2 + 2u)
        << n;  // texts, titles, cell
    EXPECT_EQ(svg.find("100 most frequent of 150") != std::string::npos, n > kMostDrawn) << n;
  }
  EXPECT_EQ(draw_confusion("T", labels(2), {0, 0, 0, 0}), "");
  EXPECT_EQ(draw_confusion("T", {}, {}), "");
  EXPECT_NE(draw_confusion("T", labels(3), {1, 0, 0, 0, 1, 0, 0, 0, 1}).find(") rotate(-90)\" style"),
            std::string::npos);
  const std::string two = draw_confusion("T", {"a", "b"}, {3, 1, 0, 0});
  EXPECT_EQ(two.find(") rotate(-90)\" style"), std::string::npos);  // short names are not rotated
  expect_in(two, {"fill-opacity=\"0.770\"", "fill-opacity=\"0.310\"", "a found as b: 1 (25.0% of its row)"});
}

TEST(Report, OfExtremeNumbers) {
  const ScratchDir dir;
  for (const char* numbers : {"0 0", "1e100 -1e100", "1e16 1.0000000000000002e16", "5e-324 5e-324",
                              "5e-324 1e100", "1e-90 1e90", "-1 -1", "3 3"}) {
    const std::string pair = numbers, first = pair.substr(0, pair.find(' ')),
                      second = pair.substr(pair.find(' ') + 1);
    std::string lines;
    for (const auto& [step, number] : {std::pair(0, first), {1, second}})
      lines += fmt::format(
          "{{\"step\":{0},\"loss\":{1},\"valid_loss\":{1},\"grad_norm\":{1},\"seconds\":{1},\"x\":{1}}}\n",
          step, number);
    dir.write("metrics.jsonl", lines);
    const std::string page = report_html({dir.path()});
    EXPECT_EQ(page.find("nan,"), std::string::npos) << numbers;
    EXPECT_EQ(page.find("\"nan"), std::string::npos) << numbers;
    EXPECT_LT(page.size(), 40'000u) << numbers;
  }
}

TEST(Report, SurvivesDamage) {
  constexpr const char* kPieces[] = {
      "-1",   "0",  "9223372036854775807", "1e99", "1e-320", "1e400", "null", "[]", "{}",
      "\"\"", "\n", "\"step\":",           "\xFF", "0.1"};
  // An integer in place of another value.
  const auto replace_number = [](std::string& s, size_t at, const std::string& piece) {
    const size_t begin = s.find_first_of("0123456789", at);
    if (begin == std::string::npos) return;
    const size_t end = s.find_first_not_of("0123456789.", begin);
    s.replace(begin, end - begin, piece);
  };
  const ScratchDir dir;
  std::mt19937 rng(1);
  int read = 0;
  for (int i = 0; i < 400; ++i) {
    dir.write("metrics.jsonl", testing::mutate(kMetrics, rng, kPieces, replace_number));
    dir.write("config.toml", i % 4 == 0 ? testing::mutate(kConfig, rng, kPieces, replace_number) : kConfig);
    dir.write("evaluation.json",
              i % 4 == 1 ? testing::mutate(kScores, rng, kPieces, replace_number) : kScores);
    try {
      EXPECT_NE(report_html({dir.path()}).find("</html>"), std::string::npos);
      ++read;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(dir.path()), std::string::npos) << e.what();
    }
  }
  EXPECT_GT(read, 30);
  EXPECT_LT(read, 370);
}

TEST(Report, OfARunThatHasNotBegun) {
  const ScratchDir dir;
  dir.write("metrics.jsonl", "");
  expect_in(report_html({dir.path()}), {"No step has been recorded"});
}

TEST(Report, LaysRunsOverEachOther) {
  const ScratchDir dir;
  for (const std::string name : {"one", "two"}) {
    std::filesystem::create_directories(dir.path() + "/" + name);
    dir.write(name + "/metrics.jsonl", kMetrics);
    dir.write(name + "/config.toml", std::string(kConfig) + "seed = " + (name == "one" ? "11" : "22") + "\n");
  }
  const std::string page = report_html({dir.path() + "/one", dir.path() + "/two"});
  expect_in(page, {"2 runs", "one: validation", "two: validation", "Settings that differ",
                   "dashed: validation", "<polyline class=\"s0 marked dashed\"", "<polyline class=\"s1\""});
  const std::string differ = page.substr(page.find("Settings that differ"), 400);
  expect_in(differ, {"train.seed", "11", "22"});
  EXPECT_EQ(differ.substr(0, differ.find("</table>")).find("train.steps"), std::string::npos);
}

TEST(Report, OfALongRunStaysSmall) {
  const ScratchDir dir;
  std::string lines;
  for (int i = 1; i <= 100'000; ++i)
    lines += fmt::format("{{\"step\":{},\"loss\":{:.4f},\"smoothed_loss\":2.5,\"grad_norm\":{:.4f}}}\n", i,
                         2 + std::sin(i * 0.7), 1 + std::cos(i * 1.3));
  for (int i = 0; i < 100; ++i)
    lines += fmt::format("{{\"step\":100000,\"sample\":\"{}\"}}\n", std::string(10'000, 'x'));
  dir.write("metrics.jsonl", lines);
  const std::string page = report_html({dir.path()});
  EXPECT_LT(page.size(), 1'000'000u);
  expect_in(page, {"40 of 100 samples"});
}

}  // namespace
}  // namespace qkv::report_test
