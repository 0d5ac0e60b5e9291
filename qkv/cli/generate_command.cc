// qkv generate: text that continues a prompt.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <random>

#include "qkv/api/text_model.h"
#include "qkv/base/json_value.h"
#include "qkv/base/progress.h"
#include "qkv/cli/command.h"
#include "qkv/cli/console.h"
#include "qkv/cli/draft_options.h"
#include "qkv/cli/generation_options.h"
#include "qkv/cli/model_notes.h"
#include "qkv/cli/questions.h"
#include "qkv/infer/few_shot.h"
#include "qkv/infer/generate.h"
#include "qkv/infer/log_prob.h"
#include "qkv/infer/vote.h"
#include "qkv/io/adapter_dir.h"
#include "qkv/io/model_dir.h"
#include "qkv/text/stop_strings.h"
#include "qkv/train/config/config.h"
#include "qkv/train/corpora/corpus.h"

namespace qkv {
namespace {

struct GenerateCommandOptions {
  std::string dir, prompt, file, examples, vote, dtype = "auto", prompt_cache;
  std::vector<std::string> stops, ensemble, ids, suppressed;
  int64_t alternatives = 0;  // number to show for each token, with log-probabilities
  bool has_prompt = false, no_prompt_echo = false, no_stop = false, has_seed = false, has_log_probs = false,
       json = false;
  GenerationOptions options;
  DraftOptions draft;
  GenerationSettings generation = {};  // set by resolve_generation()
};

// A token as --logprobs shows it. Its text is null if the tokenizer does not have the id.
struct ShownToken {
  int32_t id;
  double log_p;
  Json text;
};

struct ChosenToken {
  ShownToken chosen;
  std::vector<ShownToken> alternatives;
};

// `context`: the preceding tokens, which decide whether its text begins with a space.
ShownToken shown_token(const text::Tokenizer& tokenizer, std::span<const int32_t> context, int32_t id,
                       double log_p) {
  constexpr size_t kEnough = 4;  // tokens
  if (!tokenizer.id_to_token(id)) return {id, log_p, nullptr};
  return {id, log_p,
          tokenizer.decode_after(context.last(std::min(kEnough, context.size())), {&id, 1}, false)};
}

// One continuation while it grows.
struct Sample {
  text::StreamDecoder decoder;
  text::StopStrings stops;
  std::string text;
  const char* finish = "length";  // why it ended: "length", "eos" or "stop"
  std::vector<int32_t> ids;
  std::vector<ChosenToken> tokens;  // with --logprobs

  // Returns the text that is final once `piece` is added.
  std::string add(const std::string& piece) {
    const std::string settled = stops.add(piece);
    if (stops.stopped()) finish = "stop";
    text += settled;
    return settled;
  }
  std::string end() {
    std::string rest = add(decoder.finish());
    const std::string waiting = stops.finish();
    text += waiting;
    return rest + waiting;
  }
};

// Line ends become those of the model's training texts.
std::string read_prompt_file(const GenerateCommandOptions& o, const TextModel& m) {
  std::string text = read_input(o.file);
  const auto run = read_run_config(o.dir);
  const bool kept = reads_bytes(m.tokenizer) || (run && run->config.data.keep_carriage_returns);
  return kept ? text : without_carriage_returns(std::move(text));
}

// The query behind solved examples.
std::string few_shot_prompt(const FewShot& examples, std::string_view query) {
  std::string prompt = examples.prompt(query);
  prompt.resize(prompt.find_last_not_of(' ') + 1);  // words' tokens usually begin with a space
  return prompt;
}

std::string read_prompt(const GenerateCommandOptions& o, const TextModel& m) {
  std::string prompt = o.has_prompt ? o.prompt : read_prompt_file(o, m);
  if (o.examples.empty()) return prompt;
  if (prompt.ends_with('\n')) prompt.pop_back();
  return few_shot_prompt(read_few_shot(o.examples), prompt);
}

// The prompt's text and its tokens.
struct Prompt {
  std::string text;
  std::vector<int32_t> ids;
};

Prompt prompt_of(const GenerateCommandOptions& o, const TextModel& m) {
  if (o.ids.empty()) {
    const std::string text = read_prompt(o, m);
    if (o.has_prompt) return {text, prompt_ids(m, text)};
    return {text, naming_place(input_name(o.file), [&] { return prompt_ids(m, text); })};
  }
  const std::vector<int32_t> ids = naming_option("--ids: ", [&] { return prompt_ids(m, o.ids); });
  return {m.tokenizer.decode(ids), ids};
}

// Writes the samples of one prompt.
class Sampling {
 public:
  Sampling(const GenerateCommandOptions& o, const TextModel& m, std::vector<int32_t> begun)
      : o_(o), m_(m), begun_(std::move(begun)) {
    samples_.assign(
        static_cast<size_t>(o.generation.returned),
        {text::StreamDecoder(m.tokenizer, true, begun_), text::StopStrings(o.stops), "", "length", {}, {}});
  }

  const std::vector<int32_t>& begun() const { return begun_; }
  // Adds a token to a sample, and passes what is final of its text to `show`. Returns false at its end.
  template <typename Show>
  bool add(int64_t sample, int32_t id, std::span<const float> logits, const Show& show) {
    Sample& s = samples_[static_cast<size_t>(sample)];
    if (o_.has_log_probs) keep_log_probs(s, id, logits);
    s.ids.push_back(id);
    const std::vector<int32_t>& eos = o_.generation.drawing.eos;
    if (std::find(eos.begin(), eos.end(), id) != eos.end()) {
      s.finish = "eos";
      return false;
    }
    show(s.add(s.decoder.add(id)));
    return !s.stops.stopped();
  }
  // The finished samples.
  template <typename Show>
  std::vector<Sample> end(const Show& show) {
    for (Sample& s : samples_) show(s.end());
    return std::move(samples_);
  }

 private:
  void keep_log_probs(Sample& s, int32_t id, std::span<const float> logits) const {
    std::vector<int32_t> context = begun_;
    context.insert(context.end(), s.ids.begin(), s.ids.end());
    const auto shown = [&](int32_t token, double log_p) {
      return shown_token(m_.tokenizer, context, token, log_p);
    };
    s.tokens.push_back({shown(id, logits[id] - log_normalizer(logits)), {}});
    for (const auto& [other, log_p] : most_likely(logits, o_.alternatives))
      s.tokens.back().alternatives.push_back(shown(other, log_p));
  }

  const GenerateCommandOptions& o_;
  const TextModel& m_;
  std::vector<int32_t> begun_;
  std::vector<Sample> samples_;
};

// Generates all samples. Passes the text of a single one to `show` as it appears.
std::vector<Sample> draw_samples(const GenerateCommandOptions& o, const TextModel& m, Engine& engine,
                                 const std::vector<int32_t>& begun,
                                 const std::function<void(const std::string&)>& show) {
  Sampling sampling(o, m, begun);
  const std::vector<std::vector<int32_t>> prompts(o.generation.returned, begun);
  generate(engine, prompts, o.generation.drawing, [&](int64_t i, int32_t id, std::span<const float> logits) {
    return sampling.add(i, id, logits, show);
  });
  return sampling.end(show);
}

OrderedJson token_json(const ShownToken& t) {
  return {{"id", t.id}, {"token", t.text}, {"logprob", t.log_p}};
}

std::string dump(const OrderedJson& json) {
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

// The best continuations that a search finds, best first.
void search(const GenerateCommandOptions& o, const TextModel& m, const Ensemble& ensemble,
            const Prompt& prompt) {
  const BeamOptions beam = o.generation.search_options();
  const auto best = beam_search(ensemble, {prompt.ids}, beam)[0];
  for (size_t i = 0; i < std::min(best.size(), static_cast<size_t>(o.generation.returned)); ++i) {
    std::vector<int32_t> ids = best[i].tokens;
    const bool ended = !ids.empty() && std::ranges::find(beam.eos, ids.back()) != beam.eos.end();
    const std::string text = m.tokenizer.decode_after(prompt.ids, std::span(ids).first(ids.size() - ended));
    if (o.json) {
      print(dump({{"sample", i},
                  {"text", text},
                  {"finish_reason", ended ? "eos" : "length"},
                  {"ids", ids},
                  {"logprob", best[i].log_probability},
                  {"score", best[i].score}}) +
            "\n");
      continue;
    }
    if (o.generation.returned > 1)
      print(fmt::format("--- {} of {} (log P {:.4f})\n", i + 1, o.generation.returned,
                        best[i].log_probability));
    print((o.no_prompt_echo ? "" : prompt.text) + text + "\n");
  }
}

std::string table_of_tokens(const std::vector<ChosenToken>& tokens) {
  std::string out = "   log P       P  token            likeliest\n";
  for (const ChosenToken& t : tokens) {
    std::string others;
    for (const ShownToken& other : t.alternatives)
      others += fmt::format("{}{} {:.4f}", others.empty() ? "" : ", ", dump(other.text), other.log_p);
    out += fmt::format("{:8.4f}  {:6.4f}  {:<15}{}{}\n", t.chosen.log_p, std::exp(t.chosen.log_p),
                       dump(t.chosen.text), others.empty() ? "" : "  ", others);
  }
  return out;
}

uint64_t seed_of(const GenerateCommandOptions& o, size_t sample) {
  return o.generation.drawing.seed + sample;
}

void print_json(const GenerateCommandOptions& o, const std::vector<Sample>& samples,
                const std::vector<std::optional<std::string>>& answers) {
  for (size_t i = 0; i < samples.size(); ++i) {
    const Sample& s = samples[i];
    OrderedJson line = {{"sample", i},
                        {"seed", seed_of(o, i)},
                        {"text", s.text},
                        {"finish_reason", s.finish},
                        {"ids", s.ids}};
    if (!o.vote.empty()) line["answer"] = answers[i] ? Json(*answers[i]) : Json();
    for (const ChosenToken& t : s.tokens) {
      OrderedJson token = token_json(t.chosen);
      token["likeliest"] = OrderedJson::array();
      for (const ShownToken& other : t.alternatives) token["likeliest"].push_back(token_json(other));
      line["tokens"].push_back(std::move(token));
    }
    print(dump(line) + "\n");
  }
}

void print_text(const GenerateCommandOptions& o, const std::string& prompt,
                const std::vector<Sample>& samples) {
  for (size_t i = 0; i < samples.size(); ++i) {
    if (samples.size() > 1) {
      print(fmt::format("--- sample {} of {} (seed {})\n", i + 1, samples.size(), seed_of(o, i)));
      print((o.no_prompt_echo ? "" : prompt) + samples[i].text);
    }
    print("\n");
    if (o.has_log_probs) print(table_of_tokens(samples[i].tokens));
  }
}

void print_votes(const GenerateCommandOptions& o, const std::vector<std::optional<std::string>>& answers) {
  const std::vector<Vote> votes = count_votes(answers);
  if (o.json) {
    OrderedJson list = OrderedJson::array();
    for (const Vote& v : votes) list.push_back({{"answer", v.answer}, {"count", v.count}});
    print(dump({{"votes", list}, {"winner", votes.empty() ? Json() : Json(votes[0].answer)}}) + "\n");
  } else {
    print(fmt::format("--- votes of {}\n", answers.size()));
    for (const Vote& v : votes) print(fmt::format("{:6}  {}\n", v.count, v.answer));
    if (!votes.empty()) print("winner: " + votes[0].answer + "\n");
  }
  check(!votes.empty(), "--vote: no sample holds a match of {}", o.vote);
}

// The answer in each sample: what the pattern of --vote finds, or without it the text.
std::vector<std::optional<std::string>> answers_of(const GenerateCommandOptions& o,
                                                   const text::Regex& pattern,
                                                   const std::vector<Sample>& samples) {
  std::vector<std::optional<std::string>> answers;
  for (const Sample& s : samples)
    answers.push_back(o.vote.empty() ? std::optional(s.text) : extract_answer(pattern, s.text));
  return answers;
}

// Called with the engine after all requests.
using EngineEnd = std::function<void(const Engine&)>;

// Questions of a .jsonl file, each a prompt of its own. Many are answered together, and shown in order.
void answer_questions(const GenerateCommandOptions& o, const TextModel& m, const Ensemble& ensemble,
                      EngineOptions engine_options, const text::Regex& pattern, const EngineEnd& end) {
  constexpr int64_t kTogether = 32;
  const std::vector<Question> questions = read_questions(o.file);
  const FewShot examples = o.examples.empty() ? FewShot() : read_few_shot(o.examples);
  const int64_t samples = o.generation.returned;
  struct Asked {
    Sampling sampling;
    int64_t left;  // samples that have not ended
  };
  std::vector<Asked> asked;
  engine_options.sequences = std::max(kTogether, samples);
  Engine engine(ensemble, engine_options);
  std::map<std::string, std::shared_ptr<const AdapterWeights>> adapters = {{"", nullptr}};
  for (const Question& q : questions) {
    if (!adapters.contains(q.adapter))
      naming_place(q.place, [&] {
        adapters[q.adapter] = load_adapter_weights(resolve_model_dir(q.adapter), *m.model);
      });
    const std::string prompt = o.examples.empty() ? q.input : few_shot_prompt(examples, q.input);
    const auto ids = naming_place(q.place, [&] { return prompt_ids(m, prompt); });
    asked.push_back({Sampling(o, m, ids), o.generation.drawing.max_new_tokens > 0 ? samples : 0});
    naming_place(q.place, [&] {
      for (int64_t s = 0; s < samples; ++s) {
        Request r = request_of(ids, o.generation.drawing, s);
        r.adapter = adapters.at(q.adapter);
        engine.add(std::move(r));
      }
    });
  }
  AnswerCount count(o.json);
  std::optional<Progress> progress;
  if (isatty(STDOUT_FILENO) == 0) progress.emplace();  // a terminal shows the answers themselves
  const auto ignore = [](const std::string&) {};
  const auto listener = [&](const NewToken& t) {
    Asked& a = asked[static_cast<size_t>(t.request / samples)];
    const bool go_on = a.sampling.add(t.request % samples, t.token, t.logits, ignore);
    if (!go_on || t.last) --a.left;
    return go_on;
  };
  size_t shown = 0;
  for (bool busy = true; busy;) {
    busy = engine.step(listener);
    for (; shown < asked.size() && asked[shown].left == 0; ++shown) {
      const std::vector<Sample> done = asked[shown].sampling.end(ignore);
      std::vector<std::string> texts;
      for (const Sample& s : done) texts.push_back(s.text);
      count.add(questions[shown], answers_of(o, pattern, done), texts);
      if (progress) progress->update(fmt::format("question {} of {}", shown + 1, questions.size()));
    }
  }
  count.print_summary();
  end(engine);
}

void run_generate(GenerateCommandOptions o) {
  naming_option("--stop: ", [&] { text::StopStrings{o.stops}; });
  const text::Regex answer = naming_option("--vote: ", [&] { return text::Regex(o.vote); });
  std::vector<std::string> dirs = {o.dir};
  dirs.insert(dirs.end(), o.ensemble.begin(), o.ensemble.end());
  std::vector<TextModel> models;
  for (const std::string& dir : dirs)
    models.push_back(load_language_model(dir, compute_type(o.dtype), !o.ids.empty()));
  for (size_t i = 0; i < models.size(); ++i) print_model_notes(dirs[i], *models[i].model);
  const TextModel& m = models.front();
  m.expect_generation();
  const Ensemble ensemble = ensemble_of(models, dirs);
  const bool questions = o.file.ends_with(".jsonl") || o.file.ends_with(".jsonl.gz");
  const Prompt prompt = questions ? Prompt() : prompt_of(o, m);
  // Options that need sampled texts.
  const std::string draws = !o.stops.empty()  ? "--stop"
                            : !o.vote.empty() ? "--vote"
                            : o.has_log_probs ? "--logprobs"
                            : questions       ? "--file with questions (.jsonl)"
                                              : "";
  if (questions && o.no_prompt_echo) throw UsageError("--no-echo: has no effect with questions (.jsonl)");
  if (questions && o.has_log_probs) throw UsageError("--logprobs: has no effect with questions (.jsonl)");
  Generation g = resolve_generation(o.options, m, draws, false);
  o.generation = std::move(g.settings);
  GenerateOptions& drawing = o.generation.drawing;
  if (o.no_stop) drawing.eos.clear();
  if (!o.has_seed) drawing.seed = std::random_device{}();
  // Never choose tokens without text, except those that end the output.
  std::vector<int32_t>& excluded = drawing.sampler.excluded;
  for (const int32_t id : m.tokenizer.ids_without_text(m.model->spec().vocab_size)) excluded.push_back(id);
  for (const int32_t id : drawing.eos) std::erase(excluded, id);
  for (const std::string& text : o.suppressed)
    for (std::vector<int32_t>& ids : spellings_of(text, m.tokenizer))
      drawing.rules.suppressed.push_back(std::move(ids));
  if (g.searches && !o.draft.by.empty())
    throw UsageError("--draft: has no effect in a search, which writes several outputs at once");
  if (g.searches && !o.prompt_cache.empty()) throw UsageError("--prompt-cache: has no effect in a search");
  if (g.searches) return search(o, m, ensemble, prompt);
  expect_drafts(o.draft, ensemble);
  const Drafts drafts(o.draft, m, compute_type(o.dtype));
  EngineOptions engine_options = drafts.with({});
  std::optional<PromptCache> cache;
  if (!o.prompt_cache.empty()) {
    if (!std::ranges::all_of(models, [](const TextModel& any) { return looks_back(any.model->spec()); }))
      throw UsageError("--prompt-cache: has no effect: this model reads a prompt as a whole");
    cache.emplace(o.prompt_cache, ensemble);
    engine_options.prompt_cache = &*cache;
    constexpr int64_t kMostKept = 1 << 14;
    engine_options.kept_tokens = std::min(kMostKept, m.model->spec().longest());
  }
  const auto end = [&](const Engine& engine) {
    if (cache) engine.save_kept(*cache);
    drafts.print_note(engine);
  };
  if (questions) return answer_questions(o, m, ensemble, engine_options, answer, end);
  const bool streaming = o.generation.returned == 1 && !o.json;
  if (streaming && !o.no_prompt_echo) print(prompt.text);
  Engine engine(ensemble, engine_options);
  const auto samples = draw_samples(o, m, engine, prompt.ids, [&](const std::string& text) {
    if (streaming) print(text);
  });
  const auto answers = answers_of(o, answer, samples);
  if (o.json)
    print_json(o, samples, answers);
  else
    print_text(o, prompt.text, samples);
  end(engine);
  if (!o.vote.empty()) print_votes(o, answers);
}

constexpr const char* kGenerateFooter =
    R"(Sampling applies the options in this order: repetition, frequency and presence penalty; temperature; top-k;
top-p; min-p; typical-p. Tokens without text (for unknown characters, or beyond the tokenizer's vocabulary) are
never chosen.

Settings in the model's generation_config.json (do_sample, temperature, top_k, top_p, max_new_tokens, ...) apply
unless an option overrides them.

--beams N uses beam search instead of sampling; --samples M then shows the M best of the N. If
generation_config.json has num_beams, qkv searches unless an option asks for sampling.

--logprobs shows natural logarithms of the model's own probabilities (of --ensemble, of their mean), before any of
these options.

Sample i of --samples is what a run of its own with --seed S+i draws, i = 0, 1, ...

--vote takes from each sample the last match of a regular expression, or its first group where it has one, and
counts (self-consistency). A sample without a match has no vote; at ties the answer that came first wins.

--file FILE.jsonl holds questions, one a line: {"input": "2+2=", "output": "4"}. Each is a prompt of its own. The answer
is what --vote finds, by the majority of --samples; without --vote it is the new text. If lines have an "output", qkv
prints the accuracy. A line with "adapter": "DIR" is answered by the model with that LoRA adapter, beside the others.

--examples FILE puts solved examples before the prompt. In TOML (FILE.toml):
  instruction = "Give the capital."                 # optional
  template = "Input: {input}\nOutput: {output}"     # the form of an example; this is the default
  separator = "\n\n"                                # between examples; this is the default
  [[example]]
  input = "France"
  output = "Paris"                                  # rationale = "..." may lead to it, as {rationale}
or in JSON lines, {"input": "France", "output": "Paris"}; a first line may hold instruction, template and
separator. The prompt becomes a last example's {input} and the model goes on where its {rationale} or {output} would
stand. Without a template, qkv shows rationales (chain of thought) if all examples have one.

--draft changes no token: the model checks several drafted tokens in one pass, and takes them as long as it would
have chosen the same. ngrams helps where texts repeat: edits of code, answers that quote. A note says how many it took.

Examples:
  qkv generate runs/shakespeare --prompt "ROMEO:" --tokens 300 --temperature 0.8 --seed 1
  qkv generate gpt2 --prompt "Once" --min-p 0.05 --repetition-penalty 1.2 --stop "The end"
  qkv generate gpt2 --prompt Spain --examples examples/capitals.toml --stop "Country:" --temperature 0
  qkv generate gpt2 --prompt "2+2=" --tokens 8 --samples 20 --vote "\d+"
  qkv generate runs/sums --file questions.jsonl --samples 9 --vote "(?<=A: )\d+" --stop "Q:"
  qkv generate gpt2 --prompt "The" --beams 4 --samples 2 --no-repeat-ngram 3
  qkv generate gpt2 --prompt "The" --tokens 5 --logprobs 3 --json
  qkv generate sorter --ids 2,0,1,2 --tokens 4 --temperature 0)";

}  // namespace

void add_generate_command(Command& app) {
  auto o = std::make_shared<GenerateCommandOptions>();
  Command* c = app.add_subcommand("generate", "Continue a prompt");
  c->add_option("DIR", o->dir, "Model directory or run")->required();
  auto* prompt = c->add_option("--prompt", o->prompt, "Text to continue (default: standard input)");
  c->add_option("--file", o->file, "File with the text to continue, or with questions (.jsonl, see below)")
      ->excludes(prompt);
  c->add_option("--ids", o->ids, "Token ids to continue instead of a text: 5,7,9")
      ->delimiter(',')
      ->excludes(prompt)
      ->excludes("--file");
  c->add_option("--examples", o->examples, "File with solved examples to put before the prompt")
      ->excludes("--ids");
  o->options.settings.drawing.seed = 0;
  add_generation_options(*c, o->options, GenerationKind::of_prompts, "--samples");
  c->add_option("--suppress", o->suppressed, "Text that must not occur in the output (repeatable)")
      ->one_value();
  c->add_option("--stop", o->stops, "Stop before this text (repeatable)")->one_value();
  c->add_option("--vote", o->vote,
                "Self-consistency: count the answers that this regular expression finds in the samples");
  add_draft_options(*c, o->draft);
  c->add_option(
      "--prompt-cache", o->prompt_cache,
      "Folder that keeps what the model has read, so that a prompt that begins alike is read faster");
  c->add_option("--ensemble", o->ensemble, "More models: average their next-token probabilities");
  auto* log_probs = c->add_option("--logprobs", o->alternatives,
                                  "Show each token's log-probability and this many alternatives")
                        ->range(0, 1000);
  c->add_flag("--json", o->json, "Print a JSON object per sample, and one for the vote");
  c->add_option("--dtype", o->dtype, "Precision of matrix products: f32 or bf16 (default: f32)")
      ->one_of({"f32", "bf16"});
  c->add_flag("--no-echo", o->no_prompt_echo, "Print only the new text");
  c->add_flag("--no-stop", o->no_stop, "Continue after the end-of-text token");
  c->footer(kGenerateFooter);
  c->callback([o, c, prompt, log_probs] {
    o->has_prompt = prompt->count() > 0;
    o->has_log_probs = log_probs->count() > 0;
    o->options.take(*c);
    o->options.shows_scores = o->json;
    o->has_seed = o->options.has("seed");
    run_generate(*o);
  });
}

}  // namespace qkv
