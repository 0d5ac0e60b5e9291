// qkv answer: the answer to each question, as it stands in a text.
#include "qkv/cli/command.h"
#include "qkv/cli/encoder_command.h"

namespace qkv {
namespace {

struct Options : EncoderOptions {
  int64_t longest = 30;
};

void run(const Options& o) {
  const TextModel m = load_encoder(o.dir, o.dtype, {Output::span}, "answer");
  int64_t cut = 0;
  for_lines(o, "question", "context", [&](const std::vector<InputLine>& lines) {
    for (const InputLine& line : lines)
      check(line.text.first.find_first_not_of(" \t") == std::string::npos || !line.text.second.empty(),
            "{}: expected a question, a tab, and the text that has the answer", line.place);
    std::vector<size_t> which;
    const std::vector<EncodedText> texts = encode_lines(o, m, lines, which, cut);
    const std::vector<Tensor> scores = class_scores(*m.model, texts, o.batch_tokens);
    std::vector<std::string> out(lines.size(), o.json ? "{\"answer\":null}\n" : "\n");
    for (size_t i = 0; i < which.size(); ++i) {
      const TextPair& text = lines[which[i]].text;
      const Answer a = best_answer(scores[i], texts[i], text, o.longest);
      if (!o.json) {
        out[which[i]] = a.text + "\n";
        continue;
      }
      const OrderedJson line = {{"question", text.first},
                                {"answer", a.text},
                                {"begin", a.begin},
                                {"end", a.end},
                                {"score", a.score}};
      out[which[i]] = line.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
    }
    return fmt::format("{}", fmt::join(out, ""));
  });
  note_cut(cut, m);
}

}  // namespace

void add_answer_command(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* c = app.add_subcommand("answer", "Find the answer to each question in a text");
  add_encoder_options(*c, *o, "question", "context");
  c->add_option("--longest", o->longest, "Tokens of an answer at most")
      ->capture_default_str()
      ->check(CLI::Range(1, 100000));
  c->footer(
      "A line is a question, a tab, and the text that has its answer.\n"
      "Example: qkv answer runs/answers --file questions.tsv --json");
  c->callback([o] { run(*o); });
}

}  // namespace qkv
