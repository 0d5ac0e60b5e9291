// qkv answer: the answer to each question, as it stands in a text.
#include <fmt/format.h>

#include "qkv/base/json_value.h"
#include "qkv/cli/command.h"
#include "qkv/cli/console.h"
#include "qkv/cli/encoder_command.h"

namespace qkv {
namespace {

struct AnswerOptions : EncoderOptions {
  int64_t longest = 30;
};

void run_answer(AnswerOptions o) {
  take_settings_of_run(o, o.dir);
  const bool rows = reads_rows(o);
  const std::vector<TextModel> models = load_encoders(o, Output::span, "answer");
  std::vector<int64_t> cut(models.size());
  predict_texts(o, [&](const std::vector<InputText>& lines) {
    for (const InputText& line : lines)
      check(line.text.first.find_first_not_of(" \t") == std::string::npos || !line.text.second.empty(),
            "{}: expected a question, a tab, and the text that has the answer", line.place);
    std::vector<size_t> which;
    const std::vector<EncodedText> texts = encode_texts(o, models[0], lines, which, cut[0]);
    std::vector<std::vector<Tensor>> all = {class_scores(*models[0].model, texts, o.batch_tokens)};
    for (size_t m = 1; m < models.size(); ++m) {
      std::vector<size_t> same;
      const std::vector<EncodedText> its = encode_texts(o, models[m], lines, same, cut[m]);
      for (size_t i = 0; i < which.size(); ++i)
        check(its[i].encoding.ids == texts[i].encoding.ids,
              "{}: it reads other tokens than {}: models of an ensemble share a tokenizer and a context",
              o.ensemble[m - 1], o.dir);
      all.push_back(class_scores(*models[m].model, its, o.batch_tokens));
    }
    const Prediction none{o.json ? "{\"answer\":null}\n" : "\n",
                          {{"predicted_answer", nullptr}, {"score", nullptr}}};
    std::vector<Prediction> out(lines.size(), none);
    for (size_t i = 0; i < which.size(); ++i) {
      const TextPair& text = lines[which[i]].text;
      std::vector<Tensor> scores;
      for (const std::vector<Tensor>& of_model : all) scores.push_back(of_model[i]);
      const Answer a = best_answer(span_scores(scores), texts[i], text, o.longest);
      if (rows)
        out[which[i]].columns = {{"predicted_answer", a.text}, {"score", a.score}};
      else if (o.json)
        out[which[i]].line = json_line({{"question", text.first},
                                        {"answer", a.text},
                                        {"begin", a.begin},
                                        {"end", a.end},
                                        {"score", a.score}});
      else
        out[which[i]].line = one_line(a.text) + "\n";
    }
    return out;
  });
  note_cut(cut, models);
}

}  // namespace

void add_answer_command(Command& app) {
  auto o = std::make_shared<AnswerOptions>();
  Command* c = app.add_subcommand("answer", "Find answers to questions in given texts");
  o->objective = Objective::answer;
  o->first = {"question", "text"};
  o->second = {"context"};
  o->pairs = TextInput::Second::needed;
  add_encoder_options(*c, *o);
  add_ensemble_option(*c, *o);
  c->add_option("--longest", o->longest, "Maximum length of an answer in tokens")
      ->show_default()
      ->range(1, 100000);
  c->footer(
      "A line is a question, a tab, and the text that has its answer. With --json, begin and end are bytes "
      "of that text. Rows get the columns predicted_answer and score.\n"
      "Example: qkv answer runs/answers --file questions.tsv --json");
  c->callback([o] { run_answer(*o); });
}

}  // namespace qkv
