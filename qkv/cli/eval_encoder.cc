// qkv eval for encoders: classes, tags, answers, masked tokens.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <functional>

#include "qkv/base/json.h"
#include "qkv/base/json_value.h"
#include "qkv/cli/console.h"
#include "qkv/cli/eval_command.h"
#include "qkv/train/corpora/corpus.h"
#include "qkv/train/tasks/evaluate.h"
#include "qkv/train/tasks/masked_text.h"
#include "qkv/train/tasks/text_pairs.h"

namespace qkv {
namespace {

constexpr int64_t kMostClasses = 20;  // more are not printed one by one

std::string percent(double share) {
  return fmt::format("{:.2f}%", 100 * share);
}

std::string classes_text(const ConfusionMatrix& m, const std::vector<std::string>& labels, bool tags) {
  std::vector<std::vector<std::string>> rows = {{"class", "precision", "recall", "F1", "occurs"}};
  for (int64_t c = 0; c < m.classes; ++c)
    rows.push_back({labels[c], percent(m.precision(c)), percent(m.recall(c)), percent(m.f1(c)),
                    std::to_string(m.gold(c))});
  std::string out = "\n" + table_text(rows);
  rows = {{"true \\ predicted"}};
  rows[0].insert(rows[0].end(), labels.begin(), labels.end());
  const bool missed = std::any_of(m.missed.begin(), m.missed.end(), [](int64_t n) { return n > 0; });
  if (missed) rows[0].emplace_back(tags ? "(cut away)" : "(no text)");
  for (int64_t g = 0; g < m.classes; ++g) {
    rows.push_back({labels[g]});
    for (int64_t p = 0; p < m.classes; ++p) rows.back().push_back(std::to_string(m.count[g * m.classes + p]));
    if (missed) rows.back().push_back(std::to_string(m.missed[g]));
  }
  return out + "\n" + table_text(rows);
}

void add_classes(OrderedJson& out, const Evaluation& e) {
  const ConfusionMatrix& m = e.confusion;
  out["classes"] = OrderedJson::array();
  out["confusion"] = OrderedJson::array();  // a row for each true class
  for (int64_t c = 0; c < m.classes; ++c) {
    out["classes"].push_back({{"label", e.labels[c]},
                              {"precision", m.precision(c)},
                              {"recall", m.recall(c)},
                              {"f1", m.f1(c)},
                              {"support", m.gold(c)},
                              {"predicted", m.predicted(c)}});
    const auto row = m.count.begin() + c * m.classes;
    out["confusion"].push_back(std::vector<int64_t>(row, row + m.classes));
  }
}

std::string labels_text(const Evaluation& e) {
  std::vector<std::vector<std::string>> rows = {{"label", "precision", "recall", "F1", "occurs"}};
  const LabelSets& s = e.label_sets;
  for (int64_t c = 0; c < s.labels(); ++c)
    rows.push_back({e.labels[c], percent(s.precision(c)), percent(s.recall(c)), percent(s.f1(c)),
                    std::to_string(s.gold(c))});
  return "\n" + table_text(rows);
}

void add_labels(OrderedJson& out, const Evaluation& e) {
  const LabelSets& s = e.label_sets;
  out["labels"] = OrderedJson::array();
  for (int64_t c = 0; c < s.labels(); ++c)
    out["labels"].push_back({{"label", e.labels[c]},
                             {"precision", s.precision(c)},
                             {"recall", s.recall(c)},
                             {"f1", s.f1(c)},
                             {"support", s.gold(c)}});
}

// ---- Labels that the model has not learnt

// Each with its count, the most frequent first.
std::vector<std::pair<std::string, int64_t>> unseen_labels(const Evaluation& e, const ModelSpec& spec) {
  std::vector<std::pair<std::string, int64_t>> out;
  for (size_t c = spec.labels.size(); c < e.labels.size(); ++c) {
    const auto label = static_cast<int64_t>(c);
    out.emplace_back(e.labels[c],
                     e.confusion.classes > 0 ? e.confusion.gold(label) : e.label_sets.gold(label));
  }
  std::ranges::stable_sort(out, std::ranges::greater(), [](const auto& label) { return label.second; });
  return out;
}

std::string unseen_text(const Evaluation& e, const ModelSpec& spec) {
  constexpr size_t kMostNamed = 8;
  if (e.unseen == 0) return "";
  const auto labels = unseen_labels(e, spec);
  std::vector<std::string> named;
  for (size_t i = 0; i < std::min(kMostNamed, labels.size()); ++i)
    named.push_back(fmt::format("'{}' {}", labels[i].first, labels[i].second));
  const std::string more =
      labels.size() > kMostNamed ? fmt::format(", {} more", labels.size() - kMostNamed) : "";
  return fmt::format("unseen        {} {} a label that training did not have and count as wrong: {}{}\n",
                     e.unseen,
                     spec.output == Output::token_classes ? (e.unseen == 1 ? "word has" : "words have")
                                                          : (e.unseen == 1 ? "example has" : "examples have"),
                     fmt::join(named, ", "), more);
}

// ---- Mistakes

// The beginning of a text, for one line.
std::string excerpt(const std::string& text) {
  constexpr size_t kMost = 100;  // bytes
  std::string line = one_line(text);
  if (line.size() <= kMost) return line;
  size_t end = kMost;
  while (end > 0 && (static_cast<unsigned char>(line[end]) & 0xC0) == 0x80) --end;
  return line.substr(0, end) + "…";
}

std::string mistakes_text(const Evaluation& e, const ModelSpec& spec) {
  const bool answers = spec.output == Output::span, numbers = spec.problem == Problem::regression;
  std::string out = fmt::format("\n{} of {} {}, {} first\n", e.mistakes.size(), e.mistaken,
                                numbers ? "predictions" : "mistakes",
                                answers   ? "those with the lowest F1"
                                : numbers ? "those with the largest error"
                                          : "the most confident");
  for (const Mistake& m : e.mistakes)
    out += fmt::format("{}: {}true {}, predicted {} ({} {:.4f}): {}\n", m.place,
                       m.word ? fmt::format("'{}': ", *m.word) : "", one_line(m.right),
                       one_line(m.predicted.value_or("(cut away)")),
                       answers   ? "F1"
                       : numbers ? "error"
                                 : "probability",
                       m.score, excerpt(answers || m.second.empty() ? m.text : m.text + " | " + m.second));
  return out;
}

// ---- All of it

// The output of a labelled evaluation.
struct Judged {
  const ModelSpec& spec;
  const Evaluation& e;

  bool tags() const { return spec.output == Output::token_classes; }
  bool span() const { return spec.output == Output::span; }
  bool numbers() const { return spec.problem == Problem::regression; }
  // True if each example, or word, has one label.
  bool classes() const { return e.confusion.classes > 0; }
  bool chunks() const { return tags() && describe_chunks(spec.labels); }
  // True if all labels that a loss could measure are missing in the model.
  bool no_loss() const { return e.tokens == 0 && e.unseen > 0; }
};

OrderedJson labelled_json(const EvalOptions& o, const Judged& j) {
  const Evaluation& e = j.e;
  OrderedJson out = {{"loss", j.no_loss() ? OrderedJson(nullptr) : OrderedJson(e.loss())}};
  for (const auto& [name, value] : e.scores) out[name] = value;
  if (j.classes()) out["micro_f1"] = e.confusion.micro_f1();
  if (j.chunks()) {
    out["chunk_precision"] = e.chunks.precision();
    out["chunk_recall"] = e.chunks.recall();
  }
  out["examples"] = e.examples;
  if (j.tags()) out["words"] = e.confusion.total();
  if (e.without_text > 0) out["without_text"] = e.without_text;
  out["truncated"] = e.cut;
  out["missed"] = e.missed;
  if (e.unseen > 0) {
    out["unseen"] = OrderedJson::object();
    for (const auto& [label, n] : unseen_labels(e, j.spec)) out["unseen"][label] = n;
  }
  if (j.classes()) add_classes(out, e);
  if (e.label_sets.labels() > 0) add_labels(out, e);
  if (o.errors > 0) out["errors"] = mistakes_json(e.mistakes);
  return out;
}

std::string labelled_text(const EvalOptions& o, const Judged& j) {
  const Evaluation& e = j.e;
  std::string out = j.no_loss()   ? "loss          n/a\n"
                    : j.numbers() ? fmt::format("loss          {:.4f} squared error per example\n", e.loss())
                                  : fmt::format("loss          {:.4f} nats per {}\n", e.loss(),
                                                j.tags() ? "word" : "example");
  for (const auto& [name, value] : e.scores)
    out += fmt::format("{:<12}  {}\n", score_label(name), score_text(name, value));
  // With one label each, micro F1 equals the accuracy unless some were missed.
  if (j.classes() && e.missed + e.without_text > 0)
    out += fmt::format("{:<12}  {}\n", "micro F1", percent(e.confusion.micro_f1()));
  if (j.chunks())
    out +=
        fmt::format("chunks        precision {}, recall {}, {} of {} found\n", percent(e.chunks.precision()),
                    percent(e.chunks.recall()), e.chunks.correct, e.chunks.gold);
  out += j.tags() ? fmt::format("of            {} words in {} sentences\n", e.confusion.total(), e.examples)
                  : fmt::format("of            {} examples\n", e.examples);
  if (e.without_text > 0)
    out += fmt::format("without text  {} of them, which {}\n", e.without_text,
                       j.numbers() ? "are left out" : "count as wrong");
  if (e.cut > 0)
    out += fmt::format("truncated     {} were longer than {} tokens{}\n", e.cut, j.spec.context,
                       e.missed == 0 ? ""
                       : j.tags()    ? fmt::format(": {} words beyond count as wrong", e.missed)
                                     : fmt::format(": {} of them lost the answer", e.missed));
  out += unseen_text(e, j.spec);
  if (e.label_sets.labels() > 0) out += labels_text(e);
  if (j.classes())
    out += e.labels.size() <= kMostClasses
               ? classes_text(e.confusion, e.labels, j.tags())
               : fmt::format("classes       {}: --json lists them\n", e.labels.size());
  return out + (o.errors > 0 ? mistakes_text(e, j.spec) : "");
}

void eval_labelled(const EvalOptions& o, const TextModel& m) {
  const ModelSpec& spec = m.model->spec();
  DataConfig columns = o.columns;
  if (spec.output == Output::span) {
    if (columns.text_column.empty()) columns.text_column = "question";
    if (columns.second_column.empty()) columns.second_column = "context";
    if (columns.label_column.empty()) columns.label_column = "answer";
  } else {
    const bool choices = spec.problem == Problem::multiple_choice;
    if (columns.text_column.empty()) columns.text_column = choices ? "question" : "text";
    if (columns.label_column.empty()) columns.label_column = "label";
  }
  ReadExamples found;
  std::vector<Example> examples = read_examples({o.data}, columns, spec, &found);
  print_notes(found.notes);
  examples.insert(examples.end(), found.without_text.begin(), found.without_text.end());
  const Evaluation e = evaluate(*m.model, m.tokenizer, examples, o.batch_tokens, o.errors);
  expect_uncut(o, m, e.cut, "examples");
  const Judged j{spec, e};
  print(o.json ? json_text(labelled_json(o, j)) : labelled_text(o, j));
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
    print(json_text(out));
    return;
  }
  std::string out = fmt::format(
      "loss          {:.4f} nats per masked token ({} of {} tokens in {} sequences)\n"
      "perplexity    {:.2f}\n",
      e.loss(), e.tokens, stream.size(), pieces.size(), e.perplexity());
  for (const auto& [name, value] : e.scores)
    out += fmt::format("{:<12}  {} of {} pairs\n", score_label(name), percent(value), e.examples);
  print(out);
}

// Measures how near the texts of a pair are to each other.
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
    print(json_text({{"loss", e.loss()},
                     {"accuracy", e.score("accuracy")},
                     {"candidates", group},
                     {"recall_at_1", r.first},
                     {"recall_at_10", r.among_ten},
                     {"mean_reciprocal_rank", r.reciprocal_rank},
                     {"pairs", pairs.size()},
                     {"truncated", e.cut}}));
    return;
  }
  std::string out = fmt::format("loss          {:.4f} nats per pair, {} candidates\n", e.loss(), group);
  out += fmt::format("accuracy      {} of {} candidates\n", percent(e.score("accuracy")), group);
  out += fmt::format("of all {:<6} recall@1 {}, recall@10 {}, mean reciprocal rank {:.4f}\n", pairs.size(),
                     percent(r.first), percent(r.among_ten), r.reciprocal_rank);
  if (e.cut > 0)
    out += fmt::format("truncated     {} were longer than {} tokens\n", e.cut, m.model->spec().context);
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
