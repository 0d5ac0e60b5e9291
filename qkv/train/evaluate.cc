#include "qkv/train/evaluate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "qkv/infer/predict.h"
#include "qkv/ops/rows.h"

namespace qkv {

double Evaluation::score(std::string_view name) const {
  for (const auto& [its_name, value] : scores)
    if (its_name == name) return value;
  return 0;
}
double Evaluation::perplexity() const {
  return std::exp(loss());
}
// The text's characters are shared out over its tokens, predicted or not.
double Evaluation::nats_per_character() const {
  return characters ? loss() * static_cast<double>(of_tokens) / static_cast<double>(characters) : 0;
}
double Evaluation::bits_per_byte() const {
  return bytes ? loss() * static_cast<double>(of_tokens) / static_cast<double>(bytes) / std::numbers::ln2 : 0;
}

Evaluation evaluate(const Transformer& model, const TokenStream& stream, int64_t batch, int64_t windows) {
  const NoGrad guard;
  const EveryWindow every(stream, model.spec().context, windows);
  Evaluation e;
  e.of_tokens = stream.size();
  e.characters = stream.characters;
  e.bytes = stream.bytes;
  for (int64_t first = 0; first < every.windows(); first += batch) {
    const Batch b = every.batch(first, batch);
    Context context;
    const CrossEntropyResult r = model.loss(b, b.targets, context, 1);
    e.total += r.total;
    e.tokens += r.count;
  }
  return e;
}

Evaluation evaluate(const Transformer& model, const PairStream& pairs, SequenceEnds ends, int64_t tokens) {
  const NoGrad guard;
  Evaluation e;
  e.characters = pairs.target.characters;
  e.bytes = pairs.target.bytes;
  const std::vector<int64_t> lengths = pair_lengths(pairs, model.spec().context);
  for (const std::vector<int64_t>& which : batches_by_length(lengths, tokens)) {
    const Batch b = pair_batch(pairs, which, ends, model.spec().context);
    const CrossEntropyResult r = model.loss(b, b.targets, {}, 1);
    e.total += r.total;
    e.tokens += r.count;
  }
  e.of_tokens = e.tokens;
  return e;
}

namespace {

// Adds -log P of the targets of one batch, and what was found for them.
class ClassScores {
 public:
  explicit ClassScores(const ModelSpec& spec) : spec_(spec), confusion_(std::ssize(spec.labels)) {}

  // logits [M, C], a row a target.
  void add(const Tensor& logits, std::span<const int32_t> targets, Evaluation& e) {
    const int64_t classes = logits.width();
    std::vector<std::string> gold_tags, found_tags;
    for (int64_t r = 0; r < logits.rows(); ++r) {
      if (targets[r] == kIgnored) continue;
      const std::span<const float> z(logits.data<float>() + r * classes, classes);
      const auto best = std::max_element(z.begin(), z.end());
      double sum = 0;
      for (const float x : z) sum += std::exp(double{x} - *best);
      e.total += std::log(sum) + *best - z[targets[r]];
      ++e.tokens;
      const auto found = best - z.begin();
      confusion_.add(targets[r], found);
      gold_tags.push_back(spec_.labels[targets[r]]);
      found_tags.push_back(spec_.labels[found]);
    }
    if (spec_.output == Output::token_classes) chunks_.add(gold_tags, found_tags);
  }

  void finish(Evaluation& e) const {
    e.scores = {{"accuracy", confusion_.accuracy()}, {"macro_f1", confusion_.macro_f1()}};
    if (spec_.output == Output::token_classes)
      e.scores.emplace_back("f1", chunks_.f1());
    else
      e.scores.emplace_back("matthews", confusion_.matthews());
    e.confusion = confusion_;
  }

 private:
  const ModelSpec& spec_;
  ConfusionMatrix confusion_;
  ChunkCounts chunks_;
};

// Answers by their tokens: the same ones, and the F1 of those that both have.
class SpanScores {
 public:
  void add(const Tensor& scores, std::span<const int32_t> segments, std::span<const int32_t> target) {
    if (target[0] == kIgnored) return;
    const TokenSpan found = best_span(scores, segments);
    exact_ += found.begin == target[0] && found.end == target[1] + 1 ? 1 : 0;
    const int64_t shared = std::max<int64_t>(
        0, std::min<int64_t>(found.end, target[1] + 1) - std::max<int64_t>(found.begin, target[0]));
    f1_ += 2 * static_cast<double>(shared) /
           static_cast<double>(found.end - found.begin + target[1] + 1 - target[0]);
    ++count_;
  }
  void finish(Evaluation& e) const {
    const double n = std::max<double>(1, static_cast<double>(count_));
    e.scores = {{"exact_match", exact_ / n}, {"f1", f1_ / n}};
  }

 private:
  double exact_ = 0, f1_ = 0;
  int64_t count_ = 0;
};

}  // namespace

Evaluation evaluate(const Transformer& model, const LabelledStream& stream, int64_t tokens) {
  const NoGrad guard;
  const bool span = stream.output == Output::span;
  Evaluation e;
  ClassScores classes(model.spec());
  SpanScores spans;
  const std::vector<int64_t> lengths = stream.lengths();
  for (const std::vector<int64_t>& which : batches_by_length(lengths, tokens)) {
    const Batch b = labelled_batch(stream, which);
    const Tensor scores = model.classes(model.hidden(b, {}), b, {});
    if (span) {
      const SpanLoss loss = span_cross_entropy(scores, b.layout.offsets, b.targets, 1);
      e.total += loss.total;
      e.tokens += loss.count;
    }
    for (size_t i = 0; i < which.size(); ++i) {
      const int64_t begin = b.layout.offsets[i], end = b.layout.offsets[i + 1];
      const auto targets = stream.targets_of(which[i]);
      if (span)
        spans.add(scores.slice_rows(begin, end), b.segments.values<int32_t>().subspan(begin, end - begin),
                  targets);
      else if (stream.output == Output::token_classes)
        classes.add(scores.slice_rows(begin, end), targets, e);
      else
        classes.add(scores.slice_rows(static_cast<int64_t>(i), static_cast<int64_t>(i) + 1), targets, e);
    }
  }
  e.of_tokens = e.tokens;
  span ? spans.finish(e) : classes.finish(e);
  return e;
}

}  // namespace qkv
