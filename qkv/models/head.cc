#include "qkv/models/head.h"

#include <numeric>
#include <vector>

#include "qkv/ops/elementwise.h"
#include "qkv/ops/rows.h"
#include "qkv/ops/score_losses.h"

namespace qkv {
namespace {

constexpr float kTemperature = 0.05F;  // temperature of the contrastive loss (Gao et al. 2021, SimCSE)

// The loss of tokens (Algorithms 11, 12 and 13). If a batch also has classes of its sequences, the sum of
// both mean losses.
class TokenHead : public Head {
 public:
  TokenHead(const Unembedding& unembedding, const Classifier* sequences)
      : unembedding_(unembedding), sequences_(sequences) {}
  CrossEntropyResult loss(const HeadInput& x, float scale, const LossTerms& terms) const override {
    CrossEntropyResult tokens = unembedding_.loss(x.hidden, x.targets, scale, terms);
    const Indices& of_sequences = x.input.sequence_targets;
    if (!of_sequences.defined()) return tokens;
    check(sequences_ != nullptr, "model: it has no classes of sequences beside its tokens");
    const int64_t sequences = std::ssize(predicted_rows(of_sequences));
    if (sequences == 0) return tokens;
    // `scale` counts tokens; `share` makes the other loss a mean over sequences.
    const float share = scale * static_cast<float>(tokens.count) / static_cast<float>(sequences);
    tokens.loss = add(tokens.loss, sequences_->loss(x.hidden, x.input, of_sequences, x.context, share).loss);
    return tokens;
  }

 private:
  const Unembedding& unembedding_;
  const Classifier* sequences_;
};

// Classes of sequences or tokens.
class ClassHead : public Head {
 public:
  explicit ClassHead(const Classifier& classifier) : classifier_(classifier) {}
  CrossEntropyResult loss(const HeadInput& x, float scale, const LossTerms& terms) const override {
    check(!classifier_.distilled(), "model: a distillation token learns from a teacher, and there is none");
    return classifier_.loss(x.hidden, x.input, x.targets, x.context, scale, terms);
  }

 private:
  const Classifier& classifier_;
};

// Labels of which several may apply, or numbers.
class NumberHead : public Head {
 public:
  NumberHead(const Classifier& classifier, Problem problem) : classifier_(classifier), problem_(problem) {}
  CrossEntropyResult loss(const HeadInput& x, float scale, const LossTerms& /*terms*/) const override {
    const Tensor& wanted = x.input.sequence_numbers;
    check(wanted.defined(), "model: {}: the batch has no numbers for its sequences", name_of(problem_));
    const Tensor scores = classifier_.classes(x.hidden, x.input, x.context);
    const ScoreLoss l = problem_ == Problem::regression ? squared_error(scores, wanted, scale)
                                                        : binary_cross_entropy(scores, wanted, scale);
    return {l.loss, {}, l.total, l.count};
  }

 private:
  const Classifier& classifier_;
  Problem problem_;
};

// The first and the last token of an answer in its sequence.
class SpanHead : public Head {
 public:
  explicit SpanHead(const Classifier& classifier) : classifier_(classifier) {}
  int64_t predictions(const ModelInput& /*input*/, const Indices& targets) const override {
    return targets.rows();
  }
  CrossEntropyResult loss(const HeadInput& x, float scale, const LossTerms& /*terms*/) const override {
    const Tensor scores = classifier_.scores(x.hidden, x.input, x.context);
    const FoundRowsLoss span =
        find_rows_cross_entropy(convert(scores, DType::f32), x.input.layout.offsets, x.targets, scale);
    return {span.loss, {}, span.total, span.count};
  }

 private:
  const Classifier& classifier_;
};

// The right one of a question's choices, each of which is a sequence.
class ChoiceHead : public Head {
 public:
  explicit ChoiceHead(const Classifier& classifier) : classifier_(classifier) {}
  CrossEntropyResult loss(const HeadInput& x, float scale, const LossTerms& /*terms*/) const override {
    check(!x.input.choices.empty(), "model: {}: the batch does not say which sequences are choices",
          name_of(Problem::multiple_choice));
    const Tensor scores = classifier_.classes(x.hidden, x.input, x.context);
    const FoundRowsLoss choice = find_rows_cross_entropy(scores, x.input.choices, x.targets, scale);
    return {choice.loss, {}, choice.total, choice.count};
  }

 private:
  const Classifier& classifier_;
};

// Vectors of texts, learned from pairs without targets. Each sequence of the first half should find its
// partner in the second half.
class VectorHead : public Head {
 public:
  explicit VectorHead(const Pooler& pooler) : pooler_(pooler) {}
  int64_t predictions(const ModelInput& input, const Indices& /*targets*/) const override {
    return input.layout.sequences() / 2;
  }
  CrossEntropyResult loss(const HeadInput& x, float scale, const LossTerms& /*terms*/) const override {
    const int64_t pairs = x.input.layout.sequences() / 2;
    check(x.input.layout.sequences() == 2 * pairs, "model: {} sequences are no pairs",
          x.input.layout.sequences());
    const Tensor vectors = unit_rows(convert(pooler_.pooled(x.hidden, x.input), DType::f32));
    const auto half = [&](int64_t first) {
      std::vector<int32_t> rows(pairs);
      std::iota(rows.begin(), rows.end(), static_cast<int32_t>(first));
      return select_rows(vectors, rows);
    };
    const ContrastiveLoss c = contrastive_cross_entropy(half(0), half(pairs), kTemperature, scale);
    return {c.loss, {}, c.total, pairs};
  }

 private:
  const Pooler& pooler_;
};

}  // namespace

int64_t Head::predictions(const ModelInput& /*input*/, const Indices& targets) const {
  return std::ssize(predicted_rows(targets));
}

std::unique_ptr<Head> make_head(const ModelSpec& spec, const Unembedding* unembedding, const Pooler& pooler,
                                const Classifier* classifier) {
  switch (spec.output) {
    case Output::tokens:
      return std::make_unique<TokenHead>(*unembedding, classifier);
    case Output::sequence_classes:
      if (spec.problem == Problem::multiple_choice) return std::make_unique<ChoiceHead>(*classifier);
      if (spec.problem != Problem::single_label)
        return std::make_unique<NumberHead>(*classifier, spec.problem);
      [[fallthrough]];
    case Output::token_classes:
      return std::make_unique<ClassHead>(*classifier);
    case Output::span:
      return std::make_unique<SpanHead>(*classifier);
    case Output::embedding:
      return std::make_unique<VectorHead>(pooler);
  }
  fail("model: output {} has no head", static_cast<int>(spec.output));
}

}  // namespace qkv
