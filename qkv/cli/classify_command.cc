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

void run(const Options& o) {
  const std::vector<TextModel> models = load_encoders(o, Output::sequence_classes, "classify");
  const std::vector<std::string>& labels = models[0].model->spec().labels;
  std::vector<int64_t> cut(models.size());
  for_lines(o, "text", "second", [&](const std::vector<InputLine>& lines) {
    std::vector<MeanProbabilities> of_lines(lines.size());
    for (size_t m = 0; m < models.size(); ++m) {
      std::vector<size_t> which;
      const std::vector<EncodedText> texts = encode_lines(o, models[m], lines, which, cut[m]);
      const std::vector<Tensor> scores = class_scores(*models[m].model, texts, o.batch_tokens);
      for (size_t i = 0; i < which.size(); ++i) of_lines[which[i]].add(probabilities_of(scores[i], 0));
    }
    std::string out;
    for (size_t i = 0; i < lines.size(); ++i) {
      const std::vector<double> p = of_lines[i].mean();
      if (p.empty()) {
        out += o.json ? "{\"label\":null}\n" : "\n";
        continue;
      }
      std::vector<size_t> order(labels.size());
      std::iota(order.begin(), order.end(), size_t{0});
      std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return p[a] > p[b]; });
      order.resize(std::min(order.size(), static_cast<size_t>(o.best)));
      if (!o.json) {
        std::vector<std::string> found;
        for (const size_t c : order) found.push_back(fmt::format("{}\t{:.4f}", labels[c], p[c]));
        out += fmt::format("{}\n", fmt::join(found, "\t"));
        continue;
      }
      OrderedJson line = {{"text", lines[i].text.first}};
      if (!lines[i].text.second.empty()) line["second"] = lines[i].text.second;
      line["label"] = labels[order[0]];
      line["probability"] = p[order[0]];
      if (o.best > 1)
        for (const size_t c : order) line["best"].push_back({{"label", labels[c]}, {"probability", p[c]}});
      out += line.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
    }
    return out;
  });
  note_cut(cut, models);
}

}  // namespace

void add_classify_command(Command& app) {
  auto o = std::make_shared<Options>();
  Command* c = app.add_subcommand("classify", "Tell the class of each line");
  add_encoder_options(*c, *o, "text", "second");
  add_ensemble_option(*c, *o);
  c->add_option("--best", o->best, "Classes of each line, most probable first")
      ->show_default()
      ->range(1, 1 << 20);
  c->footer(
      "Prints a class and its probability for each line, divided by tabs; a pair of texts is one line with a "
      "tab\n"
      "between them. An empty line stays empty.\nExample: qkv classify runs/trec --file questions.txt");
  c->callback([o] { run(*o); });
}

}  // namespace qkv
