// qkv choose: the right one of each question's choices.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <optional>

#include "qkv/base/json_value.h"
#include "qkv/cli/columns_of_run.h"
#include "qkv/cli/command.h"
#include "qkv/cli/console.h"
#include "qkv/cli/encoder_command.h"
#include "qkv/cli/model_notes.h"
#include "qkv/data/table.h"
#include "qkv/train/corpora/choices.h"
#include "qkv/train/corpora/documents.h"

namespace qkv {
namespace {

struct ChooseOptions {
  std::string dir, file, dtype = "f32";
  std::vector<std::string> ensemble;
  bool json = false, strict = false;
  int64_t batch_tokens = 4096;
  DataConfig columns;
  Given given;
};

constexpr size_t kAtOnce = 1024;  // questions that are held and sorted by length

// The format and the columns of a file that no option names: those of the run that the model comes from.
void take_settings(ChooseOptions& o) {
  DataConfig& columns = o.columns;
  if (!o.given("--choice-columns")) columns.choice_columns = DataConfig().choice_columns;
  std::optional<RunConfig> run;
  try {
    run = read_run_config(o.dir);
  } catch (const Error& e) {
    fmt::print(stderr, "note: the run's settings are not used: {}\n", e.what());
  }
  if (const DataConfig* data = run ? data_of(run->config, Objective::multiple_choice) : nullptr) {
    take_format(columns, o.file, *data, o.given);
    if (is_of_rows(o.file, file_options(columns)))
      take_columns(columns, o.file, read_header(o.file, file_options(columns)), *data,
                   Objective::multiple_choice, o.given);
  }
  if (columns.text_column.empty()) columns.text_column = "question";
}

// A question and its choices, divided by tabs.
Example of_line(const std::string& line, const std::string& place) {
  Example e;
  e.place = place;
  for (size_t begin = 0; begin <= line.size();) {
    const size_t end = std::min(line.find('\t', begin), line.size());
    (begin == 0 ? e.text.first : e.choices.emplace_back()) = line.substr(begin, end - begin);
    begin = end + 1;
  }
  check(!e.choices.empty(), "{}: expected a question and its choices, divided by tabs", place);
  drop_empty_end(e.choices);
  expect_choices(e);
  return e;
}

std::string text_of(const ChooseOptions& o, const Example& e, const std::vector<double>& p) {
  if (p.empty()) return o.json ? "{\"choice\":null}\n" : "\n";
  const auto best = static_cast<size_t>(std::ranges::max_element(p) - p.begin());
  if (!o.json) return fmt::format("{}\t{:.4f}\n", one_line(e.choices[best]), p[best]);
  OrderedJson json = {{"question", e.text.first}};
  if (!e.text.second.empty()) json["second"] = e.text.second;
  json["number"] = best;
  json["choice"] = e.choices[best];
  json["probability"] = p[best];
  json["choices"] = e.choices;
  json["probabilities"] = p;
  return json_line(json);
}

// The probabilities of the choices of each question, by one model; none of a blank question.
std::vector<std::vector<double>> probabilities_of_choices(const ChooseOptions& o, const TextModel& m,
                                                          std::span<const Example> examples, int64_t& cut) {
  const ModelSpec& spec = m.model->spec();
  std::vector<EncodedText> texts;
  for (const Example& e : examples) {
    if (is_blank(e.text.first)) continue;
    std::vector<EncodedText> its = encode_example(e, m.tokenizer, spec);
    const bool any_cut = std::ranges::any_of(its, &EncodedText::cut);
    check(!o.strict || !any_cut, "{}: longer than the model's {} tokens (without --strict it is cut)",
          e.place, spec.context);
    cut += any_cut;
    std::ranges::move(its, std::back_inserter(texts));
  }
  const std::vector<Tensor> scores = class_scores(*m.model, texts, o.batch_tokens);
  std::vector<std::vector<double>> out;
  size_t first = 0;
  for (const Example& e : examples) {
    std::vector<double>& p = out.emplace_back();
    if (is_blank(e.text.first)) continue;
    p = class_values(spec, scores_of_choices(std::span(scores).subspan(first, e.choices.size())), 0);
    first += e.choices.size();
  }
  return out;
}

// Prints the choices of some questions.
void choose(const ChooseOptions& o, const std::vector<TextModel>& models, std::span<const Example> examples,
            std::vector<int64_t>& cut) {
  std::vector<MeanProbabilities> means(examples.size());
  for (size_t m = 0; m < models.size(); ++m) {
    const auto of_model = probabilities_of_choices(o, models[m], examples, cut[m]);
    for (size_t i = 0; i < examples.size(); ++i) means[i].add(of_model[i]);
  }
  std::string out;
  for (size_t i = 0; i < examples.size(); ++i) out += text_of(o, examples[i], means[i].mean());
  print(out);
}

TextModel load_chooser(const ChooseOptions& o, const std::string& dir) {
  TextModel m = load(dir, compute_type(o.dtype));
  print_model_notes(dir, *m.model);
  check(m.model->spec().problem == Problem::multiple_choice,
        "{}: this model does not score choices; choose needs one trained with train.objective = "
        "\"multiple_choice\"",
        dir);
  return m;
}

void run_choose(ChooseOptions o) {
  std::vector<TextModel> models;
  models.push_back(load_chooser(o, o.dir));
  for (const std::string& dir : o.ensemble) models.push_back(load_chooser(o, dir));
  std::vector<int64_t> cut(models.size());
  if (!o.file.empty()) take_settings(o);
  if (!o.file.empty() && is_of_rows(o.file, file_options(o.columns))) {
    Notes notes;
    const std::vector<Example> examples = read_choices_alone(o.file, o.columns, &notes);
    print_notes(notes);
    for (size_t begin = 0; begin < examples.size(); begin += kAtOnce)
      choose(o, models, std::span(examples).subspan(begin, std::min(kAtOnce, examples.size() - begin)), cut);
  } else {
    for (const char* option :
         {"--text-column", "--second-column", "--choice-columns", "--columns", "--delimiter"})
      if (o.given(option))
        throw UsageError(fmt::format("{}: of rows, which are read from a file (.csv, .tsv, .jsonl)", option));
    if (o.given("--format") && o.columns.format != "text" && o.columns.format != "auto")
      throw UsageError("--format: rows are read from a file: give it with --file");
    for_each_lines(o.file, 0, [&](const std::vector<std::string>& lines, int64_t from) {
      std::vector<Example> examples;
      for (const std::string& line : lines) {
        const int64_t number = from + std::ssize(examples);
        examples.push_back(is_blank(line) ? Example()
                                          : of_line(line, fmt::format("{}:{}", input_name(o.file), number)));
      }
      choose(o, models, examples, cut);
    });
  }
  note_cut(cut, models);
}

}  // namespace

void add_choose_command(Command& app) {
  auto o = std::make_shared<ChooseOptions>();
  Command* c = app.add_subcommand("choose", "Choose the right answer of several (multiple choice)");
  c->add_option("DIR", o->dir, "Model directory or run")->required();
  c->add_option("--file", o->file,
                "Rows (.csv, .tsv, .jsonl), or lines with a question and its choices, divided by tabs "
                "(default: standard input)");
  c->add_option("--text-column", o->columns.text_column,
                "Column of rows that holds the question (default: that of the run, or question)");
  c->add_option("--second-column", o->columns.second_column,
                "Column of rows with the text before each choice (default: that of the run)");
  c->add_option("--choice-columns", o->columns.choice_columns,
                "Column of JSON lists with a question's choices, or one column per choice: a,b,c (default: "
                "that of the run, or choices)")
      ->delimiter(',');
  c->add_option("--columns", o->columns.columns, "Column names for a file without a header: a,b,c")
      ->delimiter(',');
  c->add_option("--format", o->columns.format, "Format of --file (default: by its extension)")
      ->one_of({"auto", "text", "tsv", "csv", "jsonl"});
  c->add_option("--delimiter", o->columns.delimiter,
                "Character between columns of rows (default: comma, in .tsv a tab)");
  c->add_flag("--json", o->json, "Print a JSON object per line, with the probability of each choice");
  c->add_option("--ensemble", o->ensemble, "More models: average their probabilities");
  c->add_option("--batch-tokens", o->batch_tokens, "Tokens per batch")->show_default()->range(1, 1 << 24);
  c->add_option("--dtype", o->dtype, "Precision of matrix products: f32 or bf16")
      ->show_default()
      ->one_of({"f32", "bf16"});
  c->add_flag("--strict", o->strict,
              "Reject texts that are longer than the model's context instead of truncating them");
  o->columns.text_column.clear();
  o->columns.choice_columns.clear();
  o->given = [c](const char* option) {
    return std::ranges::any_of(c->given(), [&](const Option* x) { return x->name() == option; });
  };
  c->footer(
      "The model reads the question with each of its choices; a softmax of their scores gives the "
      "probabilities.\n"
      "Prints the chosen text and its probability. Questions may have different numbers of choices.\n"
      "Examples:\n"
      "  printf 'a cow says\\tmoo\\tmeow\\n' | qkv choose runs/sounds\n"
      "  qkv choose runs/quiz --file questions.jsonl --json\n"
      "  qkv choose runs/swag --file swag.csv --text-column sent1 --second-column sent2 "
      "--choice-columns ending0,ending1,ending2,ending3");
  c->callback([o] { run_choose(*o); });
}

}  // namespace qkv
