#include "qkv/train/tasks/evaluate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <set>

#include "qkv/infer/predict.h"
#include "qkv/nn/streams.h"
#include "qkv/ops/rows.h"
#include "qkv/ops/score_losses.h"
#include "qkv/train/corpora/conversations.h"

namespace qkv {

namespace {

// Passes for losses and scores. In bf16 they take the products of training, of which no row stands alone.
class Judging {
 public:
  explicit Judging(const Transformer& model) {
    if (model.parameters().compute == DType::bf16) quick_.emplace();
  }

 private:
  NoGrad guard_;
  std::optional<PartOfTraining> quick_;
};

constexpr uint64_t kValidationPrefixes = 0x76616c6964;  // "valid"

// The sum of a batch's losses and their number: of the next token, and of each module.
std::vector<double> numbers_of(const CrossEntropyResult& r) {
  std::vector<double> out = {r.total, static_cast<double>(r.count)};
  for (const auto& [total, count] : r.further) out.insert(out.end(), {total, static_cast<double>(count)});
  return out;
}

}  // namespace

void add_losses(const std::vector<std::vector<double>>& batches, Evaluation& e) {
  std::vector<double> sums;
  for (const std::vector<double>& b : batches) {
    sums.resize(b.size());
    for (size_t i = 0; i < b.size(); ++i) sums[i] += b[i];
  }
  if (sums.empty()) return;
  e.total += sums[0];
  e.tokens += std::llround(sums[1]);
  for (size_t i = 2; i < sums.size(); i += 2)
    if (sums[i + 1] > 0) e.losses.emplace_back(fmt::format("mtp_{}", i / 2), sums[i] / sums[i + 1]);
}

std::vector<double> losses_of(const Transformer& model, const Batch& b) {
  return numbers_of(model.loss(b, b.targets, {}, 1));
}

namespace {

// In parts, of which ranks take some side by side; what layers remember of a part goes along.
void evaluate_with_memory(const Transformer& model, const TokenStream& stream, int64_t windows,
                          int64_t length, Communicator& ranks, Evaluation& e) {
  // Whatever the batch, as each part begins without a memory: of so many windows at least, while there are
  // enough.
  constexpr int64_t kStreams = 8, kWindows = 16, kTogether = 2;
  const int64_t all = (stream.size() - 1 + length - 1) / length;
  if (all <= 0) return;
  const int64_t count = std::clamp<int64_t>(all / kWindows, 1, kStreams);
  const StreamWindows streams(stream, length, count);
  const int64_t steps =
      windows == 0 ? streams.steps() : std::min(streams.steps(), std::max<int64_t>(1, windows / count));
  const auto losses = ranks.share((count + kTogether - 1) / kTogether, [&](int64_t i) {
    const int64_t first = i * kTogether, together = std::min(kTogether, count - first);
    SegmentStates states = model.make_segment_states(together);
    Context context;
    context.segment_states = &states;
    std::vector<double> sums;
    for (int64_t step = 0; step < steps; ++step) {
      const Batch b = streams.batch_of_pass(step, first, together);
      if (b.windows.empty()) break;
      load_streams(states, b);
      const std::vector<double> now = numbers_of(model.loss(b, b.targets, context, 1));
      store_streams(states, b);
      sums.resize(now.size());
      std::ranges::transform(sums, now, sums.begin(), std::plus<>());
    }
    return sums;
  });
  add_losses(losses, e);
}

}  // namespace

Evaluation evaluate(const Transformer& model, const TokenStream& stream, int64_t batch, int64_t windows,
                    int64_t length, Communicator& ranks) {
  const Judging guard(model);
  if (length == 0) length = model.spec().context;
  const EveryWindow every(stream, length, windows);
  Evaluation e;
  e.of_tokens = stream.size() - stream.beginnings;
  e.characters = stream.characters;
  e.bytes = stream.bytes;
  if (model.spec().memory > 0) {
    evaluate_with_memory(model, stream, windows, length, ranks, e);
    return e;
  }
  const bool prefixes = model.spec().order == Order::prefix;
  int64_t sequences = 0, seen = 0;  // in the first `seen` batches: prefixes do not depend on the batches
  const auto losses = ranks.share((every.windows() + batch - 1) / batch, [&](int64_t i) {
    for (; prefixes && seen < i; ++seen) sequences += every.batch(seen * batch, batch).layout.sequences();
    Batch b = every.batch(i * batch, batch);
    if (prefixes) draw_prefixes(b, kValidationPrefixes, 0, sequences);
    return losses_of(model, b);
  });
  add_losses(losses, e);
  return e;
}

Evaluation evaluate(const Transformer& model, const PairStream& pairs, const SequenceEnds& ends,
                    int64_t tokens, Communicator& ranks) {
  const Judging guard(model);
  Evaluation e;
  const CutPairs cut = count_cut(pairs, ends, model.spec().pair_layout());
  e.cut = std::max(cut.sources, cut.targets);
  if (cut.targets == 0) {  // else nobody knows how many characters the predicted tokens are
    e.characters = pairs.target.characters;
    e.bytes = pairs.target.bytes;
  }
  const std::vector<int64_t> lengths = pair_lengths(pairs, ends, model.spec().context);
  const auto batches = batches_by_length(lengths, tokens);
  add_losses(ranks.share(std::ssize(batches),
                         [&](int64_t i) {
                           return losses_of(model, pair_batch(pairs, batches[static_cast<size_t>(i)], ends,
                                                              model.spec().pair_layout()));
                         }),
             e);
  e.of_tokens = e.tokens;
  return e;
}

Evaluation evaluate(const Transformer& model, const EncodedConversations& conversations, int64_t tokens,
                    Communicator& ranks) {
  const Judging guard(model);
  Evaluation e;
  e.cut = conversations.cut;
  e.missed = conversations.lost;
  const auto batches = batches_by_length(conversations.stream.lengths(), tokens);
  add_losses(ranks.share(std::ssize(batches),
                         [&](int64_t i) {
                           return losses_of(
                               model, labelled_batch(conversations.stream, batches[static_cast<size_t>(i)]));
                         }),
             e);
  e.of_tokens = conversations.stream.tokens.size();
  return e;
}

namespace {

// The model's labels, and behind them those of examples that it was not taught, sorted.
std::vector<std::string> labels_of_all(const ModelSpec& spec, std::span<const Example> examples) {
  const LabelIndex known(spec.labels);
  std::set<std::string> unseen;
  const auto look_at = [&](const std::string& label, const std::string& place) {
    if (known.find(label) || !unseen.insert(label).second) return;
    check(unseen.size() <= kMostUnseenLabels,
          "{}: the label '{}' is one of more than {} that the model was not taught: choose the column of the "
          "labels",
          place, label, kMostUnseenLabels);
  };
  for (const Example& e : examples) {
    if (spec.output == Output::sequence_classes && spec.problem == Problem::single_label)
      look_at(e.label, e.place);
    for (const std::string& tag : e.tags) look_at(tag, e.place);
  }
  std::vector<std::string> all = spec.labels;
  all.insert(all.end(), unseen.begin(), unseen.end());
  return all;
}

// A wrong prediction of an example.
struct Found {
  size_t example;
  int64_t word;           // for tags: index of the word; else -1
  std::string predicted;  // empty if truncation removed the word
  double score;           // see Mistake
};

// Moves the worst `most` of `all` to the evaluation.
void take_worst(std::vector<Found> all, const std::vector<Example>& examples, const ModelSpec& spec,
                int64_t most, Evaluation& e) {
  const bool answers = spec.output == Output::span, numbers = spec.problem == Problem::regression;
  e.mistaken = std::ssize(all);
  std::ranges::stable_sort(
      all, [&](const Found& a, const Found& b) { return answers ? a.score < b.score : a.score > b.score; });
  if (std::ssize(all) > most) all.resize(static_cast<size_t>(most));
  for (const Found& found : all) {
    const Example& x = examples[found.example];
    const bool tag = found.word >= 0;
    Mistake m;
    m.place = x.place;
    m.text = x.text.first;
    m.second = x.text.second;
    m.score = found.score;
    if (tag) m.word = x.words[static_cast<size_t>(found.word)];
    m.right = tag ? x.tags[static_cast<size_t>(found.word)] : x.label;
    if (!tag || !found.predicted.empty()) m.predicted = found.predicted;
    m.answer = answers;
    m.number = numbers;
    e.mistakes.push_back(std::move(m));
  }
}

// How one kind of predictions is judged.
class Judge {
 public:
  virtual ~Judge() = default;
  // The scores of one example, and its index.
  virtual void add(const Tensor& scores, const EncodedText& text, const Example& example, size_t number,
                   Evaluation& e) = 0;
  // One that has no text.
  virtual void miss(const Example& /*example*/, Evaluation& e) { ++e.without_text; }
  virtual void finish(Evaluation& e) const = 0;
  const std::vector<Found>& mistakes() const { return mistakes_; }

 protected:
  std::vector<Found> mistakes_;
};

// Classes and tags: -log P, and the confusion matrix.
class ClassScores : public Judge {
 public:
  ClassScores(const ModelSpec& spec, std::span<const Example> examples)
      : spec_(spec),
        labels_(labels_of_all(spec, examples)),
        label_(labels_),
        confusion_(std::ssize(labels_)) {}

  // scores [1, C], of tags [tokens, C].
  void add(const Tensor& scores, const EncodedText& text, const Example& example, size_t number,
           Evaluation& e) override {
    if (spec_.output == Output::sequence_classes) {
      add_row(scores, 0, {label_(example.label, example.place), number, -1}, e);
      return;
    }
    const std::vector<int64_t> first = first_tokens(text.encoding, example.words);
    std::vector<std::string> found;
    for (size_t w = 0; w < first.size(); ++w) {
      const Gold gold{label_(example.tags[w], example.place), number, static_cast<int64_t>(w)};
      if (first[w] >= 0) {
        found.push_back(labels_[add_row(scores, first[w], gold, e)]);
        continue;
      }
      confusion_.miss(gold.label);
      ++e.missed;
      e.unseen += !is_taught(gold);
      found.emplace_back("O");
      note_mistake(gold, "", 0);
    }
    e.chunks.add(example.tags, found);
  }

  void miss(const Example& example, Evaluation& e) override {
    ++e.without_text;
    if (spec_.output != Output::sequence_classes) return;
    const int32_t gold = label_(example.label, example.place);
    confusion_.miss(gold);
    e.unseen += !is_taught({gold, 0, -1});
  }

  void finish(Evaluation& e) const override {
    e.scores = {{"accuracy", confusion_.accuracy()}, {"macro_f1", confusion_.macro_f1()}};
    if (spec_.output == Output::sequence_classes)
      e.scores.emplace_back("matthews", confusion_.matthews());
    else if (describe_chunks(spec_.labels))
      e.scores.emplace_back("f1", e.chunks.f1());
    e.confusion = confusion_;
    e.labels = labels_;
  }

 private:
  // The right label of an example, or of one of its words.
  struct Gold {
    int32_t label;
    size_t example;
    int64_t word;
  };

  bool is_taught(const Gold& gold) const { return gold.label < std::ssize(spec_.labels); }
  void note_mistake(const Gold& gold, const std::string& predicted, double probability) {
    mistakes_.push_back({gold.example, gold.word, predicted, probability});
  }

  // The class with the highest score.
  int64_t add_row(const Tensor& scores, int64_t row, const Gold& gold, Evaluation& e) {
    const auto z = scores.row<float>(row);
    const auto best = std::max_element(z.begin(), z.end());
    double sum = 0;
    for (const float x : z) sum += std::exp(double{x} - *best);
    if (is_taught(gold)) {
      e.total += std::log(sum) + *best - z[gold.label];
      ++e.tokens;
    } else {
      ++e.unseen;
    }
    confusion_.add(gold.label, best - z.begin());
    if (best - z.begin() != gold.label) note_mistake(gold, labels_[best - z.begin()], 1 / sum);
    return best - z.begin();
  }

  const ModelSpec& spec_;
  std::vector<std::string> labels_;
  LabelIndex label_;
  ConfusionMatrix confusion_;
};

// Labels of which several may apply: binary cross-entropy, and which were found.
class LabelScores : public Judge {
 public:
  LabelScores(const ModelSpec& spec, std::span<const Example> examples)
      : spec_(spec), labels_(labels_of_all(spec, examples)), label_(labels_), sets_(std::ssize(labels_)) {}

  void add(const Tensor& scores, const EncodedText& /*text*/, const Example& example, size_t number,
           Evaluation& e) override {
    const std::vector<bool> gold = labels_in(example);
    const std::vector<double> p = class_values(spec_, scores, 0);
    Tensor wanted = Tensor::zeros(scores.shape(), DType::f32);
    std::vector<bool> found(labels_.size());
    double worst = 0;  // probability of the surest mistake
    for (size_t c = 0; c < p.size(); ++c) {
      wanted.mutable_values<float>()[c] = gold[c] ? 1.0F : 0.0F;
      found[c] = p[c] >= kApplies;
      if (found[c] != gold[c]) worst = std::max(worst, found[c] ? p[c] : 1 - p[c]);
    }
    e.total += binary_cross_entropy(scores, wanted, 1).total;
    ++e.tokens;
    sets_.add(gold, found);
    if (has_untaught(gold)) {
      ++e.unseen;
      worst = 1;
    }
    if (found != gold) mistakes_.push_back({number, -1, said_of(spec_, scores), worst});
  }
  void miss(const Example& example, Evaluation& e) override {
    ++e.without_text;
    const std::vector<bool> gold = labels_in(example);
    sets_.add(gold, std::vector<bool>(labels_.size()));
    e.unseen += has_untaught(gold);
  }
  void finish(Evaluation& e) const override {
    e.scores = {
        {"micro_f1", sets_.micro_f1()}, {"macro_f1", sets_.macro_f1()}, {"exact_match", sets_.exact_match()}};
    e.label_sets = sets_;
    e.labels = labels_;
  }

 private:
  bool has_untaught(const std::vector<bool>& gold) const {
    return std::find(gold.begin() + std::ssize(spec_.labels), gold.end(), true) != gold.end();
  }
  std::vector<bool> labels_in(const Example& example) const {
    std::vector<bool> out(labels_.size());
    for (const std::string& label : example.tags)
      out[static_cast<size_t>(label_(label, example.place))] = true;
    return out;
  }

  const ModelSpec& spec_;
  std::vector<std::string> labels_;
  LabelIndex label_;
  LabelSets sets_;
};

// Numbers: squared errors and correlations. An example without text has no prediction.
class NumberScores : public Judge {
 public:
  void add(const Tensor& scores, const EncodedText& /*text*/, const Example& example, size_t number,
           Evaluation& e) override {
    check(scores.width() == 1, "{}: the model predicts {} numbers, an example has one", example.place,
          scores.width());
    const double predicted = scores.row<float>(0)[0];
    pairs_.gold.push_back(example.number);
    pairs_.predicted.push_back(predicted);
    const double error = example.number - predicted;
    e.total += error * error;
    ++e.tokens;
    mistakes_.push_back({number, -1, fmt::format("{:.4f}", predicted), std::abs(error)});
  }
  void finish(Evaluation& e) const override {
    e.scores = {{"pearson", pairs_.pearson()},
                {"spearman", pairs_.spearman()},
                {"rmse", pairs_.rmse()},
                {"mae", pairs_.mae()}};
  }

 private:
  NumberPairs pairs_;
};

// Answers: -log P of their ends, and how they read.
class AnswerScores : public Judge {
 public:
  void add(const Tensor& scores, const EncodedText& text, const Example& example, size_t number,
           Evaluation& e) override {
    if (const auto gold = answer_tokens(text.encoding, example)) {
      const std::vector<int32_t> offsets = {0, static_cast<int32_t>(scores.rows())};
      const Indices target({gold->first, gold->second}, 2);
      const FoundRowsLoss loss = find_rows_cross_entropy(scores, offsets, target, 1);
      e.total += loss.total;
      e.tokens += loss.count;
    } else {
      ++e.missed;
    }
    const std::string found = best_answer(scores, text, example.text).text;
    const bool exact = answer_matches(example.label, found);
    const double f1 = answer_f1(example.label, found);
    exact_ += exact ? 1 : 0;
    f1_ += f1;
    if (!exact) mistakes_.push_back({number, -1, found, f1});
  }
  void finish(Evaluation& e) const override {
    const double n = std::max<double>(1, static_cast<double>(e.examples));
    e.scores = {{"exact_match", exact_ / n}, {"f1", f1_ / n}};
  }

 private:
  double exact_ = 0, f1_ = 0;
};

// Questions with choices: -log P of the right one, and whether its score is the highest.
class ChoiceScores : public Judge {
 public:
  explicit ChoiceScores(const ModelSpec& spec) : spec_(spec) {}
  // scores [1, choices].
  void add(const Tensor& scores, const EncodedText& /*text*/, const Example& example, size_t number,
           Evaluation& e) override {
    const std::vector<int32_t> offsets = {0, static_cast<int32_t>(scores.width())};
    const FoundRowsLoss loss = find_rows_cross_entropy(scores.reshape({scores.width(), 1}), offsets,
                                                       Indices({static_cast<int32_t>(example.right)}), 1);
    e.total += loss.total;
    e.tokens += loss.count;
    const std::vector<double> p = class_values(spec_, scores, 0);
    const auto best = std::ranges::max_element(p);
    if (best - p.begin() == example.right)
      ++right_;
    else
      mistakes_.push_back({number, -1, example.choices[static_cast<size_t>(best - p.begin())], *best});
  }
  void finish(Evaluation& e) const override {
    e.scores = {
        {"accuracy", static_cast<double>(right_) / std::max<double>(1, static_cast<double>(e.examples))}};
  }

 private:
  const ModelSpec& spec_;
  int64_t right_ = 0;
};

std::unique_ptr<Judge> judge_of(const ModelSpec& spec, std::span<const Example> examples) {
  if (spec.output == Output::span) return std::make_unique<AnswerScores>();
  if (spec.problem == Problem::regression) return std::make_unique<NumberScores>();
  if (spec.problem == Problem::multi_label) return std::make_unique<LabelScores>(spec, examples);
  if (spec.problem == Problem::multiple_choice) return std::make_unique<ChoiceScores>(spec);
  return std::make_unique<ClassScores>(spec, examples);
}

}  // namespace

Evaluation evaluate(const Transformer& model, const text::Tokenizer& tokenizer,
                    const std::vector<Example>& examples, int64_t tokens, int64_t mistakes,
                    Communicator& ranks) {
  constexpr size_t kAtOnce = 4096;  // whose scores are held, and which are sorted by length among each other
  const Judging guard(model);
  const ModelSpec& spec = model.spec();
  Evaluation e;
  e.examples = std::ssize(examples);
  const std::unique_ptr<Judge> judge = judge_of(spec, examples);
  for (size_t begin = 0; begin < examples.size(); begin += kAtOnce) {
    std::vector<EncodedText> texts;
    std::vector<std::pair<size_t, size_t>> which;  // an example, and the first of its texts
    for (size_t i = begin; i < std::min(begin + kAtOnce, examples.size()); ++i) {
      if (examples[i].text.first.empty()) {  // an answer to no question is as wrong: nothing is added
        judge->miss(examples[i], e);
        continue;
      }
      which.emplace_back(i, texts.size());
      const std::vector<EncodedText> its = encode_example(examples[i], tokenizer, spec);
      e.cut += std::ranges::any_of(its, &EncodedText::cut);
      texts.insert(texts.end(), its.begin(), its.end());
    }
    if (texts.empty()) continue;
    const std::vector<Tensor> scores = class_scores(model, texts, tokens, ranks);
    for (const auto& [i, first] : which) {
      const Example& example = examples[i];
      const bool choices = spec.problem == Problem::multiple_choice;
      judge->add(choices ? scores_of_choices(std::span(scores).subspan(first, example.choices.size()))
                         : scores[first],
                 texts[first], example, i, e);
    }
  }
  e.of_tokens = e.tokens;
  judge->finish(e);
  take_worst(judge->mistakes(), examples, spec, mistakes, e);
  return e;
}

}  // namespace qkv
