// qkv translate and qkv summarize: the output of an encoder-decoder for each line.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "qkv/api/text_model.h"
#include "qkv/base/json_value.h"
#include "qkv/cli/command.h"
#include "qkv/cli/console.h"
#include "qkv/cli/generation_options.h"
#include "qkv/cli/text_input.h"
#include "qkv/infer/translate.h"

namespace qkv {
namespace {

struct TranslateCommandOptions : TextInput {
  std::string dir, output_column, prefix, begin, begin_column, dtype = "f32";
  GenerationOptions generation;
  TranslateOptions translate;
  bool strict = false;
  std::vector<std::string> ensemble, suppressed;
};

// `shows`: the tokens and their attention.
OrderedJson json_of(const Translation& t, bool shows) {
  OrderedJson out = {{"text", t.text}, {"logprob", t.log_probability}, {"score", t.score}};
  if (!shows) return out;
  out["tokens"] = t.tokens;
  out["attention"] = OrderedJson::array();
  for (const std::vector<float>& row : t.attention) out["attention"].push_back(row);
  return out;
}

void run_translate(TranslateCommandOptions o) {
  take_settings_of_run(o, o.dir);
  o.columns.second_column = o.begin_column;
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
  const Generation g = resolve_generation(o.generation, m, "", true);
  BeamOptions beam = g.settings.search_options();
  for (const std::string& text : o.suppressed)
    for (std::vector<int32_t>& ids : spellings_of(text, m.tokenizer))
      beam.rules.suppressed.push_back(std::move(ids));
  const int64_t best_of = g.settings.returned;
  TranslateOptions translating = o.translate;
  if (!g.searches) {
    translating.drawing = Drawing{g.settings.drawing.sampler, 0, best_of};
    if (translating.replace_unknowns)
      throw UsageError(
          "--replace-unknowns: only a search says where the model looked, and outputs are drawn");
  }
  const bool begins = !o.begin.empty() || !o.begin_column.empty() || o.json_lines;
  if (o.generation.has("prefix_bias_beta") && !begins)
    throw UsageError("--prefix-bias: has no effect without --begin or --begin-column");
  if (beam.attention && (rows || !o.json))
    throw UsageError("--attention: only --json has a place for it, without rows");
  auto longest = static_cast<int64_t>(longest_source(m.model->spec(), sequence.ends));
  if (translating.longest_source > 0) longest = std::min(longest, translating.longest_source);
  int64_t cut = 0;
  predict_texts(o, [&](const std::vector<InputText>& texts) {
    std::vector<std::string> part;
    for (const InputText& text : texts) part.push_back(text.text.first);
    std::vector<std::string> sources = part;
    for (std::string& source : sources)
      if (!source.empty()) source.insert(0, o.prefix);
    if (translating.drawing)
      translating.drawing->seed =
          g.settings.drawing.seed + static_cast<uint64_t>((texts.front().number - 1) * best_of);
    translating.begin.clear();
    for (const InputText& text : texts)
      translating.begin.push_back(text.text.second.empty() ? o.begin : text.text.second);
    if (std::ranges::all_of(translating.begin, &std::string::empty)) translating.begin.clear();
    const Translations t = translate(sequence, sources, beam, translating);
    check(!o.strict || t.cut == 0,
          "{}: {} of texts {} to {} are longer than {} tokens (without --strict they are cut)",
          input_name(o.file), t.cut, texts.front().number, texts.back().number, longest);
    cut += t.cut;
    std::vector<Prediction> out(part.size());
    for (size_t i = 0; i < part.size(); ++i) {
      const auto& best = t.best[i];
      const size_t found = std::min(best.size(), static_cast<size_t>(best_of));
      if (rows) {
        for (size_t b = 0; b < static_cast<size_t>(best_of); ++b)
          out[i].columns[b == 0 ? o.output_column : fmt::format("{}_{}", o.output_column, b + 1)] =
              b < found ? OrderedJson(best[b].text) : OrderedJson();
      } else if (!o.json) {
        for (size_t b = 0; b < static_cast<size_t>(best_of); ++b)  // as many lines for each source
          out[i].line += (b < found ? one_line(best[b].text) : "") + "\n";
      } else {
        OrderedJson line = {{"source", part[i]}};
        if (beam.attention) line["source_tokens"] = t.source_tokens[i];
        line.update(json_of(best.front(), beam.attention));
        if (best_of > 1)
          for (size_t b = 0; b < found; ++b) line["best"].push_back(json_of(best[b], beam.attention));
        out[i].line = json_line(line);
      }
    }
    return out;
  });
  note_cut(cut, longest);
}

// The command names are for users: what it writes depends only on the model's training.
void add_writer(Command& app, const std::string& name, const std::string& output_column,
                const std::string& description) {
  auto o = std::make_shared<TranslateCommandOptions>();
  o->objective = Objective::sequence_to_sequence;
  o->first = {"source"};
  o->column = &DataConfig::source_column;
  o->second = {"begin"};
  o->pairs = TextInput::Second::aside;
  o->output_column = output_column;
  Command* c = app.add_subcommand(name, description);
  c->add_option("DIR", o->dir, "Model directory or run")->required();
  add_text_input(*c, *o);
  c->add_option("--prefix", o->prefix, "Stands before each line (see data.prefix of a run)");
  o->generation.settings.drawing.seed = 0;
  add_generation_options(*c, o->generation, GenerationKind::of_sources, "--best");
  c->add_option("--begin", o->begin, "Text that every output begins with");
  c->add_option("--begin-column", o->begin_column,
                "Column of rows with the text that the output of each begins with")
      ->excludes("--json-lines");
  c->add_option("--suppress", o->suppressed,
                "Text that no output has, as the tokenizer spells it (repeatable)")
      ->one_value();
  c->add_flag("--replace-unknowns", o->translate.replace_unknowns,
              "Write what the vocabulary has no token for as the source has it, by attention");
  c->add_option("--source-tokens", o->translate.longest_source,
                "Length of a source in tokens at most, beyond which it is cut; 0: as the model can read")
      ->show_default()
      ->range(0, 1 << 24);
  c->add_option("--ensemble", o->ensemble, "More models: average their next-token probabilities");
  c->add_option("--batch-tokens", o->translate.batch_tokens, "Source tokens per batch")
      ->show_default()
      ->range(1, 1 << 24);
  c->add_option("--dtype", o->dtype, "Precision of matrix products: f32 or bf16")
      ->show_default()
      ->one_of({"f32", "bf16"});
  c->add_flag("--strict", o->strict,
              "Reject texts that are longer than the model's context instead of truncating them");
  c->footer(fmt::format(
      "Lines keep their order, and an empty line stays empty. Settings in the model's "
      "generation_config.json\n"
      "(num_beams, length_penalty, ...) apply unless an option overrides them. Rows get the column {}.\n"
      "Options of sampling (--temperature, --top-k, --seed, ...) sample outputs instead of searching. With\n"
      "--json-lines, an output begins with the text \"begin\" of its line.\n"
      "Examples:\n"
      "  qkv {} runs/model --file in.txt > out.txt\n"
      "  qkv {} runs/model --file in.txt --json --beams 8 --best 3 --attention",
      output_column, name, name));
  c->callback([o, c] {
    o->generation.take(*c);
    o->generation.shows_scores = o->json;
    run_translate(*o);
  });
}

}  // namespace

void add_translate_command(Command& app) {
  add_writer(app, "translate", "translation", "Translate each line with an encoder-decoder");
  add_writer(app, "summarize", "summary", "Summarize each line with an encoder-decoder");
}

}  // namespace qkv
