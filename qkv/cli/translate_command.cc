// qkv translate, or qkv summarize: what an encoder-decoder writes for each line.
#include <fmt/format.h>

#include <cstdio>
#include <set>

#include "qkv/api/text_model.h"
#include "qkv/base/json_value.h"
#include "qkv/cli/command.h"
#include "qkv/cli/console.h"
#include "qkv/cli/text_input.h"
#include "qkv/infer/translate.h"

namespace qkv {
namespace {

struct Options : TextInput {
  std::string dir, output_column, prefix, begin, dtype = "f32";
  BeamOptions beam;
  int64_t best = 1, batch_tokens = 2048;
  Drawing drawing = {};
  bool strict = false, stop_early = false;
  std::vector<std::string> ensemble;
  std::set<std::string> given;  // of its options
};

OrderedJson json_of(const Translation& t) {
  return {{"text", t.text}, {"logprob", t.log_probability}, {"score", t.score}};
}

void run(Options o) {
  take_settings_of_run(o, o.dir);
  const bool rows = reads_rows(o);
  std::vector<std::string> dirs = {o.dir};
  dirs.insert(dirs.end(), o.ensemble.begin(), o.ensemble.end());
  std::vector<TextModel> models;
  for (const std::string& dir : dirs) models.push_back(load(dir, compute_type(o.dtype)));
  const TextModel& m = models.front();
  m.expect_generation();
  SequenceModel sequence = sequence_model(m, o.dir);
  for (size_t i = 1; i < models.size(); ++i)
    check(sequence_model(models[i], dirs[i]).ends == sequence.ends,
          "{}: its texts begin and end otherwise than those of {}", dirs[i], o.dir);
  sequence.model = ensemble_of(models, dirs);
  BeamOptions beam = m.beam;
  if (o.given.contains("--beams")) beam.beams = o.beam.beams;
  if (o.given.contains("--length-penalty")) beam.length_penalty = o.beam.length_penalty;
  if (o.given.contains("--tokens")) {
    beam.max_new_tokens = o.beam.max_new_tokens;
    beam.rules.max_length = 0;
  }
  if (o.given.contains("--no-repeat-ngram")) beam.rules.no_repeat_ngram = o.beam.rules.no_repeat_ngram;
  if (o.stop_early) beam.stop = BeamOptions::Stop::early;
  std::optional<Drawing> drawing;
  for (const char* option : {"--temperature", "--top-k", "--top-p", "--seed"})
    if (o.given.contains(option)) drawing = o.drawing;
  if (drawing) {
    drawing->samples = o.best;
    reject_options(o.given, {"--beams", "--stop-early", "--length-penalty"},
                   "outputs are drawn, not searched for");
    if (o.given.contains("--temperature") && o.drawing.sampler.temperature == 0)
      reject_options(o.given, {"--top-k", "--top-p", "--seed"},
                     "has no effect with --temperature 0, which always takes the likeliest");
    naming_option("--", [&] { check_options(drawing->sampler); });
  } else if (o.best > beam.beams) {
    throw UsageError(fmt::format("--best: {} of {} beams (see --beams)", o.best, beam.beams));
  } else if (beam.beams == 1) {
    reject_options(o.given, {"--length-penalty", "--stop-early"},
                   "has no effect with one beam (see --beams)");
  }
  int64_t cut = 0;
  predict_texts(o, [&](const std::vector<InputText>& texts) {
    std::vector<std::string> part;
    for (const InputText& text : texts) part.push_back(text.text.first);
    std::vector<std::string> sources = part;
    for (std::string& source : sources)
      if (!source.empty()) source.insert(0, o.prefix);
    if (drawing) drawing->seed = o.drawing.seed + static_cast<uint64_t>((texts.front().number - 1) * o.best);
    const Translations t = translate(
        sequence, sources, beam, o.batch_tokens,
        o.begin.empty() ? std::vector<std::string>() : std::vector<std::string>(part.size(), o.begin),
        drawing);
    check(!o.strict || t.cut == 0,
          "{}: {} of texts {} to {} are longer than the model's {} tokens (without --strict they are cut)",
          input_name(o.file), t.cut, texts.front().number, texts.back().number,
          longest_source(m.model->spec(), sequence.ends));
    cut += t.cut;
    std::vector<Prediction> out(part.size());
    for (size_t i = 0; i < part.size(); ++i) {
      const auto& best = t.best[i];
      const size_t found = std::min(best.size(), static_cast<size_t>(o.best));
      if (rows) {
        for (size_t b = 0; b < static_cast<size_t>(o.best); ++b)
          out[i].columns[b == 0 ? o.output_column : fmt::format("{}_{}", o.output_column, b + 1)] =
              b < found ? OrderedJson(best[b].text) : OrderedJson();
      } else if (!o.json) {
        for (size_t b = 0; b < static_cast<size_t>(o.best); ++b)  // as many lines of each source
          out[i].line += (b < found ? one_line(best[b].text) : "") + "\n";
      } else {
        OrderedJson line = {{"source", part[i]}};
        line.update(json_of(best.front()));
        if (o.best > 1)
          for (size_t b = 0; b < found; ++b) line["best"].push_back(json_of(best[b]));
        out[i].line = json_line(line);
      }
    }
    return out;
  });
  note_cut(cut, longest_source(m.model->spec(), sequence.ends));
}

// What the target of a line is, the model has learnt; the names are for people.
void add_writer(Command& app, const std::string& name, const std::string& output_column,
                const std::string& description) {
  auto o = std::make_shared<Options>();
  o->objective = Objective::sequence_to_sequence;
  o->first = {"source"};
  o->column = &DataConfig::source_column;
  o->output_column = output_column;
  Command* c = app.add_subcommand(name, description);
  c->add_option("DIR", o->dir, "Model directory or run")->required();
  add_text_input(*c, *o);
  c->add_option("--prefix", o->prefix, "Stands before each line (see data.prefix of a run)");
  c->add_option("--beams", o->beam.beams, "Hypotheses that are followed; 1: greedy")
      ->show_default()
      ->range(1, 1024);
  c->add_option("--length-penalty", o->beam.length_penalty,
                "Hypotheses are compared by log P / length^this: more favours long ones")
      ->show_default();
  c->add_option("--tokens", o->beam.max_new_tokens, "Length of an output at most")
      ->show_default()
      ->range(1, 1 << 20);
  c->add_option("--no-repeat-ngram", o->beam.rules.no_repeat_ngram,
                "No n-gram of this length occurs twice; 0: any may")
      ->show_default()
      ->range(0, 1000);
  c->add_option("--begin", o->begin, "Text that every output begins with");
  c->add_flag("--stop-early", o->stop_early, "A line is done when it has as many outputs as beams");
  c->add_option(
      "--temperature", o->drawing.sampler.temperature,
      "Draw outputs from the model's distribution, sharpened or flattened by it, instead of searching");
  c->add_option("--top-k", o->drawing.sampler.top_k, "Draw from the most likely tokens only; 0: all");
  c->add_option("--top-p", o->drawing.sampler.top_p,
                "Draw from the fewest tokens that have this probability");
  c->add_option("--seed", o->drawing.seed, "Of what is drawn");
  c->add_option("--ensemble", o->ensemble,
                "More models: the mean of their probabilities says what comes next");
  c->add_option("--best", o->best, "Outputs of each line, best first (drawn ones in any order)")
      ->show_default()
      ->range(1, 1024);
  c->add_option("--batch-tokens", o->batch_tokens, "Source tokens at a time")
      ->show_default()
      ->range(1, 1 << 24);
  c->add_option("--dtype", o->dtype, "Type of the matrix products: f32 or bf16")
      ->show_default()
      ->one_of({"f32", "bf16"});
  c->add_flag("--strict", o->strict, "Refuse texts beyond the model's length instead of cutting them");
  c->footer(
      fmt::format("Lines stay in their order, and an empty line stays empty. What the model's "
                  "generation_config.json says "
                  "of beams\n(num_beams, length_penalty, ...) holds unless an option says "
                  "otherwise. Rows get the column {}.\nExample: qkv {} runs/model --file in.txt > out.txt",
                  output_column, name));
  c->callback([o, c] {
    for (const Option* option : c->given()) o->given.insert(option->name());
    run(*o);
  });
}

}  // namespace

void add_translate_command(Command& app) {
  add_writer(app, "translate", "translation", "Write a target for each line, with an encoder-decoder");
  add_writer(app, "summarize", "summary",
             "Write a shorter text for each line, with an encoder-decoder trained for it");
}

}  // namespace qkv
