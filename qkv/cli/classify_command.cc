// qkv classify: the class of each line.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "qkv/base/json_value.h"
#include "qkv/cli/command.h"
#include "qkv/cli/encoder_command.h"

namespace qkv {
namespace {

struct ClassifyOptions : EncoderOptions {
  int64_t best = 1;
  double threshold = kApplies;
};

// The columns of a row for its class, or for the next most probable ones.
void set_columns(Prediction& out, int64_t rank, const OrderedJson& label, const OrderedJson& probability) {
  const std::string end = rank > 1 ? fmt::format("_{}", rank) : "";
  out.columns["predicted_label" + end] = label;
  out.columns["probability" + end] = probability;
}

// A line's text, for JSON.
OrderedJson line_of(const InputText& line) {
  OrderedJson out = {{"text", line.text.first}};
  if (!line.text.second.empty()) out["second"] = line.text.second;
  return out;
}

// The most probable labels of a line.
Prediction best_labels(const ClassifyOptions& o, bool rows, const std::vector<std::string>& labels,
                       const InputText& line, const std::vector<double>& p) {
  Prediction out;
  const auto best = std::min<int64_t>(o.best, std::ssize(labels));
  if (p.empty()) {
    out.line = o.json ? "{\"label\":null}\n" : "\n";
    for (int64_t b = 1; b <= best; ++b) set_columns(out, b, nullptr, nullptr);
    return out;
  }
  std::vector<size_t> order(labels.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return p[a] > p[b]; });
  order.resize(static_cast<size_t>(best));
  if (rows) {
    for (int64_t b = 1; b <= best; ++b) set_columns(out, b, labels[order[b - 1]], p[order[b - 1]]);
    return out;
  }
  if (!o.json) {
    std::vector<std::string> found;
    for (const size_t c : order) found.push_back(fmt::format("{}\t{:.4f}", labels[c], p[c]));
    out.line = fmt::format("{}\n", fmt::join(found, "\t"));
    return out;
  }
  OrderedJson json = line_of(line);
  json["label"] = labels[order[0]];
  json["probability"] = p[order[0]];
  if (o.best > 1)
    for (const size_t c : order) json["best"].push_back({{"label", labels[c]}, {"probability", p[c]}});
  out.line = json_line(json);
  return out;
}

// The labels that apply to a line, most probable first.
Prediction applying_labels(const ClassifyOptions& o, const std::vector<std::string>& labels,
                           const InputText& line, const std::vector<double>& p) {
  Prediction out;
  if (p.empty()) {
    out.line = o.json ? "{\"labels\":null}\n" : "\n";
    out.columns["predicted_labels"] = nullptr;
    return out;
  }
  std::vector<size_t> found;
  for (size_t c = 0; c < p.size(); ++c)
    if (p[c] >= o.threshold) found.push_back(c);
  std::ranges::stable_sort(found, [&](size_t a, size_t b) { return p[a] > p[b]; });
  OrderedJson json = line_of(line);
  json["labels"] = OrderedJson::array();
  json["probabilities"] = OrderedJson::object();
  std::vector<std::string> names, text;
  for (const size_t c : found) {
    json["labels"].push_back(labels[c]);
    names.push_back(labels[c]);
    text.push_back(fmt::format("{}\t{:.4f}", labels[c], p[c]));
  }
  for (size_t c = 0; c < p.size(); ++c) json["probabilities"][labels[c]] = p[c];
  out.columns["predicted_labels"] = fmt::format("{}", fmt::join(names, o.columns.label_separator));
  out.line = o.json ? json_line(json) : fmt::format("{}\n", fmt::join(text, "\t"));
  return out;
}

// A line's numbers.
Prediction numbers(const ClassifyOptions& o, const std::vector<std::string>& labels, const InputText& line,
                   const std::vector<double>& values) {
  Prediction out;
  OrderedJson json = line_of(line);
  std::vector<std::string> text;
  for (size_t c = 0; c < labels.size(); ++c) {
    const OrderedJson value = values.empty() ? OrderedJson(nullptr) : OrderedJson(values[c]);
    json[json.contains(labels[c]) ? "predicted_" + labels[c] : labels[c]] = value;
    out.columns["predicted_" + labels[c]] = value;
    if (!values.empty()) text.push_back(fmt::format("{:.4f}", values[c]));
  }
  out.line = o.json ? json_line(json) : fmt::format("{}\n", fmt::join(text, "\t"));
  return out;
}

// Throws UsageError for options that say nothing of this kind of classes.
void expect_fitting(const ClassifyOptions& o, Problem problem) {
  check(problem != Problem::multiple_choice,
        "{}: its model scores a question's choices: qkv choose {} reads them", o.dir, o.dir);
  if (o.given("--best") && problem != Problem::single_label)
    throw UsageError(fmt::format("--best: of models with one label per text; the labels of {} are {}", o.dir,
                                 problem == Problem::regression ? "numbers" : "several (--threshold)"));
  if (o.given("--threshold") && problem != Problem::multi_label)
    throw UsageError(
        fmt::format("--threshold: of models with several labels per text, which {} is not", o.dir));
}

void run_classify(ClassifyOptions o) {
  take_settings_of_run(o, o.dir);
  const bool rows = reads_rows(o);
  const std::vector<TextModel> models = load_encoders(o, Output::sequence_classes, "classify");
  const ModelSpec& spec = models[0].model->spec();
  expect_fitting(o, spec.problem);
  std::vector<int64_t> cut(models.size());
  predict_texts(o, [&](const std::vector<InputText>& lines) {
    std::vector<MeanProbabilities> of_lines(lines.size());
    for (size_t m = 0; m < models.size(); ++m) {
      std::vector<size_t> which;
      const std::vector<EncodedText> texts = encode_texts(o, models[m], lines, which, cut[m]);
      const std::vector<Tensor> scores = class_scores(*models[m].model, texts, o.batch_tokens);
      for (size_t i = 0; i < which.size(); ++i) of_lines[which[i]].add(class_values(spec, scores[i], 0));
    }
    std::vector<Prediction> out(lines.size());
    for (size_t i = 0; i < lines.size(); ++i) {
      const std::vector<double> p = of_lines[i].mean();
      switch (spec.problem) {
        case Problem::single_label:
          out[i] = best_labels(o, rows, spec.labels, lines[i], p);
          break;
        case Problem::multi_label:
          out[i] = applying_labels(o, spec.labels, lines[i], p);
          break;
        case Problem::regression:
        case Problem::multiple_choice:  // rejected above
          out[i] = numbers(o, spec.labels, lines[i], p);
          break;
      }
    }
    return out;
  });
  note_cut(cut, models);
}

}  // namespace

void add_classify_command(Command& app) {
  auto o = std::make_shared<ClassifyOptions>();
  Command* c = app.add_subcommand("classify", "Predict the class of each line");
  o->second = {"second"};
  o->pairs = TextInput::Second::possible;
  add_encoder_options(*c, *o);
  add_ensemble_option(*c, *o);
  c->add_option("--best", o->best, "Number of classes to show per line, most probable first")
      ->show_default()
      ->range(1, 1 << 20);
  c->add_option("--threshold", o->threshold,
                "Models with several labels per text: probability from which a label applies")
      ->show_default()
      ->range(0.0, 1.0);
  c->footer(
      "Prints a class and its probability for each line, divided by tabs; a pair of texts is one line with a "
      "tab\n"
      "between them. A model trained with multi_label prints all labels that apply, one trained with "
      "regression a\n"
      "number. An empty line stays empty. Rows get the columns predicted_label and probability, or "
      "predicted_labels,\n"
      "or predicted_NAME.\n"
      "Examples:\n"
      "  qkv classify runs/trec --file questions.txt\n"
      "  qkv classify runs/trec --file questions.csv --text-column question > predicted.csv");
  c->callback([o] { run_classify(*o); });
}

}  // namespace qkv
