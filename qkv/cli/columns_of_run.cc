#include "qkv/cli/columns_of_run.h"

#include <algorithm>

#include "qkv/data/text_file.h"
#include "qkv/train/corpora/documents.h"

namespace qkv {

const DataConfig* data_of(const TrainConfig& run, Objective objective) {
  // Classes, labels and numbers are read from the same kind of rows.
  const auto reads_alike = [&](Objective its) {
    const bool of_sequences = spec_of(objective).output == Output::sequence_classes;
    return its == objective || (of_sequences && spec_of(its).output == Output::sequence_classes);
  };
  if (run.mix.empty()) return reads_alike(run.objective) ? &run.data : nullptr;
  const DataConfig* found = nullptr;
  for (const MixedSet& set : run.mix) {
    if (!reads_alike(set.objective)) continue;
    if (found != nullptr) return nullptr;
    found = &set.data;
  }
  return found;
}

void take_format(DataConfig& columns, const std::string& path, const DataConfig& run, const Given& given) {
  if (run.train.empty()) return;
  if (!given("--keep-carriage-returns")) columns.keep_carriage_returns = run.keep_carriage_returns;
  if (!given("--format") && format_of(path) == FileFormat::text) columns.format = run.format;
  const FileOptions trained{.format = run.format};
  if (!given("--delimiter") &&
      format_of(run.train.front(), trained) == format_of(path, {.format = columns.format}))
    columns.delimiter = run.delimiter;
}

void take_columns(DataConfig& columns, const std::string& path, std::vector<std::string> header,
                  const DataConfig& run, Objective objective, const Given& given) {
  const auto has = [&](const std::string& name) { return std::ranges::find(header, name) != header.end(); };
  const bool jsonl = format_of(path, file_options(columns)) == FileFormat::jsonl;
  if (!given("--columns") && !run.columns.empty() && header != run.columns && !jsonl)
    header = columns.columns = run.columns;
  const bool spans = objective == Objective::answer, choices = objective == Objective::multiple_choice;
  const auto take = [&](const char* option, std::string& name, const std::string& of_run,
                        const std::string& usual) {
    if (given(option) || of_run.empty()) return;
    const bool is_another =
        usual == run.text_column || usual == run.second_column || usual == run.label_column;
    name = !has(of_run) && !usual.empty() && !is_another && has(usual) ? usual : of_run;
  };
  take("--text-column", columns.text_column, run.text_column, spans || choices ? "question" : "text");
  take("--second-column", columns.second_column, run.second_column, spans ? "context" : "");
  take("--label-column", columns.label_column, run.label_column, spans ? "answer" : "label");
  if (!given("--choice-columns")) {
    const std::vector<std::string> usual = DataConfig().choice_columns;
    const bool usual_instead = !std::ranges::all_of(run.choice_columns, has) && has(usual.front());
    columns.choice_columns = usual_instead ? usual : run.choice_columns;
  }
  if (!given("--label-separator")) columns.label_separator = run.label_separator;
  take("--source-column", columns.source_column, run.source_column, "source");
  take("--target-column", columns.target_column, run.target_column, "target");
}

void take_word_columns(DataConfig& columns, const std::string& path, const DataConfig& run,
                       const Given& given) {
  if (run.train.empty()) return;
  const bool conllu = format_of(path, file_options(columns)) == FileFormat::conllu;
  if (conllu != (format_of(run.train.front(), file_options(run)) == FileFormat::conllu)) return;
  if (!given("--word-column")) columns.word_column = run.word_column;
  if (!given("--tag-column")) columns.tag_column = run.tag_column;
}

}  // namespace qkv
