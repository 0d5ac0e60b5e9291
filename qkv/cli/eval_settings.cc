// qkv eval of a run: what its configuration says of the data.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "qkv/cli/eval_command.h"
#include "qkv/data/table.h"
#include "qkv/train/documents.h"

namespace qkv {
namespace {

using Given = std::function<bool(const char*)>;
using Columns = std::vector<std::string>;

bool has(const Columns& columns, const std::string& name) {
  return std::ranges::find(columns, name) != columns.end();
}

// The names of the columns of a file of rows; none where it has no rows.
Columns header_of(const EvalOptions& o) {
  struct HeaderIsRead {};
  Columns columns = o.columns.columns;
  if (!columns.empty() || !o.target.empty() || !is_of_rows(o.data, file_options(o.columns))) return columns;
  try {
    for_each_row(
        o.data, file_options(o.columns), [&](const Table& head) { columns = head.columns; },
        [](std::vector<std::string>&, int64_t) { throw HeaderIsRead(); });
  } catch (const HeaderIsRead&) {
  } catch (const Error&) {  // conversations are no rows; reading the file will say what is wrong
  }
  return columns;
}

// The only data set of a run with this objective; null where there is none, or several.
const DataConfig* data_of(const TrainConfig& run, Objective objective) {
  if (run.mix.empty()) return run.objective == objective ? &run.data : nullptr;
  const DataConfig* found = nullptr;
  for (const MixedSet& set : run.mix) {
    if (set.objective != objective) continue;
    if (found != nullptr) return nullptr;
    found = &set.data;
  }
  return found;
}

// Objectives whose data are judged as this model's are, likeliest first.
std::vector<Objective> objectives_for(const EvalOptions& o, const ModelSpec& spec) {
  switch (spec.output) {
    case Output::sequence_classes:
      return {Objective::classify};
    case Output::token_classes:
      return {Objective::tag};
    case Output::span:
      return {Objective::answer};
    case Output::embedding:
      return {Objective::embed};
    case Output::tokens:
      break;
  }
  if (spec.architecture == Architecture::encoder) return {Objective::masked, Objective::permutation};
  if (!o.objective.empty()) return {objective_from_name(o.objective)};
  const bool pairs = spec.architecture == Architecture::encoder_decoder || !o.target.empty() ||
                     (spec.order == Order::prefix && is_of_rows(o.data, file_options(o.columns)));
  return pairs ? std::vector{Objective::sequence_to_sequence}
               : std::vector{Objective::next_token, Objective::sequence_to_sequence};
}

// How a run restores texts is how its model is judged, unless the data or an option speak of pairs.
void take_objective(EvalOptions& o, const TrainConfig& run, const Columns& header, const Given& given) {
  for (const char* option :
       {"--objective", "--target", "--source-column", "--target-column", "--prefix", "--beams", "--strict"})
    if (given(option)) return;
  if (has(header, o.columns.source_column) && has(header, o.columns.target_column)) return;
  if (data_of(run, Objective::sequence_to_sequence) != nullptr) return;
  for (const Objective objective : {Objective::span_corruption, Objective::denoise})
    if (data_of(run, objective) != nullptr) o.objective = name_of(objective);
}

void take_noise(EvalOptions& o, const TrainConfig& run, const Given& given) {
  if (!given("--mask-rate")) o.masking.rate = run.masking.rate;
  o.masking.random = run.masking.random;
  o.masking.keep = run.masking.keep;
  o.masking.whole_words = run.masking.whole_words;
  if (!given("--span-density")) o.restoration.spans.density = run.spans.density;
  if (!given("--span-length")) o.span_length = run.spans.mean_length;
  if (!given("--infill")) o.restoration.noise.infill = run.noise.infill;
  if (!given("--deletion")) o.restoration.noise.deletion = run.noise.deletion;
  if (!given("--keep-order")) o.keep_order = !run.noise.permute;
}

// Columns by the names of the run, unless the file lacks one and has the usual name instead.
void take_columns(EvalOptions& o, const DataConfig& data, Columns header, const Given& given) {
  const bool jsonl = format_of(o.data, file_options(o.columns)) == FileFormat::jsonl;
  if (!given("--columns") && !data.columns.empty() && header != data.columns && !jsonl)
    header = o.columns.columns = data.columns;
  const bool spans = data.label_column == "answer";
  const auto take = [&](const char* option, std::string& name, const std::string& of_run,
                        const std::string& usual) {
    const bool usual_instead = !has(header, of_run) && has(header, usual);
    if (!given(option) && !of_run.empty() && !usual_instead) name = of_run;
  };
  take("--text-column", o.columns.text_column, data.text_column, spans ? "question" : "text");
  take("--second-column", o.columns.second_column, data.second_column, "context");
  take("--label-column", o.columns.label_column, data.label_column, spans ? "answer" : "label");
  take("--source-column", o.columns.source_column, data.source_column, "source");
  take("--target-column", o.columns.target_column, data.target_column, "target");
}

// Words and tags stand where they stood in training, in a file of the same format.
void take_word_columns(EvalOptions& o, const DataConfig& data, const Given& given) {
  const auto conllu = [](const std::string& path, const DataConfig& its) {
    return format_of(path, file_options(its)) == FileFormat::conllu;
  };
  if (data.train.empty() || conllu(data.train.front(), data) != conllu(o.data, o.columns)) return;
  if (!given("--word-column")) o.columns.word_column = data.word_column;
  if (!given("--tag-column")) o.columns.tag_column = data.tag_column;
}

// Files without a telling name hold what those of the run do, and rows of one format have one delimiter.
void take_format(EvalOptions& o, const DataConfig& data, const Given& given) {
  if (data.train.empty()) return;
  if (!given("--keep-carriage-returns")) o.columns.keep_carriage_returns = data.keep_carriage_returns;
  if (!given("--format") && format_of(o.data) == FileFormat::text) o.columns.format = data.format;
  const FileOptions trained{.format = data.format};
  if (!given("--delimiter") &&
      format_of(data.train.front(), trained) == format_of(o.data, {.format = o.columns.format}))
    o.columns.delimiter = data.delimiter;
}

}  // namespace

void take_settings_of_run(EvalOptions& o, const ModelSpec& spec, const Given& given) {
  std::optional<RunConfig> run;
  try {
    run = read_run_config(o.dir);
  } catch (const Error& e) {
    fmt::print(stderr, "note: the run's settings are not used: {}\n", e.what());
  }
  if (!run) return;
  if (run->config.mix.empty()) take_format(o, run->config.data, given);
  Columns header = header_of(o);
  const bool writes = spec.architecture == Architecture::encoder_decoder || spec.order == Order::prefix;
  if (writes && spec.output == Output::tokens) take_objective(o, run->config, header, given);
  take_noise(o, run->config, given);
  const DataConfig* data = nullptr;
  for (const Objective objective : objectives_for(o, spec))
    if (data == nullptr) data = data_of(run->config, objective);
  if (data == nullptr) return;
  if (!run->config.mix.empty()) {
    take_format(o, *data, given);
    header = header_of(o);
  }
  take_word_columns(o, *data, given);
  if (!header.empty()) take_columns(o, *data, header, given);
  if (!given("--prefix") && o.objective.empty()) o.columns.prefix = data->prefix;
  if (!given("--separator") && !is_of_rows(o.data, file_options(o.columns))) o.separator = data->separator;
}

}  // namespace qkv
