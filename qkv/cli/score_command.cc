// qkv score: which of several continuations a model holds most likely.

#include "qkv/api/text_model.h"
#include "qkv/base/json_value.h"
#include "qkv/cli/command.h"
#include "qkv/cli/console.h"
#include "qkv/cli/model_notes.h"
#include "qkv/infer/few_shot.h"
#include "qkv/infer/score.h"

namespace qkv {
namespace {

struct ScoreOptions {
  std::string dir, prompt, file, examples, by = "sum", dtype = "f32";
  std::vector<std::string> choices;
  bool has_prompt = false, json = false, verify = false;
};

struct ScoreQuestion {
  std::string prompt;
  std::vector<std::string> choices;
};

size_t best_of(const std::vector<ChoiceScore>& scores, const std::string& by) {
  const auto value = [&](const ChoiceScore& s) {
    return by == "token" ? s.per_token() : by == "byte" ? s.per_byte() : s.log_p;
  };
  size_t best = 0;
  for (size_t i = 1; i < scores.size(); ++i)
    if (value(scores[i]) > value(scores[best])) best = i;
  return best;
}

std::string line_of(const ScoreQuestion& q, const std::vector<ChoiceScore>& scores, const ScoreOptions& o) {
  OrderedJson choices = OrderedJson::array();
  for (size_t i = 0; i < scores.size(); ++i) {
    const ChoiceScore& s = scores[i];
    choices.push_back({{"choice", q.choices[i]},
                       {"logprob", s.log_p},
                       {"per_token", s.per_token()},
                       {"per_byte", s.per_byte()},
                       {"tokens", s.tokens}});
    if (!o.verify) continue;
    OrderedJson& choice = choices.back();
    choice["accepted"] = s.accepted;
    choice["accepted_text"] = s.accepted_text;
    choice["instead"] = s.accepted < s.tokens ? OrderedJson(s.instead) : OrderedJson();
  }
  const size_t best = best_of(scores, o.by);
  const OrderedJson line = {
      {"prompt", q.prompt}, {"choices", choices}, {"best", best}, {"best_choice", q.choices[best]}};
  return line.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

std::string quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

// How much of each choice greedy decoding would write.
std::string verdict_of(const std::vector<ChoiceScore>& scores) {
  std::string out;
  for (const ChoiceScore& s : scores)
    out += s.accepted == s.tokens ? fmt::format("all {} tokens accepted\n", s.tokens)
                                  : fmt::format("{} of {} tokens accepted: {}, then {} instead\n", s.accepted,
                                                s.tokens, quoted(s.accepted_text), quoted(s.instead));
  return out;
}

std::string table_of(const ScoreQuestion& q, const std::vector<ChoiceScore>& scores, const ScoreOptions& o) {
  std::string out = "       log P   per token    per byte  tokens  choice\n";
  const size_t best = best_of(scores, o.by);
  for (size_t i = 0; i < scores.size(); ++i)
    out += fmt::format("{} {:10.4f}  {:10.4f}  {:10.4f}  {:6}  {}\n", i == best ? '*' : ' ', scores[i].log_p,
                       scores[i].per_token(), scores[i].per_byte(), scores[i].tokens, quoted(q.choices[i]));
  return o.verify ? out + verdict_of(scores) : out;
}

ScoreQuestion parse_question(const Json& value, const std::string& place) {
  static constexpr std::string_view kKeys[] = {"prompt", "choices"};
  const JsonField line(value, place);
  line.expect_keys(kKeys);
  ScoreQuestion q{line["prompt"].string(), {}};
  const JsonField choices = line["choices"];
  for (size_t i = 0; i < choices.size(); ++i) q.choices.push_back(choices.at(i).string());
  check(!q.choices.empty(), "{}: choices: is empty", place);
  return q;
}

void run_score(const ScoreOptions& o) {
  if (o.has_prompt && o.choices.empty()) throw UsageError("--choice: missing: name the alternatives");
  if (!o.has_prompt && !o.choices.empty())
    throw UsageError("--prompt: missing: --choice names its continuations");
  const TextModel m = load_language_model(o.dir, compute_type(o.dtype));
  print_model_notes(o.dir, *m.model);
  const FewShot examples = o.examples.empty() ? FewShot{} : read_few_shot(o.examples);
  std::vector<int32_t> excluded = m.tokenizer.ids_without_text(m.model->spec().vocab_size);
  for (const int32_t id : m.generation.drawing.eos) std::erase(excluded, id);
  const auto score = [&](const ScoreQuestion& q) {
    const std::string prompt = o.examples.empty() ? q.prompt : examples.prompt(q.prompt);
    return score_choices(*m.model, m.tokenizer, prompt, q.choices, m.special.bos, excluded);
  };
  if (o.has_prompt) {
    const ScoreQuestion q{o.prompt, o.choices};
    return print(o.json ? line_of(q, score(q), o) : table_of(q, score(q), o));
  }
  read_json_lines(o.file, [&](const Json& value, const std::string& place) {
    const ScoreQuestion q = parse_question(value, place);
    const auto scores = naming_place(place, [&] { return score(q); });
    print(line_of(q, scores, o));
  });
}

constexpr const char* kScoreFooter =
    R"(Prints log P(choice | prompt), the sum over the choice's tokens (natural logarithm), also divided by its tokens
and by its bytes, and marks the best. A choice's tokens are those of prompt and choice together from where they
part from the prompt's own: where the tokenizer joins the prompt's end with the choice's beginning, the joint
token counts as the choice's. A choice that is a word begins with a space as a rule, and the prompt ends
without one.

Without --prompt, questions are read as JSON lines, {"prompt": "...", "choices": ["...", "..."]}, and answered
as JSON lines.

--verify also says how many first tokens of each choice greedy decoding would write (qkv generate --temperature 0,
without penalties or rules of generation_config.json), and the token that it would write then. It takes one pass.

--examples FILE puts solved examples before each prompt: see qkv generate --help. The choices are then what
may stand for {output}.

Examples:
  qkv score gpt2 --prompt "The capital of France is" --choice " Paris" --choice " Rome"
  qkv score gpt2 --prompt Spain --choice Madrid --choice Lisbon --examples examples/capitals.toml
  qkv score gpt2 --prompt "1 2 3 4" --choice " 5 6 7 9" --verify
  qkv score gpt2 --file questions.jsonl > answers.jsonl)";

}  // namespace

void add_score_command(Command& app) {
  auto o = std::make_shared<ScoreOptions>();
  Command* c = app.add_subcommand("score", "Compare continuations of a prompt by their probability");
  c->add_option("DIR", o->dir, "Model directory or run")->required();
  auto* prompt = c->add_option("--prompt", o->prompt, "Text that the choices continue");
  c->add_option("--choice", o->choices, "A possible continuation (repeatable)")->one_value();
  c->add_option("--file", o->file, "Questions in JSON lines (default: standard input)")->excludes(prompt);
  c->add_option("--examples", o->examples, "File with solved examples to put before each prompt");
  c->add_option("--by", o->by, "Choose the best by log-probability: its sum, per token or per byte")
      ->show_default()
      ->one_of({"sum", "token", "byte"});
  c->add_option("--dtype", o->dtype, "Precision of matrix products: f32 or bf16")
      ->show_default()
      ->one_of({"f32", "bf16"});
  c->add_flag("--json", o->json, "Print one JSON object");
  c->add_flag("--verify", o->verify, "Show how much of each choice greedy decoding would write");
  c->footer(kScoreFooter);
  c->callback([o, prompt] {
    o->has_prompt = prompt->count() > 0;
    run_score(*o);
  });
}

}  // namespace qkv
