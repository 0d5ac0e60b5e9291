// The engine against formal/variations.h: random small encoder-decoders of random variations have the same
// probabilities, losses, gradients and continuations.

#include "tests/formal/varied_case.h"

namespace qkv::engine_varied_two_stacks_test {
namespace {

// A source, a text, and which of several texts each of its tokens is of; all from 1.
struct Pair {
  Tokens z, x, s;
};

class TwoStackVariationsAgainstFormal : public ::testing::TestWithParam<unsigned> {
 protected:
  void SetUp() override { RecordProperty("seed", static_cast<int>(GetParam())); }
  // Also longer than what the model was trained for, where distances tell positions.
  int most() const {
    return static_cast<int>(c_.spec.context) * (c_.spec.longest() > c_.spec.context ? 2 : 1);
  }
  Tokens tokens(int64_t vocabulary, int length) {
    Tokens x;
    for (int i = 0; i < length; ++i) x.push_back(between(u_, 1, static_cast<int>(vocabulary)));
    return x;
  }
  Tokens source() { return tokens(c_.spec.input_vocab_size(), between(u_, 1, most())); }
  Pair pair(int length) {
    return {source(), tokens(c_.spec.vocab_size, length),
            tokens(std::max<int64_t>(c_.spec.segments, 2), length)};
  }
  static void append(std::vector<int32_t>& to, const Tokens& x) {
    for (const int32_t id : engine_ids(x)) to.push_back(id);
  }
  static ModelInput input_of(const std::vector<Pair>& data) {
    std::vector<int32_t> ids, segments, sources, lengths, source_lengths;
    for (const Pair& p : data) {
      append(ids, p.x);
      append(segments, p.s);
      append(sources, p.z);
      lengths.push_back(static_cast<int32_t>(p.x.size()));
      source_lengths.push_back(static_cast<int32_t>(p.z.size()));
    }
    ModelInput input{ids, Layout::of(lengths)};
    input.segments = segments;
    input.source = sources;
    input.source_layout = Layout::of(source_lengths);
    return input;
  }

  TwoStackCase c_ = two_stack_case(GetParam());
  Uniform u_{GetParam() + 1000};
};

TEST_P(TwoStackVariationsAgainstFormal, Probabilities) {
  const auto model = model_of(c_);
  std::vector<Pair> data;
  for (int i = 0; i < 3; ++i) data.push_back(pair(between(u_, 1, most())));
  const NoGrad guard;
  const Tensor logits = model->logits(model->hidden(input_of(data), {}));
  int64_t row = 0;
  for (const Pair& p : data) {
    expect_probabilities_near(
        logits, row, c_.theta,
        [&](const auto& theta) { return formal::VariedEDTransformer(p.z, p.x, theta, p.s); }, GetParam());
    row += formal::length(p.x);
  }
}

TEST_P(TwoStackVariationsAgainstFormal, LossAndEveryGradient) {
  const std::vector<Pair> data = {pair(between(u_, 2, most())), pair(2)};
  std::vector<int32_t> targets;
  for (const Pair& p : data) {
    const std::vector<int32_t> ids = engine_ids(p.x);
    targets.insert(targets.end(), ids.begin() + 1, ids.end());
    targets.push_back(kIgnored);
  }
  expect_loss_and_gradients(
      c_, input_of(data), targets,
      [&](const auto& theta) {
        return formal::VariedEDLoss(data[0].z, data[0].x, theta, data[0].s) +
               formal::VariedEDLoss(data[1].z, data[1].x, theta, data[1].s);
      },
      GetParam());
}

// Token by token with remembered keys and sources, forked and reordered.
TEST_P(TwoStackVariationsAgainstFormal, CachedEqualsUncached) {
  const auto model = model_of(c_);
  const int length = most();
  std::vector<Pair> data = {pair(length), pair(length)};
  const NoGrad guard;
  DecodingStates states = model->make_states(2);
  Context context;
  context.states = &states;
  for (int t = 0; t < length; ++t) {
    const auto at = static_cast<int32_t>(t);
    ModelInput input{Indices({data[0].x[t] - 1, data[1].x[t] - 1}), Layout::of({1, 1}, {at, at})};
    input.segments = Indices({data[0].s[t] - 1, data[1].s[t] - 1});
    if (t == 0) {  // later steps know the sources by their states
      const ModelInput whole = input_of(data);
      input.source = whole.source;
      input.source_layout = whole.source_layout;
    }
    const Tensor logits = model->logits(model->hidden(input, context));
    for (int i = 0; i < 2; ++i) {
      const Tokens seen(data[i].x.begin(), data[i].x.begin() + t + 1);
      const auto last = [&](const auto& theta) -> formal::Matrix<double> {
        return formal::VariedEDTransformer(data[i].z, seen, theta, data[i].s).rightCols(1);
      };
      expect_probabilities_near(logits, i, c_.theta, last, GetParam());
    }
    if (u_() < 0.3) {  // the second becomes a copy of the first, or they change places
      const std::vector<int32_t> order = u_() < 0.5 ? std::vector<int32_t>{0, 0} : std::vector<int32_t>{1, 0};
      const std::vector<Pair> old = data;
      for (int i = 0; i < 2; ++i) {
        data[i].z = old[order[i]].z;
        std::copy(old[order[i]].x.begin(), old[order[i]].x.begin() + t + 1, data[i].x.begin());
        std::copy(old[order[i]].s.begin(), old[order[i]].s.begin() + t + 1, data[i].s.begin());
      }
      states.reorder(order);
    }
    if (u_() < 0.2 && t > 0) {  // forgets the last token of both, and reads another one
      states = states.fork();
      for (int i = 0; i < 2; ++i) states.truncate(i, t);
      for (int i = 0; i < 2; ++i) data[i].x[t] = tokens(c_.spec.vocab_size, 1)[0];
      --t;
    }
  }
}

TEST_P(TwoStackVariationsAgainstFormal, ComesBackFromDisk) {
  expect_back_from_disk(*model_of(c_), GetParam());
}

INSTANTIATE_TEST_SUITE_P(Random, TwoStackVariationsAgainstFormal, ::testing::Range(0U, seeds()));

TEST(Variations, EveryOneOfTwoStacksIsDrawn) {
  expect_each_drawn(Architecture::encoder_decoder);
}

}  // namespace
}  // namespace qkv::engine_varied_two_stacks_test
