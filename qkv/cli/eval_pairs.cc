// qkv eval for pairs: targets given their sources.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <numeric>

#include "qkv/base/json_value.h"
#include "qkv/cli/console.h"
#include "qkv/cli/eval_command.h"
#include "qkv/data/table.h"
#include "qkv/metrics/bleu.h"
#include "qkv/metrics/chrf.h"
#include "qkv/metrics/rouge.h"
#include "qkv/text/unicode.h"
#include "qkv/train/corpora/corpus.h"
#include "qkv/train/corpora/documents.h"
#include "qkv/train/tasks/evaluate.h"

namespace qkv {
namespace {

using Texts = std::vector<std::string>;

PairTexts pairs_of(const EvalOptions& o, const TextModel& m) {
  DataConfig columns = o.columns;
  columns.any_bytes = reads_bytes(m.tokenizer);
  if (o.target.empty() && !is_of_rows(o.data, file_options(columns)))
    throw UsageError(
        fmt::format("{}: expected rows (.tsv, .csv, .jsonl) of sources and targets, or --target with "
                    "the targets of these lines, or --objective with how a text is to be restored",
                    o.data));
  if (!o.target.empty() && !o.columns.columns.empty())
    throw UsageError("--columns: lines beside those of --target have no columns");
  PairTexts texts = read_pairs({o.data}, o.target.empty() ? Texts{} : Texts{o.target}, columns);
  check(!texts.source.empty(), "{}: there is no pair", o.data);
  print_notes(texts.notes);
  return texts;
}

// Outputs, their references and the scores.
struct Scores {
  Texts sources, references, outputs;
  BleuTokenizer tokenizer = BleuTokenizer::mteval_13a;
  const char* script = "";  // the script that chose the tokenizer; empty: an option or the default chose it
  Bleu bleu;
  Chrf chrf;
  RougeL rouge;
  int64_t with_rouge_words = 0;    // number of references with words that ROUGE counts
  bool rouge_applies = false;      // ROUGE suits the references
  double exact = 0;                // share of outputs equal to their references
  std::vector<double> chrf_of;     // for each output, if errors are listed
  std::vector<size_t> worst = {};  // wrong outputs, the lowest chrF first
};

Texts valid(const Texts& texts) {
  Texts out;
  for (const std::string& t : texts) out.push_back(text::to_valid_utf8(t));
  return out;
}

void choose_tokenizer(const EvalOptions& o, Scores& s) {
  if (o.bleu_tokenize != "auto") {
    s.tokenizer = bleu_tokenizer_from_name(o.bleu_tokenize);
    return;
  }
  const ChosenTokenizer chosen = bleu_tokenizer_for(s.references);
  s.tokenizer = chosen.tokenizer;
  s.script = chosen.script;
}

void find_worst(Scores& s, const Texts& outputs, const Texts& references, int64_t most) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    s.chrf_of.push_back(corpus_chrf(std::span(&outputs[i], 1), std::span(&references[i], 1)).score);
    if (outputs[i] != references[i]) s.worst.push_back(i);
  }
  std::ranges::stable_sort(s.worst, {}, [&](size_t i) { return s.chrf_of[i]; });
  if (std::ssize(s.worst) > most) s.worst.resize(static_cast<size_t>(most));
}

void add_scores(const EvalOptions& o, Scores& s) {
  choose_tokenizer(o, s);
  s.bleu = corpus_bleu(s.outputs, s.references, s.tokenizer);
  // Byte tokens can make invalid UTF-8; chrF and ROUGE count characters.
  const Texts outputs = valid(s.outputs), references = valid(s.references);
  s.chrf = corpus_chrf(outputs, references);
  s.rouge = corpus_rouge_l(outputs, references);
  s.with_rouge_words = count_with_rouge_words(references);
  s.rouge_applies = rouge_applies(references);
  int64_t exact = 0;
  for (size_t i = 0; i < outputs.size(); ++i) exact += s.outputs[i] == s.references[i];
  s.exact = static_cast<double>(exact) / static_cast<double>(outputs.size());
  if (o.errors > 0) find_worst(s, outputs, references, o.errors);
}

std::string scores_json(const EvalOptions& o, const Evaluation& e, const Scores& s, int64_t beams) {
  OrderedJson out = {{"loss", e.loss()},
                     {"perplexity", e.perplexity()},
                     {"tokens", e.tokens},
                     {"bleu", s.bleu.score},
                     {"signature", bleu_signature(s.tokenizer)},
                     {"chrf", s.chrf.score},
                     {"chrf_signature", kChrfSignature}};
  const bool rouge = s.rouge_applies;
  for (const auto& [name, value] : {std::pair("rouge_l", s.rouge.f1),
                                    {"rouge_l_precision", s.rouge.precision},
                                    {"rouge_l_recall", s.rouge.recall}})
    out[name] = rouge ? OrderedJson(value) : OrderedJson(nullptr);
  out["beams"] = beams;
  out["exact_match"] = s.exact;
  out["pairs"] = s.sources.size();
  if (o.errors > 0) {
    out["errors"] = OrderedJson::array();
    for (const size_t i : s.worst)
      out["errors"].push_back({{"source", s.sources[i]},
                               {"target", s.references[i]},
                               {"output", s.outputs[i]},
                               {"chrf", s.chrf_of[i]}});
  }
  return json_text(out);
}

std::string rouge_text(const Scores& s) {
  if (!s.rouge_applies)
    return "ROUGE-L             n/a: it compares words of Latin letters and digits, which most of the "
           "targets lack\n";
  std::string out = fmt::format("ROUGE-L             F1 {:.2f}%, precision {:.2f}%, recall {:.2f}%\n",
                                100 * s.rouge.f1, 100 * s.rouge.precision, 100 * s.rouge.recall);
  if (const int64_t without = std::ssize(s.references) - s.with_rouge_words; without > 0)
    out +=
        fmt::format("                    ({} of {} targets have no Latin letter or digit and count as 0)\n",
                    without, s.references.size());
  return out;
}

std::string scores_text(const EvalOptions& o, const Evaluation& e, const Scores& s, int64_t beams) {
  std::string out = losses_text(e, " of targets");
  out += s.bleu.text() + "\n";
  out += fmt::format("signature           {}, beams {}\n", bleu_signature(s.tokenizer), beams);
  if (*s.script != '\0')
    out += fmt::format("tokenizer           {}, chosen because the targets are {} (see --bleu-tokenize)\n",
                       name_of(s.tokenizer), s.script);
  else if (o.bleu_tokenize == "auto")
    out += fmt::format("tokenizer           {}, the default (see --bleu-tokenize)\n", name_of(s.tokenizer));
  out += fmt::format("chrF2 = {:.2f}\n", s.chrf.score);
  out += fmt::format("signature           {}\n", kChrfSignature);
  out += rouge_text(s);
  out += fmt::format("exact match         {:.2f}% of {}\n", 100 * s.exact, s.sources.size());
  if (o.errors == 0) return out;
  out +=
      fmt::format("\nThe {} outputs with the lowest chrF2 that differ from their targets\n", s.worst.size());
  for (const size_t i : s.worst)
    out += fmt::format("\nchrF2   {:.2f}\nsource  {}\ntarget  {}\noutput  {}\n", s.chrf_of[i],
                       one_line(s.sources[i]), one_line(s.references[i]), one_line(s.outputs[i]));
  return out;
}

}  // namespace

void eval_pairs(const EvalOptions& o, const TextModel& m) {
  m.expect_generation();
  const SequenceModel sequence = sequence_model(m, o.dir);
  const PairTexts texts = pairs_of(o, m);
  const Evaluation e = evaluate(*m.model, tokenize_pairs(texts, m.tokenizer), sequence.ends, o.batch_tokens);
  expect_uncut(o, m, e.cut, "sources or targets");
  BeamOptions beam = m.generation.search_options();
  if (o.beams > 0) beam.beams = o.beams;
  if (texts.skipped > 0)
    fmt::print(stderr, "note: {} pairs have an empty side and were left out\n", texts.skipped);
  if (e.cut > 0)
    fmt::print(stderr, "note: {} sources or targets are longer than the model's {} tokens and were cut\n",
               e.cut, m.model->spec().context);
  Scores s;
  s.sources.assign(texts.source.begin(), texts.source.end());
  s.references.assign(texts.target.begin(), texts.target.end());
  for (const auto& best : translate(sequence, s.sources, beam).best) s.outputs.push_back(best.front().text);
  add_scores(o, s);
  print(o.json ? scores_json(o, e, s, beam.beams) : scores_text(o, e, s, beam.beams));
}

}  // namespace qkv
