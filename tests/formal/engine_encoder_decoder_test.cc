// The engine against the specification: random small encoder-decoders (Algorithms 8, 11 and 15), and texts
// that are to be restored.

#include <array>
#include <limits>
#include <numeric>

#include "formal/inference.h"
#include "formal/training.h"
#include "formal/transformer.h"
#include "qkv/data/corruption.h"
#include "qkv/data/pairs.h"
#include "qkv/infer/generate.h"
#include "tests/formal/engine_batches.h"

namespace qkv::engine_encoder_decoder_test {
namespace {

using formal::EDTheta;

class EncoderDecoderAgainstFormal : public ::testing::TestWithParam<unsigned> {
 protected:
  Tokens sequence(int least = 1) {
    return random_tokens(c_.spec, u_, between(u_, least, static_cast<int>(c_.spec.context)));
  }
  Case<EDTheta<double>> c_ = random_case<EDTheta<double>>(GetParam());
  Uniform u_{GetParam() + 1000};
};

TEST_P(EncoderDecoderAgainstFormal, Probabilities) {
  const auto model = engine_model(c_);
  std::vector<std::pair<Tokens, Tokens>> data;
  for (int i = 0; i < 3; ++i) {
    Tokens z = sequence();
    data.emplace_back(std::move(z), sequence());
  }
  const NoGrad guard;
  const Tensor logits = model->logits(model->hidden(next_tokens(data), {}));
  int64_t row = 0;
  for (const auto& [z, x] : data) {
    expect_probabilities(logits, row, formal::EDTransformer(z, x, c_.theta), GetParam());
    row += formal::length(x);
  }
}

TEST_P(EncoderDecoderAgainstFormal, LossAndEveryGradient) {
  const std::pair<Tokens, Tokens> a{sequence(), sequence(2)}, b{sequence(), sequence(2)};
  expect_gradients(
      c_, next_tokens({a, b}),
      [&](const auto& theta) {
        return formal::EDLoss(a.first, a.second, theta) + formal::EDLoss(b.first, b.second, theta);
      },
      GetParam());
}

// Cross-attention with three sequences: the target's queries, and keys and values of rows of their own.
TEST_P(EncoderDecoderAgainstFormal, ThreeSequences) {
  const std::vector<Tokens> x = {sequence(2), sequence(2)};
  std::vector<formal::Matrix<double>> keys, values;
  std::vector<float> key_rows, value_rows;
  std::vector<int32_t> lengths;
  const auto random_states = [&](std::vector<float>& rows) {
    formal::Matrix<double> Z(c_.hyper.d_e, lengths.back());
    for (formal::Index t = 1; t <= Z.cols(); ++t)
      for (formal::Index i = 1; i <= Z.rows(); ++i) {
        rows.push_back(static_cast<float>(2 * u_() - 1));
        formal::entry(Z, i, t) = double{rows.back()};
      }
    return Z;
  };
  for (size_t s = 0; s < x.size(); ++s) {
    lengths.push_back(between(u_, 1, 7));
    keys.push_back(random_states(key_rows));
    values.push_back(random_states(value_rows));
  }
  Batch batch = next_tokens({{Tokens{1}, x[0]}, {Tokens{1}, x[1]}});
  batch.source = {};
  batch.source_layout = Layout::of(lengths);
  const Shape shape = {batch.source_layout.rows(), c_.hyper.d_e};
  batch.source_keys = Tensor::of(shape, key_rows);
  batch.source_values = Tensor::of(shape, value_rows);
  const auto P = [&](size_t s, const auto& theta) {
    using T = typename std::decay_t<decltype(theta.embedding.W_e)>::Scalar;
    const formal::Matrix<T> Z_k = keys[s].template cast<T>(), Z_v = values[s].template cast<T>();
    return formal::unembedding(formal::EDTransformer_decode(Z_k, Z_v, x[s], theta),
                               formal::unembedding_matrix(theta.embedding, theta.hyper));
  };
  {
    const auto model = engine_model(c_);
    const NoGrad guard;
    const Tensor logits = model->logits(model->hidden(batch, {}));
    expect_probabilities(logits, 0, P(0, c_.theta), GetParam());
    expect_probabilities(logits, formal::length(x[0]), P(1, c_.theta), GetParam());
    batch.source_values = Tensor::zeros({shape[0], shape[1] + 1}, DType::f32);
    EXPECT_THROW(model->hidden(batch, {}), Error);
    batch.source_values = Tensor::of(shape, value_rows);
  }
  expect_gradients(
      c_, batch,
      [&](const auto& theta) {
        return formal::next_token_loss(P(0, theta), x[0]) + formal::next_token_loss(P(1, theta), x[1]);
      },
      GetParam());
}

TEST_P(EncoderDecoderAgainstFormal, ParametersAfterSgd) {
  constexpr double kEta = 0.02;
  constexpr int kEpochs = 2;
  c_ = random_case<EDTheta<double>>(GetParam(), false);
  const int length = static_cast<int>(c_.spec.context);
  std::vector<std::pair<Tokens, Tokens>> data;
  for (int i = 0; i < 3; ++i) {
    Tokens z = sequence();
    data.emplace_back(std::move(z), random_tokens(c_.spec, u_, length));
  }
  const auto theta = formal::EDTraining(data, c_.theta, kEpochs, kEta);
  TrainingState training(engine_model(c_), plain_sgd(kEta * (length - 1)));
  for (int64_t step = 1; step <= kEpochs * 3; ++step)
    training.step({next_tokens({data[(step - 1) % 3]})}, step, kEpochs * 3);
  expect_parameters(training, c_, theta, GetParam());
}

// Algorithm 15, greedy and sampled with the same random numbers; several sources at once.
TEST_P(EncoderDecoderAgainstFormal, GeneratedTokens) {
  const auto model = engine_model(c_);
  const formal::Index N_V = c_.spec.vocab_size;
  const std::vector<Tokens> data = {sequence(), sequence(), sequence()};
  std::vector<std::vector<int32_t>> sources;
  for (const Tokens& z : data) sources.push_back(engine_ids(z));
  for (const double tau : {0.0, 0.7, 1.0, 3.0, std::numeric_limits<double>::infinity()}) {
    GenerateOptions options;
    options.sampler.temperature = tau;
    options.max_new_tokens = c_.spec.context - 1;
    options.seed = GetParam();
    options.eos = {formal::eos_token(N_V) - 1};
    const std::vector<std::vector<int32_t>> prompts(3, {formal::bos_token(N_V) - 1});
    const auto got = generate(*model, prompts, options, nullptr, sources);
    for (size_t s = 0; s < data.size(); ++s) {
      uint64_t i = 0;
      const auto uniform = [&] { return RandomStream{options.seed + s, i++, 0}.uniform(0); };
      std::vector<int32_t> want = engine_ids(formal::EDInference(data[s], c_.theta, tau, uniform));
      want.erase(want.begin());  // bos
      EXPECT_EQ(got[s], want) << "tau " << tau << ", source " << s << ", seed " << GetParam();
    }
  }
}

// Text restoration: the encoder-decoder's batch for a text that the engine has corrupted.
class RestorationAgainstFormal : public EncoderDecoderAgainstFormal {
 protected:
  // Draws until there are enough positions and tokens to remove some.
  void SetUp() override {
    for (unsigned s = GetParam(); c_.spec.context < 5 || c_.spec.vocab_size < 8; s += 10007)
      c_ = random_case<EDTheta<double>>(s + 10007);
  }
  int last() const { return static_cast<int>(c_.spec.vocab_size); }
  // Ordinary tokens: the last five are the special ones and two sentinels.
  Tokens text(int length) {
    Tokens x;
    for (int i = 0; i < length; ++i) x.push_back(between(u_, 1, last() - 5));
    return x;
  }
  static Tokens tokens(const std::vector<int32_t>& ids) {
    Tokens x;
    for (const int32_t id : ids) x.push_back(id + 1);
    return x;
  }
  void expect_restored(const Tokens& z, const Tokens& x, const Corrupted& pair) {
    const SequenceEnds ends{formal::bos_token(c_.spec.vocab_size) - 1,
                            formal::eos_token(c_.spec.vocab_size) - 1};
    const std::vector<Corrupted> pairs = {pair};
    expect_gradients(
        c_, pair_batch(pairs, ends, c_.spec.pair_layout()),
        [&](const auto& theta) { return formal::RestorationLoss(z, x, theta); }, GetParam());
  }
};

TEST_P(RestorationAgainstFormal, Spans) {
  const Tokens x = text(between(u_, 2, static_cast<int>(c_.spec.context) - 2)),
               sentinels = {last() - 3, last() - 4};
  SpanCorruption options;
  options.density = 0.4;
  options.mean_length = 1.5;
  options.sentinels = engine_ids(sentinels);
  const Corrupted pair = corrupt_spans(engine_ids(x), options, {GetParam(), 1, 1});
  // Finds the spans from the lengths of the pieces between sentinels.
  std::vector<formal::Span> spans;
  formal::Index t = 1;
  size_t taken = 0;
  for (const int32_t id : pair.source) {
    if (spans.size() == sentinels.size() || id != options.sentinels[spans.size()]) {
      ++t;
      continue;
    }
    const formal::Index begin = t;
    for (++taken; taken < pair.target.size() && pair.target[taken] < options.sentinels.back(); ++taken) ++t;
    spans.push_back({begin, t});
  }
  ASSERT_FALSE(spans.empty());
  const Tokens z = formal::without_spans(x, spans, sentinels), y = formal::spans_alone(x, spans, sentinels);
  EXPECT_EQ(tokens(pair.source), z);
  EXPECT_EQ(tokens(pair.target), y);
  expect_restored(z, y, pair);
}

// Searches for spans and deletions that turn the ordered text y into z, from position t on. They are read
// from the ends of the text.
bool explain(const Tokens& y, const Tokens& z, formal::Index t, size_t at, int mask,
             std::vector<formal::Span>& spans, std::vector<formal::Index>& deleted) {
  if (at == z.size() && t > formal::length(y)) return true;
  if (at < z.size() && z[at] == mask)
    for (formal::Index end = t; end <= formal::length(y) + 1; ++end) {
      spans.push_back({t, end});
      if (explain(y, z, end, at + 1, mask, spans, deleted)) return true;
      spans.pop_back();
    }
  if (t > formal::length(y)) return false;
  if (at < z.size() && z[at] == formal::at(y, t) && explain(y, z, t + 1, at + 1, mask, spans, deleted))
    return true;
  deleted.push_back(t);
  if (explain(y, z, t + 1, at, mask, spans, deleted)) return true;
  deleted.pop_back();
  return false;
}

TEST_P(RestorationAgainstFormal, NoisedTexts) {
  const Tokens x = text(static_cast<int>(c_.spec.context) - 1);
  const int mask = formal::mask_token(c_.spec.vocab_size);
  Denoising options;
  options.infill = 0.3;
  options.mean_length = 1.5;
  options.deletion = 0.2;
  options.mask = mask - 1;
  options.ends.assign(c_.spec.vocab_size, false);
  options.ends[0] = true;
  Corrupted pair = add_noise(engine_ids(x), options, {GetParam(), 1, 1});
  ASSERT_EQ(tokens(pair.target), x);
  std::vector<formal::Span> sentences;
  for (formal::Index begin = 1, t = 1; t <= formal::length(x); ++t)
    if (formal::at(x, t) == 1 || t == formal::length(x)) {
      sentences.push_back({begin, t + 1});
      begin = t + 1;
    }
  std::vector<size_t> order(sentences.size());
  std::iota(order.begin(), order.end(), 0);
  const Tokens z = tokens(pair.source);
  bool explained = false;
  do {
    std::vector<formal::Span> ordered, spans;
    for (const size_t i : order) ordered.push_back(sentences[i]);
    std::vector<formal::Index> deleted;
    explained = explain(formal::noised(x, ordered, {}, {}, mask), z, 1, 0, mask, spans, deleted);
    if (explained) {
      EXPECT_EQ(formal::noised(x, ordered, spans, deleted, mask), z);
    }
  } while (!explained && std::next_permutation(order.begin(), order.end()));
  EXPECT_TRUE(explained);
  pair.source.resize(std::min(pair.source.size(), static_cast<size_t>(c_.spec.context) - 1));
  expect_restored(tokens(pair.source), x, pair);
}

INSTANTIATE_TEST_SUITE_P(Random, EncoderDecoderAgainstFormal, ::testing::Range(0u, seeds()));
INSTANTIATE_TEST_SUITE_P(Random, RestorationAgainstFormal, ::testing::Range(0u, seeds()));

}  // namespace
}  // namespace qkv::engine_encoder_decoder_test
