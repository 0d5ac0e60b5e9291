// qkv tag: a tag for each word of each line.
#include <algorithm>
#include <sstream>

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
  const TextModel m = load_encoder(o.dir, o.dtype, {Output::token_classes}, "tag");
  const std::vector<std::string>& labels = m.model->spec().labels;
  int64_t cut = 0;
  for_lines(o, "text", "", [&](std::vector<InputLine> lines) {
    std::vector<std::vector<std::string>> words;
    for (InputLine& line : lines) {  // with one space between words, as the model saw them
      words.push_back(words_of(line.text.first));
      line.text.first = fmt::format("{}", fmt::join(words.back(), " "));
    }
    std::vector<size_t> which;
    const std::vector<EncodedText> texts = encode_lines(o, m, lines, which, cut);
    const std::vector<Tensor> scores = class_scores(*m.model, texts, o.batch_tokens);
    std::vector<std::vector<std::string>> tags(lines.size());
    std::vector<std::vector<double>> sure(lines.size());
    for (size_t i = 0; i < which.size(); ++i)
      for (const int64_t row : first_tokens(texts[i].encoding, words[which[i]])) {
        if (row < 0) {  // cut away
          tags[which[i]].emplace_back("_");
          sure[which[i]].push_back(0);
          continue;
        }
        const std::vector<double> p = probabilities_of(scores[i], row);
        const auto best = std::max_element(p.begin(), p.end());
        tags[which[i]].push_back(labels[best - p.begin()]);
        sure[which[i]].push_back(*best);
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
  note_cut(cut, m);
}

}  // namespace

void add_tag_command(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* c = app.add_subcommand("tag", "Tag the words of each line");
  add_encoder_options(*c, *o, "text", "");
  c->add_flag("--columns", o->columns,
              "A word and its tag a line, an empty line after each sentence (CoNLL)");
  c->footer(
      "Words are what stands between spaces. Words beyond the model's length are tagged \"_\".\n"
      "Example: echo 'show me the flights' | qkv tag runs/pos");
  c->callback([o] { run(*o); });
}

}  // namespace qkv
