// qkv eval of a run: what its configuration says of the data.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "qkv/cli/columns_of_run.h"
#include "qkv/cli/eval_command.h"
#include "qkv/data/table.h"
#include "qkv/train/corpora/documents.h"

namespace qkv {
namespace {

using Columns = std::vector<std::string>;

bool has(const Columns& columns, const std::string& name) {
  return std::ranges::find(columns, name) != columns.end();
}

// The names of the columns of a file of rows; none where it has no rows.
Columns header_of(const EvalOptions& o) {
  if (!o.target.empty() || !is_of_rows(o.data, file_options(o.columns))) return o.columns.columns;
  try {
    return read_header(o.data, file_options(o.columns));
  } catch (const Error&) {  // conversations are no rows; reading the file will say what is wrong
    return {};
  }
}

// Objectives whose data are judged as this model's are, likeliest first.
std::vector<Objective> objectives_for(const EvalOptions& o, const ModelSpec& spec) {
  switch (spec.output) {
    case Output::sequence_classes:
      return {spec.problem == Problem::multi_label       ? Objective::multi_label
              : spec.problem == Problem::regression      ? Objective::regression
              : spec.problem == Problem::multiple_choice ? Objective::multiple_choice
                                                         : Objective::classify};
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
  if (!o.objective.empty()) return {from_name<Objective>(o.objective)};
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
  for (const Objective objective : {Objective::span_corruption, Objective::denoise, Objective::prefix_lm})
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

}  // namespace

void take_settings_of_run(EvalOptions& o, const ModelSpec& spec, const Given& given) {
  std::optional<RunConfig> run;
  try {
    run = read_run_config(o.dir);
  } catch (const Error& e) {
    fmt::print(stderr, "note: the run's settings are not used: {}\n", e.what());
  }
  if (!run) return;
  if (run->config.mix.empty()) take_format(o.columns, o.data, run->config.data, given);
  Columns header = header_of(o);
  const bool writes = spec.architecture == Architecture::encoder_decoder || spec.order == Order::prefix;
  if (writes && spec.output == Output::tokens) take_objective(o, run->config, header, given);
  take_noise(o, run->config, given);
  const DataConfig* data = nullptr;
  Objective read_as = Objective::next_token;
  for (const Objective objective : objectives_for(o, spec))
    if (data == nullptr) {
      data = data_of(run->config, objective);
      read_as = objective;
    }
  if (data == nullptr) return;
  if (!run->config.mix.empty()) {
    take_format(o.columns, o.data, *data, given);
    header = header_of(o);
  }
  take_word_columns(o.columns, o.data, *data, given);
  if (!header.empty()) take_columns(o.columns, o.data, header, *data, read_as, given);
  if (!given("--prefix") && o.objective.empty()) o.columns.prefix = data->prefix;
  if (!given("--separator") && !is_of_rows(o.data, file_options(o.columns))) o.separator = data->separator;
}

}  // namespace qkv
