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
                  const DataConfig& run, const Given& given) {
  const auto has = [&](const std::string& name) { return std::ranges::find(header, name) != header.end(); };
  const bool jsonl = format_of(path, file_options(columns)) == FileFormat::jsonl;
  if (!given("--columns") && !run.columns.empty() && header != run.columns && !jsonl)
    header = columns.columns = run.columns;
  const bool spans = run.label_column == "answer";
  const auto take = [&](const char* option, std::string& name, const std::string& of_run,
                        const std::string& usual) {
    const bool usual_instead = !has(of_run) && has(usual);
    if (!given(option) && !of_run.empty() && !usual_instead) name = of_run;
  };
  take("--text-column", columns.text_column, run.text_column, spans ? "question" : "text");
  take("--second-column", columns.second_column, run.second_column, "context");
  take("--label-column", columns.label_column, run.label_column, spans ? "answer" : "label");
  if (!given("--choice-columns")) columns.choice_columns = run.choice_columns;
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
