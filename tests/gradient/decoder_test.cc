// The whole decoder's gradient of the loss, and recompute().
// Covers: qkv/autograd/graph.cc, qkv/models/stack.cc, qkv/nn/attention.cc, qkv/nn/feed_forward.cc
// Covers: qkv/nn/linear.cc, qkv/nn/residual.cc, qkv/nn/wrappers.cc
#include "qkv/models/transformer.h"
#include "qkv/ops/linear.h"
#include "qkv/ops/norm.h"
#include "tests/gradient/gradient_check.h"

namespace qkv::decoder_test {
namespace {

using testing::floats;
using testing::uniform;

ModelSpec tiny(bool tied) {
  ModelSpec s;
  s.vocab_size = 11;
  s.context = 7;
  s.width = 12;
  s.layers = 2;
  s.attention.heads = 4;
  s.attention.kv_heads = 2;
  s.attention.d_qk = 3;
  s.attention.d_vo = 5;
  s.hidden = 17;
  s.tied = tied;
  s.norm_epsilon = 0.1F;  // keeps the norms' higher derivatives small
  return s;
}

// Two sequences, one target ignored, under dropout where asked.
struct Example {
  Indices ids = std::vector<int32_t>{3, 1, 4, 1, 5, 9, 2, 6, 5, 3};
  Indices targets = std::vector<int32_t>{1, 4, 1, 5, 9, 2, kIgnored, 5, 3, 10};
  Context context;

  explicit Example(bool dropout) {
    context.training = dropout;
    context.seed = 12;
    context.step = 3;
  }
  CrossEntropyResult loss(const Transformer& model) const {
    return model.loss({ids, Layout::of({7, 3})}, targets, context, 1.0F / 9);
  }
};

// Every parameter away from its special start: no zero biases, no gammas of 1.
void prepare(Transformer& model, DType compute = DType::f32) {
  Parameters& p = model.parameters();
  p.prepare_training(compute, 1);
  uint64_t seed = 100;
  for (Parameter& x : p.all()) {
    const bool gamma = x.name.ends_with(".gamma");
    const Tensor noise = uniform(x.shape, ++seed, gamma ? 0.5 : -0.5, gamma ? 1.5 : 0.5);
    std::memcpy(x.master.raw(), noise.raw(), noise.bytes());
  }
  p.refresh_shadows();
}

std::vector<std::vector<float>> gradients(Transformer& model, const Example& example) {
  model.parameters().reset_gradients();
  backward(example.loss(model).loss);
  model.parameters().complete_gradients();
  std::vector<std::vector<float>> out;
  for (const Parameter& p : model.parameters().all()) out.push_back(floats(p.leaf->grad));
  return out;
}

// Along the gradient itself the slope is its norm, where the coordinates' errors average out.
template <typename Loss>
void expect_slope(Transformer& model, const std::vector<std::vector<float>>& g, const Loss& loss) {
  double norm = 0;
  for (const auto& of : g)
    for (const float x : of) norm += double{x} * x;
  norm = std::sqrt(norm);
  const double step = 0x1p-5;
  std::vector<std::vector<float>> start;
  for (Parameter& p : model.parameters().all()) start.push_back(floats(p.master));
  const auto at = [&](double t) {
    for (size_t k = 0; k < start.size(); ++k) {
      float* x = model.parameters().all()[k].master.mutable_data<float>();
      for (size_t i = 0; i < start[k].size(); ++i)
        x[i] = static_cast<float>(start[k][i] + t * g[k][i] / norm);
    }
    return loss();
  };
  const double slope = (8 * (at(step) - at(-step)) - (at(2 * step) - at(-2 * step))) / (12 * step);
  EXPECT_NEAR(slope, norm, 2e-4 * norm);
}

// Fourth-order differences of the mean loss with h = 2^-5. The losses, each about 3, carry the roundings of
// two blocks: some 30 u of their own size; the mean of nine has a third of it, 10 u * 3, times 1.5 / h = 48:
// 9e-5. h^4 / 30 is 3e-8: fifth derivatives up to 1e3, as weights of size 0.5 behind norms with epsilon 0.1
// give, add 3e-5.
void expect_every_parameter(bool tied, bool dropout) {
  constexpr float h = 0x1p-5F;
  constexpr double tolerance = 1.2e-4;
  ModelSpec spec = tiny(tied);
  if (dropout) spec.attention.dropout = spec.residual_dropout = spec.embedding_dropout = 0.2F;
  Transformer model(spec);
  prepare(model);
  const Example example(dropout);
  const auto g = gradients(model, example);
  const NoGrad guard;
  const testing::OneThread thread;
  size_t which = 0;
  for (Parameter& p : model.parameters().all()) {
    double largest = 0;
    float* x = p.master.mutable_data<float>();
    for (int64_t i = 0; i < p.master.count(); ++i) {
      const float centre = x[i];
      const auto at = [&](float offset) {
        x[i] = centre + offset;
        return example.loss(model).total / 9;
      };
      const double near = (at(h) - at(-h)) / (double{centre + h} - double{centre - h});
      const double far = (at(2 * h) - at(-2 * h)) / (double{centre + 2 * h} - double{centre - 2 * h});
      x[i] = centre;
      ASSERT_NEAR(g[which][i], (4 * near - far) / 3, tolerance) << p.name << ", element " << i;
      largest = std::max(largest, std::abs(double{g[which][i]}));
    }
    // There is something to compare. (A key's bias alone has no effect: the softmax cancels it.)
    EXPECT_GT(largest, 30 * tolerance) << p.name;
    ++which;
  }
  expect_slope(model, g, [&] { return example.loss(model).total / 9; });
}

TEST(DecoderGradient, TiedIsTheDifference) {
  expect_every_parameter(true, false);
}
TEST(DecoderGradient, UntiedIsTheDifference) {
  expect_every_parameter(false, false);
}
TEST(DecoderGradient, UnderDropoutIsTheDifference) {
  expect_every_parameter(true, true);
}

// Tokens that see all, with projections of their own; in one sequence there is none.
TEST(EncoderGradient, OfGlobalAttentionIsTheDifference) {
  ModelSpec spec = tiny(true);
  spec.architecture = Architecture::encoder;
  spec.attention.patterns = {{.window = 2}};
  spec.attention.global_projections = true;
  std::vector<std::vector<float>> kept;
  for (const bool recompute : {false, true}) {
    Transformer model(spec);
    model.set_recompute(recompute);
    prepare(model);
    const Example example(false);
    ModelInput input{example.ids, Layout::of({7, 3})};
    input.globals = Indices({0, 0, 1, 0, 0, 1, 0, 0, 0, 0});
    const auto loss = [&] { return model.loss(input, example.targets, example.context, 1.0F / 9); };
    model.parameters().reset_gradients();
    backward(loss().loss);
    model.parameters().complete_gradients();
    std::vector<std::vector<float>> g;
    for (const Parameter& p : model.parameters().all()) g.push_back(floats(p.leaf->grad));
    if (recompute) {
      EXPECT_EQ(g, kept);
      continue;
    }
    kept = g;
    const NoGrad guard;
    const testing::OneThread thread;
    expect_slope(model, g, [&] { return loss().total / 9; });
  }
}

// The decoder attends to rows of another width, made by other heads of another table.
TEST(EncoderDecoderGradient, OfStacksOfTwoShapesIsTheDifference) {
  ModelSpec spec = tiny(true);
  spec.architecture = Architecture::encoder_decoder;
  spec.encoder_layers = 1;
  spec.encoder = {10, 2, 9};
  Transformer model(spec);
  EXPECT_EQ(model.parameters().find("encoder.embedding.token")->shape, (Shape{11, 10}));
  EXPECT_EQ(model.parameters().find("encoder.block.0.attention.qkv.weight")->shape, (Shape{30, 10}));
  EXPECT_EQ(model.parameters().find("encoder.block.0.feed_forward.up.weight")->shape, (Shape{9, 10}));
  EXPECT_EQ(model.parameters().find("decoder.block.1.cross_attention.kv.weight")->shape, (Shape{16, 10}));
  prepare(model);
  const Example example(false);
  ModelInput input{example.ids, Layout::of({7, 3})};
  input.source = Indices({8, 1, 3, 3, 7, 2});
  input.source_layout = Layout::of({2, 4});
  const auto loss = [&] { return model.loss(input, example.targets, example.context, 1.0F / 9); };
  model.parameters().reset_gradients();
  backward(loss().loss);
  model.parameters().complete_gradients();
  std::vector<std::vector<float>> g;
  for (const Parameter& p : model.parameters().all()) g.push_back(floats(p.leaf->grad));
  const NoGrad guard;
  const testing::OneThread thread;
  expect_slope(model, g, [&] { return loss().total / 9; });
}

TEST(DecoderGradient, InBf16IsNearF32) {
  for (const bool tied : {false, true}) {
    Transformer wide(tiny(tied)), narrow(tiny(tied));
    prepare(wide);
    prepare(narrow, DType::bf16);
    const Example example(false);
    const auto a = gradients(wide, example), b = gradients(narrow, example);
    for (size_t k = 0; k < a.size(); ++k) {
      double error = 0, size = 0;
      for (size_t i = 0; i < a[k].size(); ++i) {
        error += std::pow(double{a[k][i]} - b[k][i], 2);
        size += std::pow(double{a[k][i]}, 2);
      }
      // About 30 roundings of 2^-8 / sqrt(3) in mean square, on the way up and back; twice that.
      EXPECT_LT(std::sqrt(error), 2 * std::sqrt(30.0 / 3) * testing::kUnitBf16 * std::sqrt(size))
          << wide.parameters().all()[k].name;
    }
  }
}

TEST(Recompute, GivesTheSameGradientsBitForBit) {
  for (const bool tied : {false, true})
    for (const DType compute : {DType::f32, DType::bf16}) {
      ModelSpec spec = tiny(tied);
      spec.attention.dropout = spec.residual_dropout = spec.embedding_dropout = 0.2F;
      Transformer model(spec);
      prepare(model, compute);
      const Example example(true);
      const auto kept = gradients(model, example);
      const float loss = example.loss(model).loss.item();
      model.set_recompute(true);
      const auto again = gradients(model, example);
      EXPECT_EQ(example.loss(model).loss.item(), loss);
      for (size_t k = 0; k < kept.size(); ++k)
        EXPECT_EQ(kept[k], again[k]) << model.parameters().all()[k].name;
    }
}

// Any function, with inputs that want a gradient and some that do not, undefined ones, several outputs.
TEST(Recompute, OfAnyFunction) {
  const auto f = [](const std::vector<Tensor>& in) {
    const Tensor y = activation(Activation::gelu, linear(in[0], in[1], in[2]));
    const ResidualNormResult r = residual_norm(y, in[3], {}, in[4], in[4], 1e-5F);
    return std::vector<Tensor>{r.sum, add(r.normalized, y)};
  };
  std::vector<Tensor> inputs = {
      uniform({5, 17}, 1), uniform({3, 17}, 2), uniform({3}, 3), {}, uniform({3}, 4)};
  const auto run = [&](const testing::Op& op, bool x_wants) {
    std::vector<Tensor> given = inputs;
    std::vector<std::shared_ptr<Leaf>> leaves;
    for (size_t i = x_wants ? 0 : 1; i < given.size(); ++i)
      if (given[i].defined())
        leaves.push_back(make_leaf(given[i], Tensor::zeros(given[i].shape(), DType::f32)));
    const auto out = op(given);
    std::vector<Seed> seeds;
    for (size_t o = 0; o < out.size(); ++o) seeds.emplace_back(out[o], uniform(out[o].shape(), 50 + o));
    backward(seeds);
    std::vector<std::vector<float>> g;
    for (const auto& out_tensor : out) g.push_back(floats(out_tensor));
    for (const auto& leaf : leaves) g.push_back(floats(leaf->grad));
    return g;
  };
  const testing::Op recomputed = [&](const std::vector<Tensor>& in) { return recompute(in, f); };
  for (const bool x_wants : {false, true}) EXPECT_EQ(run(f, x_wants), run(recomputed, x_wants));
}

// A gradient that arrives at one output only.
TEST(Recompute, OfOneOutputOfTwo) {
  Tensor x = uniform({3, 5}, 1);
  const auto leaf = make_leaf(x, Tensor::zeros({3, 5}, DType::f32));
  const auto out = recompute({x}, [](const std::vector<Tensor>& in) {
    return std::vector<Tensor>{activation(Activation::gelu, in[0]), add(in[0], in[0])};
  });
  const Seed seed{out[1], uniform({3, 5}, 2)};
  backward(std::span(&seed, 1));
  for (int64_t i = 0; i < x.count(); ++i)
    EXPECT_EQ(leaf->grad.data<float>()[i], 2 * seed.second.data<float>()[i]);
}

TEST(Backward, OnlyFromAnF32Scalar) {
  EXPECT_THROW(backward(uniform({2}, 1)), Error);
  EXPECT_THROW(backward(convert(uniform({1}, 1), DType::bf16)), Error);
}

TEST(Backward, NothingIsRecordedUnderNoGrad) {
  Tensor x = uniform({3, 5}, 1);
  make_leaf(x, Tensor::zeros({3, 5}, DType::f32));
  {
    const NoGrad guard;
    EXPECT_FALSE(recording());
    EXPECT_EQ(add(x, x).edge(), nullptr);
  }
  EXPECT_TRUE(recording());
  EXPECT_NE(add(x, x).edge(), nullptr);
}

}  // namespace
}  // namespace qkv::decoder_test
