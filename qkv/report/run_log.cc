#include "qkv/report/run_log.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <sstream>

#include "qkv/base/error.h"
#include "qkv/base/file.h"
#include "qkv/base/json.h"
#include "qkv/base/json_value.h"
#include "qkv/io/container/safetensors.h"

namespace qkv {
namespace {

// No run exceeds these limits; beyond them, steps would not be exact as double, and values could not be
// drawn.
constexpr int64_t kMostSteps = int64_t{1} << 53;
constexpr double kLargest = 1e100;

void add_record(RunLog& run, const JsonField& record) {
  const int64_t step = record["step"].integer(0, kMostSteps);
  if (step < run.step)
    record["step"].refuse(fmt::format("at least {}, the step of the record before", run.step));
  run.step = step;
  for (const auto& [name, value] : record.object().items())
    if (value.is_number() && name != "step") {
      const double number = record[name].number();
      if (std::abs(number) > kLargest) record[name].refuse(fmt::format("a number up to {}", kLargest));
      run.series[name].push_back({static_cast<double>(step), number});
    }
  if (const auto sample = record.find("sample"))
    run.samples.push_back({step, record.string_or("prompt", ""), sample->string()});
}

void read_metrics(RunLog& run, const std::string& path) {
  const std::string contents = read_file(path);
  int line_number = 0;
  for (size_t begin = 0, end; (end = contents.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string place = fmt::format("{}:{}", path, ++line_number);
    const Json json = parse_json(std::string_view(contents).substr(begin, end - begin), place);
    add_record(run, JsonField(json, place + ": record"));
  }
}

RunScores read_scores(const std::string& path) {
  const Json json = parse_json(read_file(path), path);
  const JsonField root(json, path + ": evaluation");
  RunScores out;
  out.of = root["of"].string();
  out.step = root["step"].integer(0, kMostSteps);
  const JsonField scores = root["scores"];
  for (const auto& [name, value] : scores.object().items()) {
    const double score = scores[name].number();
    if (std::abs(score) > kLargest) scores[name].refuse(fmt::format("a number up to {}", kLargest));
    out.scores.emplace_back(name, score);
  }
  if (const auto labels = root.find("labels"))
    for (size_t i = 0; i < labels->size(); ++i) out.labels.push_back(labels->at(i).string());
  if (const auto counts = root.find("confusion")) {
    if (counts->size() != out.labels.size() * out.labels.size())
      counts->refuse(fmt::format("{0} x {0} counts, as there are labels", out.labels.size()));
    for (size_t i = 0; i < counts->size(); ++i) out.confusion.push_back(counts->at(i).integer(0, kMostSteps));
  }
  if (const auto mistakes = root.find("mistakes")) {
    out.mistaken = root["mistaken"].integer(0, kMostSteps);
    out.mistakes = read_mistakes(*mistakes);
  }
  return out;
}

// A trace's roles, and the JSON of its pictures if they are wanted, which a script will read.
RunTrace read_trace(const std::string& path, bool pictures) {
  const Json json = parse_json(read_file(path), path);
  const JsonField root(json, path + ": trace");
  RunTrace out;
  out.step = root["step"].integer(0, kMostSteps);
  const JsonField roles = root["roles"];
  for (const auto& [head, value] : roles.object().items()) {
    const JsonField shares = roles[head];
    for (const auto& [role, share] : shares.object().items()) out.roles[head][role] = shares[role].number();
  }
  if (!pictures) return out;
  const JsonField tokens = root["tokens"], attention = root["attention"], lens = root["lens"];
  for (size_t t = 0; t < tokens.size(); ++t) tokens.at(t)["piece"].string();
  for (size_t i = 0; i < attention.size(); ++i) {
    const JsonField set = attention.at(i);
    int64_t heads = 0;
    for (const int64_t n : set["layers"].integers(0, 1 << 20)) heads += n;
    const auto bytes =
        static_cast<size_t>(heads * set["queries"].integer(1, 1 << 12) * set["keys"].integer(1, 1 << 12));
    if (set["numbers"].integers(0, 1 << 20).size() != set["layers"].size())
      set["numbers"].refuse("as many numbers as layers");
    if (set["data"].string().size() != (bytes + 2) / 3 * 4)
      set["data"].refuse(fmt::format("{} bytes in base 64", bytes));
  }
  for (size_t l = 0; l < lens.size(); ++l)
    for (size_t t = 0; t < lens.at(l).size(); ++t)
      for (size_t k = 0; k < lens.at(l).at(t).size(); ++k) {
        const JsonField best = lens.at(l).at(t).at(k);
        if (best.size() != 2) best.refuse("a token and its probability");
        best.at(0).string();
        best.at(1).number();
      }
  const OrderedJson shown = {
      {"step", out.step}, {"tokens", tokens.json()}, {"attention", attention.json()}, {"lens", lens.json()}};
  out.json = shown.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  return out;
}

// All traces of a run; the pictures of as many, spread evenly, as a page has room for.
std::vector<RunTrace> read_traces(const std::string& folder) {
  constexpr size_t kMostBytes = 2 << 20;
  namespace fs = std::filesystem;
  std::vector<std::string> paths;
  if (!fs::is_directory(folder)) return {};
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_regular_file() && name.starts_with("step-") && name.ends_with(".json"))
      paths.push_back(entry.path().string());
  }
  std::ranges::sort(paths);
  size_t largest = 1;
  for (const std::string& path : paths) largest = std::max<size_t>(largest, fs::file_size(path));
  const size_t shown = std::clamp<size_t>(kMostBytes / largest, 1, std::max<size_t>(1, paths.size()));
  std::vector<RunTrace> out;
  for (size_t i = 0, next = 0; i < paths.size(); ++i) {
    const bool pictures = shown == 1 ? i + 1 == paths.size() : i == next * (paths.size() - 1) / (shown - 1);
    next += pictures;
    out.push_back(read_trace(paths[i], pictures));
  }
  return out;
}

// The value as in TOML; numbers in the shortest form that reads back.
std::string text_of(const toml::node& node) {
  if (const auto* number = node.as_floating_point()) return fmt::format("{}", number->get());
  std::ostringstream out;
  node.visit([&](const auto& value) { out << value; });
  return out.str();
}

// Appends the settings in `table` in the order of the file.
void add_settings(RunLog& run, const toml::table& table, const std::string& prefix) {
  std::vector<std::pair<toml::source_position, const toml::key*>> keys;
  for (const auto& [key, node] : table) keys.emplace_back(node.source().begin, &key);
  std::stable_sort(keys.begin(), keys.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [place, key] : keys) {
    const toml::node& node = *table.get(key->str());
    const std::string name = prefix + std::string(key->str());
    if (const toml::table* inner = node.as_table()) {
      add_settings(run, *inner, name + ".");
      continue;
    }
    run.settings.emplace_back(name, text_of(node));
  }
}

void read_settings(RunLog& run, const std::string& path) {
  try {
    add_settings(run, toml::parse(read_file(path), path), "");
  } catch (const toml::parse_error& e) {
    fail("{}:{}: {}", path, e.source().begin.line, e.description());
  }
}

int64_t count_parameters(const std::string& run_dir) {
  int64_t count = 0;
  for (const char* model : {"/best/model.safetensors", "/last/model.safetensors"}) {
    if (!file_exists(run_dir + model)) continue;
    for (const auto& [name, tensor] : read_safetensors(run_dir + model).tensors) count += tensor.count();
    break;
  }
  return count;
}

// "seconds" counts from the start of a session; when it decreases, a new session began.
double total_seconds(const std::vector<Point>& seconds) {
  double total = 0, before = 0;
  for (const Point& p : seconds) {
    total += p.y < before ? p.y : p.y - before;
    before = p.y;
  }
  return std::clamp(total, 0.0, 1e12);  // a damaged file may hold any number
}

// The runs in a folder that is not a run, or else beside it: " (runs/x holds the runs fold-1, fold-2)".
std::string runs_near(const std::string& dir) {
  constexpr size_t kMost = 8;
  namespace fs = std::filesystem;
  for (const fs::path& folder : {fs::path(dir), fs::path(dir).parent_path()}) {
    std::error_code error;
    std::vector<std::string> runs;
    for (const auto& entry : fs::directory_iterator(folder, error))
      if (fs::exists(entry.path() / "metrics.jsonl", error)) runs.push_back(entry.path().filename().string());
    if (runs.empty()) continue;
    std::ranges::sort(runs);
    const bool more = runs.size() > kMost;
    runs.resize(std::min(runs.size(), kMost));
    return fmt::format(" ({} holds the runs {}{})", folder.string(), fmt::join(runs, ", "),
                       more ? ", ..." : "");
  }
  return "";
}

}  // namespace

const std::vector<Point>* RunLog::find(const std::string& field) const {
  const auto it = series.find(field);
  return it == series.end() ? nullptr : &it->second;
}

std::string RunLog::setting(const std::string& key, const std::string& otherwise) const {
  for (const auto& [name, value] : settings)
    if (name == key) return value;
  return otherwise;
}

RunLog read_run_log(const std::string& run_dir, bool traces) {
  RunLog run;
  run.dir = run_dir;
  while (run.dir.size() > 1 && run.dir.back() == '/') run.dir.pop_back();
  const std::string metrics = run.dir + "/metrics.jsonl", config = run.dir + "/config.toml",
                    evaluation = run.dir + "/evaluation.json";
  if (!file_exists(metrics)) fail("{}: not a run: it has no metrics.jsonl{}", run.dir, runs_near(run.dir));
  read_metrics(run, metrics);
  if (file_exists(config)) read_settings(run, config);
  if (file_exists(evaluation)) run.best = read_scores(evaluation);
  if (traces) run.traces = read_traces(run.dir + "/traces");
  run.parameters = count_parameters(run.dir);
  if (const auto* seconds = run.find("seconds")) run.seconds = total_seconds(*seconds);
  return run;
}

}  // namespace qkv
