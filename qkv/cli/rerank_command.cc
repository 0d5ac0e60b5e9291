// qkv rerank: lines in the order in which a classifier of pairs finds them relevant to a query.
#include "qkv/base/json_value.h"
#include "qkv/cli/command.h"
#include "qkv/cli/console.h"
#include "qkv/cli/encoder_command.h"

namespace qkv {
namespace {

struct RerankOptions : EncoderOptions {
  std::string query;
  int64_t best = 0;  // 0: all
};

// The class that means relevant: the only one, or the second of two.
size_t relevant_class(const std::string& dir, const ModelSpec& spec) {
  const auto classes = static_cast<size_t>(spec.classes());
  check(classes == 1 || classes == 2,
        "{}: it has {} classes: a cross-encoder with one, or with two of which the second is relevant, is "
        "needed",
        dir, classes);
  return classes - 1;
}

void run_rerank(RerankOptions o) {
  check(!is_blank(o.query), "--query: expected a text, it is empty");
  take_settings_of_run(o, o.dir);
  const TextModel m = load_encoder(o.dir, o.dtype, {Output::sequence_classes}, "rerank");
  const size_t relevant = relevant_class(o.dir, m.model->spec());
  int64_t cut = 0;
  RankedLines ranked;
  o.silent = true;  // the lines are printed at the end, in order
  predict_texts(o, [&](const std::vector<InputText>& lines) {
    std::vector<InputText> pairs = lines;
    for (InputText& line : pairs)
      if (!is_blank(line.text.first)) line.text = {o.query, line.text.first};
    std::vector<size_t> which;
    const std::vector<EncodedText> texts = encode_texts(o, m, pairs, which, cut);
    const std::vector<Tensor> scores = class_scores(*m.model, texts, o.batch_tokens);
    for (size_t i = 0; i < which.size(); ++i)
      ranked.add(class_values(m.model->spec(), scores[i], 0)[relevant], lines[which[i]].text.first);
    return std::vector<Prediction>(lines.size());
  });
  ranked.print_best(o.best, "score", o.json);
  note_cut(cut, m);
}

}  // namespace

void add_rerank_command(Command& app) {
  auto o = std::make_shared<RerankOptions>();
  Command* c = app.add_subcommand("rerank", "Order lines by their relevance to a query (cross-encoder)");
  add_encoder_options(*c, *o);
  c->add_option("--query", o->query, "Question or search that the lines should answer")->required();
  c->add_option("--best", o->best, "Number of lines to print (default: all)")->range(1, 1 << 30);
  c->footer(
      "The model reads the query and a line as a pair. Its score is the probability of its only class, or "
      "of\n"
      "the second of two. Search many lines with qkv embed first, then rerank the best of them.\n"
      "Example: qkv rerank ms-marco-MiniLM-L6-v2 --query 'how do bees fly' --file found.txt --best 3");
  c->callback([o] { run_rerank(*o); });
}

}  // namespace qkv
