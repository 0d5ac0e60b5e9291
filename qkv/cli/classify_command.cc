// qkv classify: the class of each line.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "qkv/base/json_value.h"
#include "qkv/cli/command.h"
#include "qkv/cli/encoder_command.h"

namespace qkv {
namespace {

struct Options : EncoderOptions {
  int64_t best = 1;
};

// The columns of a row for its class, or for the next most probable ones.
void set_columns(Prediction& out, int64_t rank, const OrderedJson& label, const OrderedJson& probability) {
  const std::string end = rank > 1 ? fmt::format("_{}", rank) : "";
  out.columns["predicted_label" + end] = label;
  out.columns["probability" + end] = probability;
}

void run(Options o) {
  take_settings_of_run(o, o.dir);
  const bool rows = reads_rows(o);
  const std::vector<TextModel> models = load_encoders(o, Output::sequence_classes, "classify");
  const std::vector<std::string>& labels = models[0].model->spec().labels;
  std::vector<int64_t> cut(models.size());
  predict_texts(o, [&](const std::vector<InputText>& lines) {
    std::vector<MeanProbabilities> of_lines(lines.size());
    for (size_t m = 0; m < models.size(); ++m) {
      std::vector<size_t> which;
      const std::vector<EncodedText> texts = encode_texts(o, models[m], lines, which, cut[m]);
      const std::vector<Tensor> scores = class_scores(*models[m].model, texts, o.batch_tokens);
      for (size_t i = 0; i < which.size(); ++i) of_lines[which[i]].add(probabilities_of(scores[i], 0));
    }
    std::vector<Prediction> out(lines.size());
    for (size_t i = 0; i < lines.size(); ++i) {
      const std::vector<double> p = of_lines[i].mean();
      const auto best = std::min<int64_t>(o.best, std::ssize(labels));
      if (p.empty()) {
        out[i].line = o.json ? "{\"label\":null}\n" : "\n";
        for (int64_t b = 1; b <= best; ++b) set_columns(out[i], b, nullptr, nullptr);
        continue;
      }
      std::vector<size_t> order(labels.size());
      std::iota(order.begin(), order.end(), size_t{0});
      std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return p[a] > p[b]; });
      order.resize(static_cast<size_t>(best));
      if (rows) {
        for (int64_t b = 1; b <= best; ++b) set_columns(out[i], b, labels[order[b - 1]], p[order[b - 1]]);
        continue;
      }
      if (!o.json) {
        std::vector<std::string> found;
        for (const size_t c : order) found.push_back(fmt::format("{}\t{:.4f}", labels[c], p[c]));
        out[i].line = fmt::format("{}\n", fmt::join(found, "\t"));
        continue;
      }
      OrderedJson line = {{"text", lines[i].text.first}};
      if (!lines[i].text.second.empty()) line["second"] = lines[i].text.second;
      line["label"] = labels[order[0]];
      line["probability"] = p[order[0]];
      if (o.best > 1)
        for (const size_t c : order) line["best"].push_back({{"label", labels[c]}, {"probability", p[c]}});
      out[i].line = json_line(line);
    }
    return out;
  });
  note_cut(cut, models);
}

}  // namespace

void add_classify_command(Command& app) {
  auto o = std::make_shared<Options>();
  Command* c = app.add_subcommand("classify", "Predict the class of each line");
  o->second = {"second"};
  o->pairs = TextInput::Second::possible;
  add_encoder_options(*c, *o);
  add_ensemble_option(*c, *o);
  c->add_option("--best", o->best, "Number of classes to show per line, most probable first")
      ->show_default()
      ->range(1, 1 << 20);
  c->footer(
      "Prints a class and its probability for each line, divided by tabs; a pair of texts is one line with a "
      "tab\n"
      "between them. An empty line stays empty. Rows get the columns predicted_label and probability.\n"
      "Examples:\n"
      "  qkv classify runs/trec --file questions.txt\n"
      "  qkv classify runs/trec --file questions.csv --text-column question > predicted.csv");
  c->callback([o] { run(*o); });
}

}  // namespace qkv
