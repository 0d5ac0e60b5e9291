// qkv tag: a tag for each word of each line.
#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "qkv/base/json_value.h"
#include "qkv/cli/command.h"
#include "qkv/cli/encoder_command.h"

namespace qkv {
namespace {

struct Options : EncoderOptions {
  bool columns = false;
};

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> words;
  for (std::string w; in >> w;) words.push_back(w);
  return words;
}

void run(const Options& o) {
  const std::vector<TextModel> models = load_encoders(o, Output::token_classes, "tag");
  const std::vector<std::string>& labels = models[0].model->spec().labels;
  std::vector<int64_t> cut(models.size());
  for_lines(o, "text", "", [&](std::vector<InputLine> lines) {
    std::vector<std::vector<std::string>> words;
    for (InputLine& line : lines) {  // with one space between words, as the model saw them
      words.push_back(words_of(line.text.first));
      line.text.first = fmt::format("{}", fmt::join(words.back(), " "));
    }
    std::vector<std::vector<MeanProbabilities>> of_words(lines.size());  // of models that read the word
    for (size_t i = 0; i < lines.size(); ++i) of_words[i].resize(words[i].size());
    for (size_t m = 0; m < models.size(); ++m) {
      std::vector<size_t> which;
      const std::vector<EncodedText> texts = encode_lines(o, models[m], lines, which, cut[m]);
      const std::vector<Tensor> scores = class_scores(*models[m].model, texts, o.batch_tokens);
      for (size_t i = 0; i < which.size(); ++i) {
        const std::vector<int64_t> rows = first_tokens(texts[i].encoding, words[which[i]]);
        for (size_t w = 0; w < rows.size(); ++w)
          if (rows[w] >= 0) of_words[which[i]][w].add(probabilities_of(scores[i], rows[w]));
      }
    }
    std::vector<std::vector<std::string>> tags(lines.size());
    std::vector<std::vector<double>> sure(lines.size());
    for (size_t i = 0; i < lines.size(); ++i)
      for (const MeanProbabilities& of_word : of_words[i]) {
        const std::vector<double> p = of_word.mean();
        const auto best = std::max_element(p.begin(), p.end());
        tags[i].push_back(p.empty() ? "_" : labels[best - p.begin()]);  // cut away
        sure[i].push_back(p.empty() ? 0 : *best);
      }
    std::string out;
    for (size_t i = 0; i < lines.size(); ++i) {
      if (o.json) {
        const OrderedJson line = {{"words", words[i]}, {"tags", tags[i]}, {"probabilities", sure[i]}};
        out += line.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
        continue;
      }
      for (size_t w = 0; w < words[i].size(); ++w)
        out += o.columns ? fmt::format("{}\t{}\n", words[i][w], tags[i][w])
                         : fmt::format("{}{}/{}", w > 0 ? " " : "", words[i][w], tags[i][w]);
      out += "\n";
    }
    return out;
  });
  note_cut(cut, models);
}

}  // namespace

void add_tag_command(Command& app) {
  auto o = std::make_shared<Options>();
  Command* c = app.add_subcommand("tag", "Tag the words of each line");
  add_encoder_options(*c, *o, "text", "");
  add_ensemble_option(*c, *o);
  c->add_flag("--columns", o->columns, "A word and its tag a line, an empty line after each sentence (CoNLL)")
      ->excludes("--json");
  c->footer(
      "Words are what stands between spaces. Words beyond the model's length are tagged \"_\".\n"
      "Example: echo 'show me the flights' | qkv tag runs/pos");
  c->callback([o] { run(*o); });
}

}  // namespace qkv
