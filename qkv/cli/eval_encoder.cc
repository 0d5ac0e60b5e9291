// qkv eval for encoders: classes, tags, answers, hidden tokens.
#include <algorithm>
#include <cstdio>

#include "qkv/base/json.h"
#include "qkv/base/json_value.h"
#include "qkv/cli/console.h"
#include "qkv/cli/eval_command.h"
#include "qkv/train/corpus.h"
#include "qkv/train/evaluate.h"
#include "qkv/train/masked_text.h"
#include "qkv/train/text_pairs.h"

namespace qkv {
namespace {

constexpr int64_t kMostClasses = 20;  // that are printed one by one

std::string percent(double share) {
  return fmt::format("{:.2f}%", 100 * share);
}

std::string classes_text(const ConfusionMatrix& m, const std::vector<std::string>& labels) {
  std::vector<std::vector<std::string>> rows = {{"class", "precision", "recall", "F1", "occurs"}};
  for (int64_t c = 0; c < m.classes; ++c)
    rows.push_back({labels[c], percent(m.precision(c)), percent(m.recall(c)), percent(m.f1(c)),
                    std::to_string(m.gold(c))});
  std::string out = "\n" + table_text(rows);
  rows = {{"right \\ found"}};
  rows[0].insert(rows[0].end(), labels.begin(), labels.end());
  const bool missed = std::any_of(m.missed.begin(), m.missed.end(), [](int64_t n) { return n > 0; });
  if (missed) rows[0].emplace_back("(cut away)");
  for (int64_t g = 0; g < m.classes; ++g) {
    rows.push_back({labels[g]});
    for (int64_t p = 0; p < m.classes; ++p) rows.back().push_back(std::to_string(m.count[g * m.classes + p]));
    if (missed) rows.back().push_back(std::to_string(m.missed[g]));
  }
  return out + "\n" + table_text(rows);
}

void add_classes(OrderedJson& out, const ConfusionMatrix& m, const std::vector<std::string>& labels) {
  out["classes"] = OrderedJson::array();
  out["confusion"] = OrderedJson::array();  // a row for each class that is right
  for (int64_t c = 0; c < m.classes; ++c) {
    out["classes"].push_back({{"label", labels[c]},
                              {"precision", m.precision(c)},
                              {"recall", m.recall(c)},
                              {"f1", m.f1(c)},
                              {"gold", m.gold(c)},
                              {"predicted", m.predicted(c)}});
    const auto row = m.count.begin() + c * m.classes;
    out["confusion"].push_back(std::vector<int64_t>(row, row + m.classes));
  }
}

void print_json(const OrderedJson& out) {
  print(out.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) + "\n");
}

void eval_labelled(const EvalOptions& o, const TextModel& m) {
  const ModelSpec& spec = m.model->spec();
  DataConfig columns = o.columns;
  if (spec.output == Output::span) {
    if (columns.text_column.empty()) columns.text_column = "question";
    if (columns.second_column.empty()) columns.second_column = "context";
    if (columns.label_column.empty()) columns.label_column = "answer";
  } else {
    if (columns.text_column.empty()) columns.text_column = "text";
    if (columns.label_column.empty()) columns.label_column = "label";
  }
  const std::vector<Example> examples = read_examples({o.data}, columns, spec.output);
  const Evaluation e = evaluate(*m.model, m.tokenizer, examples, o.batch_tokens);
  expect_uncut(o, m, e.cut, "examples");
  const bool tags = spec.output == Output::token_classes, span = spec.output == Output::span;
  if (o.json) {
    OrderedJson out = {{"loss", e.loss()}};
    for (const auto& [name, value] : e.scores) out[name] = value;
    if (!span) out["micro_f1"] = e.confusion.micro_f1();
    if (tags) {
      out["chunk_precision"] = e.chunks.precision();
      out["chunk_recall"] = e.chunks.recall();
    }
    out["examples"] = e.examples;
    if (tags) out["words"] = e.confusion.total();
    out["cut"] = e.cut;
    out["missed"] = e.missed;
    if (!span) add_classes(out, e.confusion, spec.labels);
    print_json(out);
    return;
  }
  std::vector<std::vector<std::string>> rows;
  rows.push_back(
      {"loss", fmt::format("{:.4f}", e.loss()), fmt::format("nats {}", tags ? "a word" : "an example")});
  for (const auto& [name, value] : e.scores) rows.push_back({name, score_text(name, value), ""});
  if (!span) rows.push_back({"micro_f1", percent(e.confusion.micro_f1()), ""});
  std::string out;
  for (const auto& row : rows)
    out += fmt::format("{:<12}  {}{}{}\n", row[0], row[1], row[2].empty() ? "" : " ", row[2]);
  if (tags)
    out +=
        fmt::format("chunks        precision {}, recall {}, {} of {} found\n", percent(e.chunks.precision()),
                    percent(e.chunks.recall()), e.chunks.correct, e.chunks.gold);
  out += tags ? fmt::format("of            {} words in {} sentences\n", e.confusion.total(), e.examples)
              : fmt::format("of            {} examples\n", e.examples);
  if (e.cut > 0)
    out += fmt::format("cut           {} were longer than {} tokens{}\n", e.cut, spec.context,
                       e.missed == 0 ? ""
                       : tags        ? fmt::format(": {} words beyond count as wrong", e.missed)
                                     : fmt::format(": {} of them lost the answer", e.missed));
  if (!span)
    out += spec.labels.size() <= kMostClasses
               ? classes_text(e.confusion, spec.labels)
               : fmt::format("classes       {}: --json lists them\n", spec.labels.size());
  print(out);
}

void eval_hidden(const EvalOptions& o, const TextModel& m) {
  const EncoderTokens ends = encoder_tokens(m.tokenizer);
  const TokenStream stream = stream_of(o, m);
  const int64_t context = m.model->spec().context;
  check(context > 2, "{}: a context of {} tokens leaves no room for a text", o.dir, context);
  Masking masking = masking_for(m.tokenizer, o.masking);
  masking.permuted = m.model->spec().order == Order::permuted;
  masking.next_sentence = !m.model->spec().labels.empty();
  const std::vector<Piece> pieces = pieces_with_words(stream, m.tokenizer, context, ends_of(masking));
  check(!pieces.empty(), "{}: there is no token to hide", o.data);
  const Evaluation e = evaluate_masked(*m.model, stream, pieces, masking, ends, o.batch_tokens, o.mask_seed);
  if (o.json) {
    OrderedJson out = {{"loss", e.loss()},           {"perplexity", e.perplexity()},
                       {"hidden", e.tokens},         {"tokens", stream.size()},
                       {"sequences", pieces.size()}, {"mask_rate", o.masking.rate},
                       {"seed", o.mask_seed}};
    for (const auto& [name, value] : e.scores) out[name] = value;
    print_json(out);
    return;
  }
  std::string out = fmt::format(
      "loss          {:.4f} nats a hidden token ({} of {} tokens in {} sequences)\n"
      "perplexity    {:.2f}\n",
      e.loss(), e.tokens, stream.size(), pieces.size(), e.perplexity());
  for (const auto& [name, value] : e.scores)
    out += fmt::format("{:<12}  {} of {} pairs\n", name, percent(value), e.examples);
  print(out);
}

// Whether the texts of pairs are near each other.
void eval_vectors(const EvalOptions& o, const TextModel& m) {
  if (o.columns.second_column.empty())
    throw UsageError(
        fmt::format("--second-column: name the other text of each row: {} makes vectors, which are "
                    "judged by whether those of a pair are near each other",
                    o.dir));
  DataConfig columns = o.columns;
  if (columns.text_column.empty()) columns.text_column = "text";
  const EncodedPairs pairs(read_text_pairs({o.data}, columns), m.tokenizer, m.model->spec());
  expect_uncut(o, m, pairs.cut(), "pairs");
  const Evaluation e = evaluate_pairs(*m.model, pairs);
  const Retrieval r = retrieve(*m.model, pairs, o.batch_tokens);
  const int64_t group = std::min(pairs.size(), kPairsToChooseFrom);
  if (o.json) {
    print_json({{"loss", e.loss()},
                {"accuracy", e.score("accuracy")},
                {"among", group},
                {"first", r.first},
                {"among_ten", r.among_ten},
                {"mean_reciprocal_rank", r.reciprocal_rank},
                {"pairs", pairs.size()},
                {"cut", e.cut}});
    return;
  }
  std::string out = fmt::format("loss          {:.4f} nats a pair, among {}\n", e.loss(), group);
  out += fmt::format("accuracy      {} found among {}\n", percent(e.score("accuracy")), group);
  out += fmt::format("of all {:<6} {} stand first, {} among the first ten, mean reciprocal rank {:.4f}\n",
                     pairs.size(), percent(r.first), percent(r.among_ten), r.reciprocal_rank);
  if (e.cut > 0)
    out += fmt::format("cut           {} were longer than {} tokens\n", e.cut, m.model->spec().context);
  print(out);
}

}  // namespace

void eval_encoder(const EvalOptions& o, const TextModel& m) {
  const Output output = m.model->spec().output;
  if (output == Output::embedding)
    eval_vectors(o, m);
  else if (output == Output::tokens)
    eval_hidden(o, m);
  else
    eval_labelled(o, m);
}

}  // namespace qkv
