// Fast weights and the maps of their queries and keys: gradients, going on from a state, what does not fit.
// Covers: qkv/ops/fast_weights.cc, qkv/ops/feature_map.cc, qkv/ops/fast_weights_chunks.cc
// Covers: qkv/ops/thread_product.cc
#include "qkv/ops/fast_weights.h"

#include "qkv/kernels/kernels.h"
#include "qkv/ops/feature_map.h"
#include "tests/gradient/gradient_check.h"

namespace qkv::fast_weights_test {
namespace {

using testing::expect_gradients;
using testing::uniform;
using Tensors = std::vector<Tensor>;

const std::vector<int32_t> kOffsets = {0, 1, 36, 36, 40}, kKeyOffsets = {0, 3, 36, 38, 38};

// The parts of a rule: which inputs there are.
struct Rule {
  const char* name;
  int64_t heads, key_heads, d_k, d_v;
  int64_t decay = 0;  // 1: a number a head; 2: one a row of S
  bool beta = false, ab = false, normalised = false, causal = true, first = true;
};
constexpr Rule kRules[] = {
    {"sum", 2, 2, 3, 5},
    {"normalised", 2, 1, 5, 16, 0, false, false, true},
    {"normalised, all keys", 1, 1, 17, 3, 0, false, false, true, false},
    {"all keys", 2, 2, 4, 17, 0, false, false, false, false, false},
    {"decay", 4, 2, 3, 5, 1},
    {"decay of rows", 2, 2, 5, 4, 2},
    {"delta", 2, 1, 4, 3, 0, true},
    {"gated delta", 2, 2, 3, 70, 1, true},
    {"gated delta, decay of rows", 1, 1, 3, 4, 2, true},
    {"rwkv7", 2, 2, 4, 6, 2, false, true},
};

Tensors inputs(const Rule& r) {
  const int64_t n = kOffsets.back(), m = r.causal ? n : kKeyOffsets.back();
  // A normaliser away from zero, and keys that are short enough for states not to grow.
  const double low = r.normalised ? 0.2 : -0.6;
  Tensors in = {uniform({n, r.key_heads * r.d_k}, 1, low, 0.6),
                uniform({m, r.key_heads * r.d_k}, 2, low, 0.6), uniform({m, r.heads * r.d_v}, 3)};
  if (r.decay > 0) in.push_back(uniform({m, r.heads * (r.decay == 1 ? 1 : r.d_k)}, 4, -1, -0.1));
  if (r.beta) in.push_back(uniform({m, r.heads}, 5, 0.2, 0.8));
  for (int i = 0; i < 2 && r.ab; ++i) in.push_back(uniform({m, r.heads * r.d_k}, 6 + i, -0.4, 0.4));
  if (r.first)
    in.push_back(uniform({std::ssize(kOffsets) - 1, r.heads * r.d_k * (r.d_v + (r.normalised ? 1 : 0))}, 8,
                         r.normalised ? 0.1 : -1));
  return in;
}

FastWeightsResult run(const Rule& r, const Tensors& in, const std::vector<int32_t>& offsets,
                      const std::vector<int32_t>& keys) {
  FastWeightsInput f{
      .heads = r.heads, .key_heads = r.key_heads, .q = in[0], .k = in[1], .v = in[2], .scale = 0.7F};
  size_t next = 3;
  if (r.decay > 0) f.decay = in[next++];
  if (r.beta) f.beta = in[next++];
  if (r.ab) f.a = in[next], f.b = in[next + 1], next += 2;
  if (r.normalised) f.epsilon = 1e-6F;
  return fast_weights(f, r.first ? in[next] : Tensor(), offsets, keys, r.causal);
}

// In training sums and the delta rule go by products of chunks, in inference token by token: of sequences
// that are longer than chunks both are the same to rounding.
TEST(FastWeights, GoInChunksInTraining) {
  const std::vector<int32_t> offsets = {0, 150, 150, 151, 280};
  const auto longer = [&](const Tensor& x, uint64_t seed, double low, double high) {
    return uniform({offsets.back(), x.width()}, seed, low, high);
  };
  for (const Rule& r : kRules) {
    if (!r.causal || r.ab || r.decay == 2) continue;
    SCOPED_TRACE(r.name);
    Tensors in = inputs(r);
    const double low = r.normalised ? 0.2 : -0.6;
    if (r.beta) in[r.decay == 1 ? 4 : 3] = longer(in[r.decay == 1 ? 4 : 3], 5, 0.2, 0.9);
    for (size_t i = 0; i < 3; ++i) in[i] = longer(in[i], i + 1, low, 0.6);
    if (r.decay == 1) in[3] = longer(in[3], 4, -1.5, -0.01);
    Tensors leaves = in;
    for (Tensor& x : leaves) x = x.clone(), make_leaf(x, Tensor::zeros(x.shape(), DType::f32));
    const FastWeightsResult chunks = run(r, leaves, offsets, offsets);
    const NoGrad guard;
    const FastWeightsResult steps = run(r, in, offsets, offsets);
    for (const auto& [a, b] : {std::pair(chunks.y, steps.y), {chunks.state, steps.state}}) {
      float largest = 0;
      for (const float x : b.values<float>()) largest = std::max(largest, std::abs(x));
      for (int64_t i = 0; i < a.count(); ++i)
        ASSERT_NEAR(a.values<float>()[i], b.values<float>()[i], 4e-6F * std::max(1.0F, largest)) << i;
    }
  }
}

TEST(FastWeightsGradient, OfLongSequencesIsTheDifference) {
  const std::vector<int32_t> offsets = {0, 70, 70, 71, 200};
  for (const Rule& r : kRules) {
    if (!r.causal || r.ab || r.decay == 2) continue;
    SCOPED_TRACE(r.name);
    Tensors in = inputs(r);
    const double low = r.normalised ? 0.2 : -0.2;
    for (size_t i = 0; i < 3; ++i) in[i] = uniform({200, in[i].width()}, i + 1, low, 0.4);
    testing::Check check{.h = 0x1p-5, .fifth = 200, .roundings = 400, .bf16 = false, .coordinates = 60};
    if (r.decay == 1) in[3] = uniform({200, in[3].width()}, 4, -0.3, -0.01), check.keep_f32.push_back(3);
    if (r.beta) {
      const int at = r.decay == 1 ? 4 : 3;
      in[static_cast<size_t>(at)] = uniform({200, r.heads}, 5, 0.2, 0.9);
      check.keep_f32.push_back(at);
    }
    expect_gradients(
        [&](const Tensors& x) {
          const FastWeightsResult out = run(r, x, offsets, offsets);
          return Tensors{out.y, out.state};
        },
        in, check);
  }
}

TEST(FastWeightsGradient, IsTheDifference) {
  for (const Rule& r : kRules) {
    SCOPED_TRACE(r.name);
    // Decay, beta and first stay f32.
    testing::Check check{.h = 0x1p-5, .fifth = 200, .roundings = 64, .bf16_roundings = 6};
    for (int i = 3; i < static_cast<int>(inputs(r).size()); ++i) check.keep_f32.push_back(i);
    check.bf16 = !r.ab;
    expect_gradients(
        [&](const Tensors& in) {
          const FastWeightsResult out = run(r, in, kOffsets, r.causal ? kOffsets : kKeyOffsets);
          return Tensors{out.y, out.state};
        },
        inputs(r), check);
  }
}

// Divisors that are raised have no gradient, those whose magnitude counts have one of their sign. 0.4 lies
// between the sums here.
TEST(FastWeightsGradient, OfLeastDivisorsIsTheDifference) {
  const std::vector<int32_t> offsets = {0, 9};
  for (const LeastDivisor rule : {LeastDivisor::of_magnitude, LeastDivisor::above, LeastDivisor::absolute})
    for (const bool causal : {true, false}) {
      SCOPED_TRACE(fmt::format("{} {}", static_cast<int>(rule), causal));
      const auto y = [&](const Tensors& x) {
        return Tensors{fast_weights({.heads = 2,
                                     .key_heads = 2,
                                     .q = x[0],
                                     .k = x[1],
                                     .v = x[2],
                                     .epsilon = 0.0F,
                                     .least_divisor = 0.4F,
                                     .divisors = rule},
                                    {}, offsets, offsets, causal)
                           .y};
      };
      const Tensors in = {uniform({9, 6}, 1), uniform({9, 6}, 2), uniform({9, 4}, 3)};
      expect_gradients(y, in, {.h = 0x1p-9, .fifth = 4e6, .roundings = 400, .bf16 = false});
      // Each rule by hand, at the first token, whose divisor is k . q.
      for (int64_t h = 0; h < 2 && causal; ++h) {
        float d = 0;
        for (int64_t i = 0; i < 3; ++i) d += in[0].row<float>(0)[h * 3 + i] * in[1].row<float>(0)[h * 3 + i];
        const float size = std::max(std::abs(d), 0.4F),
                    divisor = rule == LeastDivisor::above      ? std::max(d, 0.4F)
                              : rule == LeastDivisor::absolute ? size
                                                               : std::copysign(size, d);
        EXPECT_NEAR(y(in)[0].row<float>(0)[h * 2], d * in[2].row<float>(0)[h * 2] / divisor, 1e-6);
      }
    }
}

TEST(FastWeights, GoOnFromAStateWithTheSameBits) {
  const NoGrad guard;
  for (Rule r : kRules) {
    if (!r.causal) continue;
    SCOPED_TRACE(r.name);
    r.first = true;
    const Tensors in = inputs(r);
    const Tensor first = in.back().slice_rows(0, 1);
    const auto rows = [&](int64_t begin, int64_t end, const Tensor& state) {
      Tensors part;
      for (size_t i = 0; i + 1 < in.size(); ++i) part.push_back(in[i].slice_rows(begin, end).clone());
      part.push_back(state);
      const std::vector<int32_t> all = {0, static_cast<int32_t>(end - begin)};
      return run(r, part, all, all);
    };
    const FastWeightsResult whole = rows(0, 40, first);
    Tensor state = first;
    int64_t begin = 0;
    for (const int64_t end : {1, 2, 7, 35, 40}) {
      const FastWeightsResult part = rows(begin, end, state);
      for (int64_t t = begin; t < end; ++t)
        ASSERT_TRUE(std::ranges::equal(part.y.row<float>(t - begin), whole.y.row<float>(t))) << t;
      state = part.state;
      begin = end;
    }
    EXPECT_TRUE(std::ranges::equal(state.values<float>(), whole.state.values<float>()));
    // The state amid a sequence.
    FastWeightsInput f{.heads = r.heads, .key_heads = r.key_heads, .q = in[0], .k = in[1], .v = in[2]};
    if (r.decay > 0 || r.beta || r.ab || r.normalised) continue;
    for (const int32_t mark : {0, 1, 35, 40}) {
      const std::vector<int32_t> all = {0, 40}, marks = {mark};
      f.scale = 0.7F;
      const Tensor marked = fast_weights(f, first, all, all, true, marks).marked,
                   want = mark == 0 ? first : rows(0, mark, first).state;
      EXPECT_TRUE(std::ranges::equal(marked.values<float>(), want.values<float>())) << mark;
    }
  }
}

// Either result alone may be what the gradient is of.
TEST(FastWeightsGradient, IsOfEitherResult) {
  const Rule& r = kRules[7];
  for (const bool of_state : {false, true})
    testing::expect_finite_differences(
        [&](const Tensors& in) {
          const FastWeightsResult out = run(r, in, kOffsets, kOffsets);
          return Tensors{of_state ? out.state : out.y};
        },
        inputs(r), {.h = 0x1p-5, .fifth = 200, .roundings = 64});
}

// Every table against the plain loops.
TEST(FastWeights, TablesAgree) {
  for (const bool decays : {false, true})
    for (const bool delta : {false, true})
      for (const int64_t d_v : {16, 80, 144}) {
        const int64_t n = 5, d_k = 32, size = d_k * d_v;
        const Tensor q = uniform({n, d_k}, 1, -0.3, 0.3), k = uniform({n, d_k}, 2, -0.3, 0.3),
                     v = uniform({n, d_v}, 3), w = uniform({n, d_k}, 4, 0.3, 1),
                     a = uniform({n, d_k}, 5, -0.2, 0.2), b = uniform({n, d_k}, 6, -0.2, 0.2),
                     first = uniform({1, size}, 7), dy = uniform({n, d_v}, 8), last = uniform({1, size}, 9);
        const FastWeights f{n,
                            d_k,
                            d_v,
                            q.data<float>(),
                            k.data<float>(),
                            v.data<float>(),
                            decays ? w.data<float>() : nullptr,
                            delta ? a.data<float>() : nullptr,
                            delta ? b.data<float>() : nullptr};
        const auto results = [&](const KernelTable& table) {
          std::vector<float> state(first.data<float>(), first.data<float>() + size), y(n * d_v),
              states((n + 1) * size), memory(2 * d_v), grad(last.data<float>(), last.data<float>() + size),
              dq(n * d_k), dk(n * d_k), dv(n * d_v), dw(n * d_k), da(n * d_k), db(n * d_k);
          table.fast_weights(f, state.data(), y.data(), states.data(), memory.data());
          table.fast_weights_grad({f, states.data(), dy.data<float>(), grad.data(), dq.data(), dk.data(),
                                   dv.data(), decays ? dw.data() : nullptr, delta ? da.data() : nullptr,
                                   delta ? db.data() : nullptr, memory.data()});
          std::vector<float> all;
          for (const auto* x : {&state, &y, &states, &grad, &dq, &dk, &dv, &dw, &da, &db})
            all.insert(all.end(), x->begin(), x->end());
          return all;
        };
        const std::vector<float> want = results(generic_kernels());
        for (int i = 1; i < kernel_table_count(); ++i) {
          const std::vector<float> got = results(kernel_table(i));
          for (size_t j = 0; j < want.size(); ++j)
            ASSERT_NEAR(got[j], want[j], 3e-5) << kernel_table(i).name << j;
        }
      }
}

TEST(FastWeights, RefuseWhatDoesNotFit) {
  const Tensor x = uniform({3, 4}, 1), v = uniform({3, 6}, 2), two = uniform({3, 2}, 3);
  const std::vector<int32_t> all = {0, 3}, less = {0, 2};
  const auto with = [&](auto change, const Tensor& first = {}) {
    FastWeightsInput in{.heads = 2, .key_heads = 2, .q = x, .k = x, .v = v};
    change(in);
    return fast_weights(in, first, all, all, true);
  };
  EXPECT_NO_THROW(with([](FastWeightsInput&) {}));
  EXPECT_THROW(with([](FastWeightsInput& in) { in.key_heads = 3; }), Error);
  EXPECT_THROW(with([&](FastWeightsInput& in) { in.k = v; }), Error);
  EXPECT_THROW(with([&](FastWeightsInput& in) { in.decay = v; }), Error);
  EXPECT_THROW(with([&](FastWeightsInput& in) { in.beta = x; }), Error);
  EXPECT_THROW(with([&](FastWeightsInput& in) { in.a = x; }), Error);
  EXPECT_THROW(with([&](FastWeightsInput& in) { in.beta = two, in.epsilon = 1.0F; }), Error);
  EXPECT_THROW(with([](FastWeightsInput&) {}, uniform({1, 4}, 4)), Error);
  const FastWeightsInput in{.heads = 2, .key_heads = 2, .q = x, .k = x, .v = v};
  EXPECT_THROW(fast_weights(in, {}, less, all, true), Error);
}

TEST(FeatureMapGradient, IsTheDifference) {
  for (const FeatureMap kind : {FeatureMap::identity, FeatureMap::elu, FeatureMap::relu, FeatureMap::shares,
                                FeatureMap::unit, FeatureMap::near_unit}) {
    SCOPED_TRACE(static_cast<int>(kind));
    // Away from the bends of relu and elu.
    Tensor x = uniform({4, 15}, 1, 0.3, 1);
    float* at = x.mutable_data<float>();
    for (int64_t i = 0; i < x.count(); i += 2) at[i] = -at[i];
    expect_gradients([&](const Tensors& in) { return Tensors{feature_map(kind, in[0], 3)}; }, {x},
                     {.h = 0x1p-5, .fifth = 100, .roundings = 8, .bf16_roundings = 4});
  }
  EXPECT_THROW(feature_map(FeatureMap::elu, uniform({2, 4}, 1), 3), Error);
}

}  // namespace
}  // namespace qkv::fast_weights_test
