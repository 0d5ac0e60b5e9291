// Attention that knows distances by vectors: in encoders, whose rows may stand in any order and have
// segments.
#include "qkv/nn/relative.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "qkv/models/transformer.h"
#include "tests/unit/expect_error.h"

namespace qkv::relative_test {
namespace {

ModelSpec encoder(RelativeAttention kind) {
  ModelSpec s = bert_spec(11, 16, 12, 2, 3);
  s.positions = Positions::none;
  s.segments = 0;
  s.init_std = 0.3F;
  s.attention.relative.kind = kind;
  s.attention.relative.distance = kind == RelativeAttention::transformer_xl ? 0 : 3;
  s.attention.relative.segments = kind == RelativeAttention::transformer_xl;
  return s;
}

constexpr RelativeAttention kKinds[] = {RelativeAttention::shaw, RelativeAttention::shaw_both,
                                        RelativeAttention::transformer_xl, RelativeAttention::disentangled};

// A permutation LM's rows are not in the order of tokens: positions tell distances then, and nothing else
// changes.
TEST(RelativeAttention, ShuffledRowsAreTheSameRows) {
  for (const RelativeAttention kind : kKinds) {
    SCOPED_TRACE(name_of(kind));
    Transformer model(encoder(kind));
    model.parameters().draw(3, DType::f32);
    const NoGrad guard;
    const std::vector<int32_t> order = {3, 0, 5, 1, 4, 2};
    std::vector<int32_t> ids = {7, 1, 9, 4, 4, 2}, segments = {0, 0, 0, 1, 1, 1}, moved_ids, moved_segments;
    for (const int32_t o : order) {
      moved_ids.push_back(ids[static_cast<size_t>(o)]);
      moved_segments.push_back(segments[static_cast<size_t>(o)]);
    }
    ModelInput plain{ids, Layout::of({6}), segments}, moved{moved_ids, Layout::of({6}), moved_segments};
    moved.layout.positions = order;
    moved.visibility = {Indices::zeros(6), Indices::zeros(6)};  // all see all
    const Tensor want = model.hidden(plain, {}), got = model.hidden(moved, {});
    for (size_t r = 0; r < order.size(); ++r)
      for (int64_t c = 0; c < 12; ++c)
        ASSERT_NEAR(got.data<float>()[static_cast<int64_t>(r) * 12 + c],
                    want.data<float>()[order[r] * 12 + c], 2e-5)
            << r << " " << c;
  }
}

// Tokens of one segment are as without segments; of two they are not, whichever is called the first.
TEST(RelativeAttention, SegmentsAreTheSameOrNot) {
  Transformer model(encoder(RelativeAttention::transformer_xl));
  model.parameters().draw(3, DType::f32);
  const NoGrad guard;
  const auto hidden = [&](const std::vector<int32_t>& segments) {
    ModelInput input{Indices({1, 2, 3, 4, 5}), Layout::of({5})};
    if (!segments.empty()) input.segments = segments;
    const Tensor x = model.hidden(input, {});
    return std::vector<float>(x.data<float>(), x.data<float>() + x.count());
  };
  EXPECT_EQ(hidden({}), hidden({4, 4, 4, 4, 4}));
  EXPECT_NE(hidden({}), hidden({0, 0, 1, 1, 1}));
  EXPECT_EQ(hidden({0, 0, 1, 1, 1}), hidden({2, 2, 0, 0, 0}));
}

// Beyond the longest distance all tokens are as far.
TEST(RelativeAttention, DistancesAreCutOff) {
  for (const RelativeAttention kind : {RelativeAttention::shaw, RelativeAttention::shaw_both}) {
    ModelSpec s = encoder(kind);
    s.layers = 1;
    Transformer model(s);
    model.parameters().draw(3, DType::f32);
    const NoGrad guard;
    const auto last = [&](const std::vector<int32_t>& ids) {
      const Tensor x = model.hidden({ids, Layout::of({8})}, {});
      return std::vector<float>(x.data<float>() + 84, x.data<float>() + 96);
    };
    const auto near = [](const std::vector<float>& a, const std::vector<float>& b) {
      float most = 0;
      for (size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
      return most < 1e-5F;
    };
    const auto x = last({1, 2, 3, 4, 5, 6, 7, 8});
    EXPECT_TRUE(near(x, last({4, 3, 1, 2, 5, 6, 7, 8})));   // from distance 3 on
    EXPECT_FALSE(near(x, last({1, 2, 3, 4, 6, 5, 7, 8})));  // distance 2
  }
}

// Every way in which a weight is used has a gradient in bf16, near that in f32.
TEST(RelativeAttention, GradientsInBf16AreNearThoseInF32) {
  using Change = void (*)(ModelSpec&);
  const Change changes[] = {
      [](ModelSpec&) {},
      [](ModelSpec& s) { s.embedding_unit = true; },
      [](ModelSpec& s) { s.normalization = Normalization::capsule; },
      [](ModelSpec& s) { s.normalization = Normalization::scale; },
      [](ModelSpec& s) {
        s.normalization = Normalization::batch, s.head_width = 0, s.attention.relative.normed = false;
      },
      [](ModelSpec& s) { s.attention.patterns = {{.window = 3}}; },
  };
  for (const RelativeAttention kind : kKinds)
    for (const Change change : changes) {
      ModelSpec s = encoder(kind);
      s.attention.relative.normed = kind == RelativeAttention::disentangled;
      change(s);
      const auto gradients = [&](DType compute) {
        Transformer model(s);
        model.parameters().prepare_training(compute, 3);
        model.parameters().reset_gradients();
        std::vector<int32_t> ids;
        for (int32_t i = 0; i < 24; ++i) ids.push_back(i * i % 11);
        ModelInput input{ids, Layout::of({15, 9})};
        std::vector<int32_t> segments;
        for (int32_t i = 0; i < 24; ++i) segments.push_back(i / 5 % 2);
        input.segments = segments;
        Context context;
        context.training = true;
        backward(model.loss(input, ids, context, 1.0F / 24).loss);
        model.parameters().complete_gradients();
        std::map<std::string, std::vector<float>> out;
        for (const Parameter& p : model.parameters().all()) {
          const auto g = p.leaf->grad.values<float>();
          out[p.name].assign(g.begin(), g.end());
        }
        return out;
      };
      const auto want = gradients(DType::f32), got = gradients(DType::bf16);
      float all = 0;
      for (const auto& [name, g] : want)
        for (const float x : g) all = std::max(all, std::abs(x));
      for (const auto& [name, g] : want) {
        float largest = 0, off = 0;
        for (size_t i = 0; i < g.size(); ++i) {
          largest = std::max(largest, std::abs(g[i]));
          off = std::max(off, std::abs(got.at(name)[i] - g[i]));
        }
        // By the parameter's own size, above the rounding of what all are sums of.
        EXPECT_LE(off, 0.15F * largest + 0.004F * all) << name_of(kind) << " " << name << " " << largest;
      }
    }
}

// Scores of cross-attention have one term, whatever those of self-attention have.
TEST(RelativeAttention, CrossAttentionKeepsItsScale) {
  ModelSpec s = encoder(RelativeAttention::disentangled);
  s.architecture = Architecture::encoder_decoder;
  s.encoder_layers = 1;
  s.layers = 1;
  s.head_width = 0;
  Transformer model(s);
  model.parameters().draw(3, DType::f32);
  const NoGrad guard;
  struct Scores : Probe {
    std::vector<float> largest;
    bool wants(std::string_view name) const override {
      return name == "decoder.block.0.cross_attention.scores";
    }
    void visit_head(std::string_view, int64_t, int64_t, Tensor& x) override {
      largest.push_back(x.data<float>()[0]);
    }
  };
  const auto first_scores = [&](float scale) {
    ModelSpec other = s;
    other.attention.scale = scale;
    Transformer its(other);
    its.parameters().draw(3, DType::f32);
    // Self-attention is as it was: it adds nothing.
    for (Transformer* m : {&model, &its}) {
      float* out = m->parameters().find("decoder.block.0.attention.out.weight")->value.mutable_data<float>();
      std::fill(out, out + 144, 0.0F);
      float* source =
          m->parameters().find("encoder.block.0.attention.out.weight")->value.mutable_data<float>();
      std::fill(source, source + 144, 0.0F);
    }
    Scores scores;
    Context context;
    context.probe = &scores;
    ModelInput input{Indices({1, 2}), Layout::of({2})};
    input.source = Indices({4, 5, 6});
    input.source_layout = Layout::of({3});
    (scale == 0 ? model : its).hidden(input, context);
    return scores.largest;
  };
  const auto plain = first_scores(0), scaled = first_scores(1);
  ASSERT_EQ(plain.size(), 3U);
  for (size_t h = 0; h < 3; ++h) EXPECT_NEAR(plain[h], scaled[h] / 2, 1e-5);  // d_qk is 4
}

TEST(RelativeAttention, RefusesWhatMakesNoSense) {
  const auto refused = [](RelativeAttention kind, const auto& change, const std::string& says) {
    ModelSpec s = encoder(kind);
    change(s);
    testing::expect_error([&] { check_spec(s); }, {says});
  };
  using enum RelativeAttention;
  refused(
      shaw, [](ModelSpec& s) { s.positions = Positions::alibi; }, "tell distances, too");
  refused(
      shaw, [](ModelSpec& s) { s.attention.relative.distance = 0; }, "at least 1");
  refused(
      shaw, [](ModelSpec& s) { s.attention.relative.normed = true; }, "of disentangled");
  refused(
      shaw, [](ModelSpec& s) { s.attention.cap = 5; }, "attention_cap");
  refused(
      disentangled,
      [](ModelSpec& s) { s.attention.relative.by_content = s.attention.relative.by_position = false; },
      "one of its terms");
  refused(
      disentangled, [](ModelSpec& s) { s.attention.relative.buckets = 4; }, "relative_attention_buckets");
  refused(
      disentangled, [](ModelSpec& s) { s.attention.relative.segments = true; }, "of transformer_xl");
  refused(
      transformer_xl, [](ModelSpec& s) { s.architecture = Architecture::decoder; }, "in an encoder");
  refused(
      none, [](ModelSpec& s) { s.attention.relative = {.distance = 5}; }, "nothing more");
  refused(
      none, [](ModelSpec& s) { s.attention.relative = {}; }, "cannot tell the order");
  ModelSpec prefix = gpt2_spec(11, 16, 12, 2, 3);
  prefix.attention.relative = {shaw, 4};
  prefix.order = Order::prefix;
  testing::expect_error([&] { check_spec(prefix); }, {"order prefix"});
}

}  // namespace
}  // namespace qkv::relative_test
