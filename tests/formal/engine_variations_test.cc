// The engine against formal/variations.h: random small decoders of random variations of positions, norms,
// branches, heads and patterns have the same probabilities, losses, gradients and continuations.
// Covers: qkv/models/layer_inputs.cc, qkv/models/position_terms.cc, qkv/nn/latent_attention.cc
// Covers: qkv/nn/layer_input.cc, qkv/ops/latent.cc

#include <algorithm>

#include "qkv/infer/decode_state.h"
#include "tests/formal/varied_case.h"
#include "tests/unit/expect_error.h"

namespace qkv::engine_variations_test {
namespace {

class VariationsAgainstFormal : public ::testing::TestWithParam<unsigned> {
 protected:
  void SetUp() override { RecordProperty("seed", static_cast<int>(GetParam())); }
  // The gradients in the engine against the formal ones, `want`, of `loss`.
  template <typename Loss>
  void expect_gradients(const Transformer& model, const Values& want, const Loss& loss,
                        const std::string& what) const {
    expect_gradients_near(
        model, want, c_.theta, loss, [&](const auto& theta) { return values_of(c_.spec, theta); }, GetParam(),
        what + ": " + text_of(c_.spec));
  }
  OneStackCase c_ = varied_case(GetParam(), Architecture::decoder);
  Uniform u_{GetParam() + 1000};
};

TEST_P(VariationsAgainstFormal, Probabilities) {
  const auto model = model_of(c_);
  std::vector<Tokens> data;
  TokenStream stream;
  for (int i = 0; i < 3; ++i) {  // the formal sequences one by one, the engine's all at once
    data.push_back(random_tokens(c_.spec, u_, between(u_, 1, static_cast<int>(c_.spec.context))));
    stream.append(engine_ids(data.back()));
  }
  const Batch batch = cut_windows(stream, {0}, stream.size());
  const NoGrad guard;
  const Tensor logits = model->logits(model->hidden(batch, {}));
  int64_t row = 0;
  for (const Tokens& x : data) {
    expect_probabilities_near(
        logits, row, c_.theta, [&](const auto& theta) { return formal::VariedTransformer(x, theta); },
        GetParam());
    row += formal::length(x);
  }
}

TEST_P(VariationsAgainstFormal, LossAndEveryGradient) {
  const Tokens x = random_tokens(c_.spec, u_, static_cast<int>(c_.spec.context)),
               y = random_tokens(c_.spec, u_, 2);
  const auto loss = [&](const auto& theta) {
    return formal::VariedLoss(x, theta) + formal::VariedLoss(y, theta);
  };
  TokenStream stream;
  stream.append(engine_ids(x));
  stream.append(engine_ids(y));
  const Batch batch = cut_windows(stream, {0}, stream.size());
  expect_loss_and_gradients(c_, batch, batch.targets, loss, GetParam());
}

// Why a decoder of varied_case() cannot remember segments, in the words of check_spec(); empty where it can.
std::string why_no_memory(const ModelSpec& s) {
  const auto hashes = [](const BlockSpec& block) { return block.attention.hashing.chunk > 0; };
  if (hashes(s) || std::ranges::any_of(s.kinds, hashes, &BlockKind::block)) return "hashed_beyond";
  if (!s.mixer.attends()) return "mixer is " + name_of(s.mixer.kind());
  // No layer may have the positions of [model]: those of other kinds may tell no distances.
  if (s.longest() == s.context && s.positions != Positions::none) return "positions " + name_of(s.positions);
  if (s.mixer.get_if<LatentMixer>()) return "kv_latent";
  if (s.grid > 0) return "grid";
  if (s.attention.query_growth != 0) return "query_growth";
  if (s.channel_mix != ChannelMix::none) return "channel_mix";
  for (const BlockKind& kind : s.kinds) {
    if (kind.block.mixer.get_if<LatentMixer>()) return "kv_latent";
    if (kind.block.attention.query_growth != 0) return "query_growth";
    if (kind.block.attention.reused_keys) return "reused_keys";
    if (kind.block.channel_mix != ChannelMix::none) return "channel_mix";
    if (!kind.block.mixer.attends()) return "mixer is " + name_of(kind.block.mixer.kind());
  }
  return "";
}

// A text in segments, each with what the one before has left: probabilities, and the gradient, which does not
// reach into the segment before.
TEST_P(VariationsAgainstFormal, SegmentsWithMemory) {
  c_.spec.memory = between(u_, 1, 10);
  if (const std::string why = why_no_memory(c_.spec); !why.empty()) {
    testing::expect_error([this] { check_spec(c_.spec); }, {"memory", why});
    GTEST_SKIP() << "no memory: " << why;
  }
  check_spec(c_.spec);
  const auto length = static_cast<int>(c_.spec.context);
  const std::vector<Tokens> segments = {random_tokens(c_.spec, u_, length),
                                        random_tokens(c_.spec, u_, length),
                                        random_tokens(c_.spec, u_, between(u_, 2, length))};
  const auto model = model_of(c_);
  model->parameters().prepare_training(DType::f32, 0);
  SegmentStates states = model->make_segment_states(1);
  const VariedTheta<double> near = moved(c_.theta, GetParam() + 2000);
  formal::SegmentMemory memory{c_.spec.memory, {}}, near_memory = memory;
  for (const Tokens& x : segments) {
    const formal::SegmentMemory before = memory, near_before = near_memory;
    const auto loss_behind = [&x](const formal::SegmentMemory& memory) {
      return [&](const auto& theta) {
        formal::SegmentMemory of_this = memory;
        return formal::next_token_loss(formal::VariedTransformer(x, theta, &of_this), x);
      };
    };
    const auto want = formal::loss_and_gradient(loss_behind(before), c_.theta);
    const formal::Matrix<double> probabilities = formal::VariedTransformer(x, c_.theta, &memory);
    formal::VariedTransformer(x, near, &near_memory);
    const Values gradients = values_of(c_.spec, want.gradient);
    TokenStream stream;
    stream.append(engine_ids(x));
    const Batch batch = cut_windows(stream, {0}, stream.size());
    for (const bool recompute : {false, true}) {
      model->set_recompute(recompute);
      model->parameters().reset_gradients();
      Context context;
      context.training = true;
      context.segment_states = &states;
      const CrossEntropyResult r = model->loss(batch, batch.targets, context, 1);
      EXPECT_NEAR(r.total / want.loss, 1, kTolerance);
      backward(r.loss);
      model->parameters().complete_gradients();
      expect_gradients(*model, gradients, loss_behind(near_before), recompute ? ", recomputed" : "");
    }
    const NoGrad guard;
    Context context;
    context.segment_states = &states;
    expect_probabilities(model->logits(model->hidden(batch, context)), 0, probabilities, GetParam());
    for (const auto& state : states.all()) state->advance();
  }
}

// Token by token with remembered keys, forked and reordered, beyond the context where positions allow it.
TEST_P(VariationsAgainstFormal, CachedEqualsUncached) {
  const auto model = model_of(c_);
  const int64_t length = c_.spec.longest() > c_.spec.context ? 2 * c_.spec.context + 3 : c_.spec.context;
  std::vector<Tokens> data = {random_tokens(c_.spec, u_, static_cast<int>(length)),
                              random_tokens(c_.spec, u_, static_cast<int>(length))};
  const NoGrad guard;
  DecodeState states(*model, 2);
  for (int64_t t = 0; t < length; ++t) {
    const Tensor logits = model->logits(states.extend({{data[0][t] - 1}, {data[1][t] - 1}}));
    for (int s = 0; s < 2; ++s) {
      const Tokens seen(data[s].begin(), data[s].begin() + t + 1);
      const auto last = [&](const auto& theta) -> formal::Matrix<double> {
        return formal::VariedTransformer(seen, theta).rightCols(1);
      };
      expect_probabilities_near(logits, s, c_.theta, last, GetParam());
    }
    if (u_() < 0.3) {  // the second becomes a copy of the first, or they change places
      const std::vector<int32_t> order = u_() < 0.5 ? std::vector<int32_t>{0, 0} : std::vector<int32_t>{1, 0};
      const std::vector<Tokens> old = data;
      for (int s = 0; s < 2; ++s)
        std::copy(old[order[s]].begin(), old[order[s]].begin() + t + 1, data[s].begin());
      states.reorder(order);
    }
    if (u_() < 0.2 && t > 0) {  // forgets the last token of both, and reads another one
      states = states.fork();
      for (int s = 0; s < 2; ++s) states.truncate(s, t);
      for (int s = 0; s < 2; ++s) data[s][t] = random_tokens(c_.spec, u_, 1)[0];
      --t;
    }
  }
}

TEST_P(VariationsAgainstFormal, ComesBackFromDisk) {
  expect_back_from_disk(*model_of(c_), GetParam());
}

INSTANTIATE_TEST_SUITE_P(Random, VariationsAgainstFormal, ::testing::Range(0U, seeds()));

INSTANTIATE_TEST_SUITE_P(Gemma3, VariationsAgainstFormal, ::testing::Values(kGemma3));

// Too rare a pair for the first seeds: each head's ALiBi is scaled as its own scores are.
constexpr unsigned kScaledAlibiOfHeadSizes[] = {658, 690, 782};
INSTANTIATE_TEST_SUITE_P(ScaledAlibiOfHeadSizes, VariationsAgainstFormal,
                         ::testing::ValuesIn(kScaledAlibiOfHeadSizes));

TEST(Variations, RareSeedsAreWhatTheySay) {
  for (const unsigned seed : kScaledAlibiOfHeadSizes) {
    const ModelSpec s = varied_case(seed, Architecture::decoder).spec;
    EXPECT_EQ(s.positions, Positions::alibi_scaled) << seed;
    EXPECT_FALSE(s.attention.head_sizes.empty()) << seed;
  }
}

constexpr unsigned kDrawn = 60;  // seeds whose models are looked at and not run

TEST(Variations, LayersOfSomeDiffer) {
  unsigned mixed = 0;
  for (unsigned seed = 0; seed < kDrawn; ++seed)
    mixed += !varied_case(seed, Architecture::decoder).spec.kinds.empty();
  EXPECT_GE(mixed, kDrawn / 6) << mixed << " of " << kDrawn;
}

TEST(Variations, EveryOneOfDecodersIsDrawn) {
  expect_each_drawn(Architecture::decoder);
}

// How many of the seeds SegmentsWithMemory skips.
TEST(Variations, MostCanRememberSegments) {
  unsigned skipped = 0;
  for (unsigned seed = 0; seed < kDrawn; ++seed)
    skipped += !why_no_memory(varied_case(seed, Architecture::decoder).spec).empty();
  // A sixth of the seeds has mixers that remember nothing of an earlier segment.
  EXPECT_LE(skipped, kDrawn * 3 / 5) << skipped << " of " << kDrawn << " seeds are skipped";
}

}  // namespace
}  // namespace qkv::engine_variations_test
