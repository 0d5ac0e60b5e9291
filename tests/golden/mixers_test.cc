// Operators of mixers against published implementations: every file of $QKV_REFERENCE/mixers, whatever its
// shapes. The folder's README.md has the formulas and the meaning of the keys.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "qkv/autograd/graph.h"
#include "qkv/io/container/safetensors.h"
#include "qkv/ops/attention_free.h"
#include "qkv/ops/elementwise.h"
#include "qkv/ops/fast_weights.h"
#include "qkv/ops/feature_map.h"
#include "qkv/ops/linear.h"
#include "qkv/ops/parts.h"
#include "qkv/ops/products.h"
#include "qkv/ops/random_features.h"
#include "qkv/ops/selective_scan.h"
#include "qkv/ops/time_step.h"
#include "qkv/ops/wkv.h"

namespace qkv::mixers_test {
namespace {

constexpr double kBound = 1e-5;  // times the largest magnitude of what is expected

using Floats = std::vector<float>;

struct Array {
  std::vector<int64_t> shape;
  Floats values;
};

// A file: its arrays by name. Arrays of tokens [B, T, ...] keep the rows of tokens that there are.
struct File {
  std::map<std::string, Array> arrays;
  std::map<std::string, int64_t> numbers;
  std::vector<int32_t> offsets = {0};

  explicit File(const std::string& path) {
    const TensorFile file = read_safetensors(path);
    const Tensor& lengths = file.tensors.at("lengths");
    for (int64_t s = 0; s < lengths.count(); ++s)
      offsets.push_back(offsets.back() + static_cast<int32_t>(lengths.data<int64_t>()[s]));
    for (const auto& [name, x] : file.tensors) {
      if (x.dtype() == DType::i64 && x.count() == 1) numbers.emplace(name, x.data<int64_t>()[0]);
      if (x.dtype() != DType::f32) continue;
      Array a;
      for (int64_t i = 0; i < x.shape().rank(); ++i) a.shape.push_back(x.dim(i));
      const auto values = x.values<float>();
      a.values.assign(values.begin(), values.end());
      arrays.emplace(name, std::move(a));
    }
  }
  int64_t sequences() const { return std::ssize(offsets) - 1; }
  const Array& at(const std::string& name) const {
    const auto it = arrays.find(name);
    check(it != arrays.end(), "the case has no {}", name);
    return it->second;
  }
  bool has(const std::string& name) const { return arrays.contains(name); }
  // Rows of tokens of [B, T, ...], one sequence after another.
  Array tokens(const std::string& name) const {
    const Array& from = at(name);
    const int64_t longest = from.shape.at(1);
    const int64_t width = std::ssize(from.values) / std::max<int64_t>(1, sequences() * longest);
    Array out{{offsets.back(), width}, {}};
    for (int64_t s = 0; s < sequences(); ++s) {
      const auto begin = from.values.begin() + s * longest * width;
      out.values.insert(out.values.end(), begin, begin + (offsets[s + 1] - offsets[s]) * width);
    }
    return out;
  }
};

// One state of each head, in the columns [first, first + columns) of fast_weights()'s [d_k, columns] matrix;
// or stored the other way round.
struct StatePart {
  std::string name, initial;
  int64_t first = 0, columns = 0;
  bool transposed = false;
};

// An input as a leaf, and where its gradient goes.
struct LeafOf {
  Tensor x;
  std::shared_ptr<Leaf> leaf;
};

LeafOf leaf_of(const Array& a) {
  const auto count = std::ssize(a.values);
  const bool vector = a.shape.size() == 1;
  LeafOf out{Tensor::of(vector ? Shape({count}) : Shape({a.shape[0], count / a.shape[0]}), a.values),
             nullptr};
  out.leaf = make_leaf(out.x, Tensor::zeros(out.x.shape(), DType::f32));
  return out;
}

Floats values_of(const Tensor& x) {
  const auto v = x.values<float>();
  return {v.begin(), v.end()};
}

// A variant of a case: computes, and compares all that the file has of it.
class Variant {
 public:
  Variant(const File& file, std::string name) : file_(file), name_(std::move(name)) {}

  std::map<std::string, LeafOf> leaves;  // by the name of their gradients
  int64_t heads = 1, d_k = 1, d_v = 1, columns = 1;
  std::vector<StatePart> states;

  Tensor token_leaf(const std::string& name) { return leaf(name, file_.tokens("in." + name)); }
  Tensor leaf(const std::string& name, const Array& a) {
    const LeafOf made = leaf_of(a);
    leaves.emplace(name, made);
    return made.x;
  }
  // The first state, where the variant has one.
  Tensor first() {
    if (!name_.ends_with("resume")) return {};
    return leaf("first", {{file_.sequences(), heads * d_k * columns}, joined("in.", true)});
  }
  // Compares a gradient that it has computed itself.
  std::map<std::string, Floats> more_gradients;

  // y and the states of a result.
  template <typename Result>
  void compare(const Result& r, bool with_states) {
    near("out", values_of(r.y), file_.tokens(name_ + ".out").values);
    for (const StatePart& p : states)
      if (file_.has(name_ + ".state." + p.name))
        near("state." + p.name, part(values_of(r.state), p), file_.at(name_ + ".state." + p.name).values);
    std::vector<Seed> seeds = {{r.y, Tensor::of(r.y.shape(), file_.tokens("weight.out").values)}};
    if (with_states) seeds.emplace_back(r.state, Tensor::of(r.state.shape(), joined("weight.state.", false)));
    backward(seeds);
  }
  // To be called once the gradients are complete.
  void compare_gradients(bool with_states) {
    const std::string prefix = name_ + (with_states ? ".grad_all." : ".grad.");
    std::map<std::string, Floats> found = more_gradients;
    for (const auto& [name, leaf] : leaves) {
      const Floats grad = values_of(leaf.leaf->grad);
      if (name != "first") found.emplace(name, grad);
      for (const StatePart& p : states)
        if (name == "first") found.emplace(p.initial, part(grad, p));
    }
    int64_t compared = 0;
    for (const auto& [name, grad] : found) {
      if (!file_.has(prefix + name)) continue;
      const Array& want = file_.at(prefix + name);
      const bool of_tokens = std::ssize(want.shape) >= 2 && want.shape[0] == file_.sequences() &&
                             std::ssize(want.values) != std::ssize(grad);
      near("grad." + name, grad, of_tokens ? file_.tokens(prefix + name).values : want.values);
      ++compared;
    }
    for (const auto& [key, array] : file_.arrays) {
      if (key.starts_with(prefix)) {
        EXPECT_TRUE(found.contains(key.substr(prefix.size()))) << key;
      }
    }
    EXPECT_TRUE(compared > 0 || with_states);
  }
  Floats grad(const std::string& name) const { return values_of(leaves.at(name).leaf->grad); }
  void near(const std::string& what, const Floats& got, const Floats& want) const {
    ASSERT_EQ(got.size(), want.size()) << name_ << " " << what;
    double largest = 1e-30;
    for (const float x : want) largest = std::max(largest, std::abs(double{x}));
    for (size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(got[i], want[i], kBound * largest) << name_ << " " << what << ", number " << i;
  }

 private:
  // The states of a file as fast_weights() has them; those that it lacks are 0.
  Floats joined(const std::string& prefix, bool initial) const {
    Floats out(static_cast<size_t>(file_.sequences() * heads * d_k * columns));
    for (const StatePart& p : states) {
      const std::string name = prefix + (initial ? p.initial : p.name);
      if (!file_.has(name)) continue;
      const Floats& from = file_.at(name).values;
      for_each(p, [&](int64_t of_part, int64_t of_state) { out[of_state] = from[of_part]; });
    }
    return out;
  }
  Floats part(const Floats& state, const StatePart& p) const {
    Floats out(static_cast<size_t>(file_.sequences() * heads * d_k * p.columns));
    for_each(p, [&](int64_t of_part, int64_t of_state) { out[of_part] = state[of_state]; });
    return out;
  }
  template <typename F>
  void for_each(const StatePart& p, const F& f) const {
    for (int64_t h = 0; h < file_.sequences() * heads; ++h)
      for (int64_t i = 0; i < d_k; ++i)
        for (int64_t j = 0; j < p.columns; ++j)
          f(h * d_k * p.columns + (p.transposed ? j * d_k + i : i * p.columns + j),
            (h * d_k + i) * columns + p.first + j);
  }
  const File& file_;
  std::string name_;
};

// The shape of [B, T, H, d], or 1 head of [B, T, d].
int64_t heads_of(const Array& a) {
  return a.shape.size() > 3 ? a.shape[2] : 1;
}

void run_fast_weights(const File& file, const std::string& op, const std::string& name, bool with_states) {
  Variant v(file, name);
  const bool causal = name != "full";
  FastWeightsInput in;
  const auto query_key_value = [&](FeatureMap features, float scale) {
    v.heads = heads_of(file.at("in.q"));
    v.d_k = file.at("in.q").shape.back();
    v.d_v = v.columns = file.at("in.v").shape.back();
    in.heads = in.key_heads = v.heads;
    in.scale = scale;
    in.q = feature_map(features, v.token_leaf("q"), v.heads);
    in.k = feature_map(features, v.token_leaf("k"), v.heads);
    in.v = v.token_leaf("v");
  };
  const auto width_scale = [&] { return 1 / std::sqrt(static_cast<float>(file.at("in.q").shape.back())); };
  std::vector<std::string> by_hand;
  if (op == "linear_attention_elu") {
    query_key_value(FeatureMap::elu, 1);
    v.columns = v.d_v + 1;
    v.states = {{"S", "S0", 0, v.d_v}, {"z", "z0", v.d_v, 1}};
    in.epsilon = 1e-6F;
  } else if (op == "linear_attention_plain") {
    query_key_value(FeatureMap::identity, width_scale());
    v.states = {{"S", "S0", 0, v.d_v}};
  } else if (op == "fast_weight") {
    query_key_value(FeatureMap::shares, 1);
    v.states = {{"W", "W0", 0, v.d_v, true}};
    if (name.starts_with("delta")) in.beta = v.token_leaf("beta");
  } else if (op == "delta_rule" || op == "gated_delta_rule") {
    query_key_value(FeatureMap::identity, width_scale());
    v.states = {{"S", "S0", 0, v.d_v}};
    in.beta = v.token_leaf("beta");
    if (op == "gated_delta_rule") in.decay = v.token_leaf("g");
  } else if (op == "rwkv7") {
    v.heads = heads_of(file.at("in.r"));
    v.d_k = file.at("in.r").shape.back();
    v.d_v = v.columns = file.at("in.v").shape.back();
    v.states = {{"S", "S0", 0, v.d_v, true}};
    Array decay = file.tokens("in.w");
    for (float& x : decay.values) x = -std::exp(x);
    in = {.heads = v.heads,
          .key_heads = v.heads,
          .q = v.token_leaf("r"),
          .k = v.token_leaf("k"),
          .v = v.token_leaf("v"),
          .decay = v.leaf("decay", decay),
          .a = v.token_leaf("a"),
          .b = v.token_leaf("b")};
  } else {  // mamba2_ssd: S' is H
    v.heads = heads_of(file.at("in.x"));
    v.d_k = file.at("in.B").shape.back();
    v.d_v = v.columns = file.at("in.x").shape.back();
    v.states = {{"h", "h0", 0, v.d_v, true}};
    Array value = file.tokens("in.x"), decay = file.tokens("in.dt");
    const Floats dt = decay.values, &A = file.at("in.A").values;
    for (size_t i = 0; i < value.values.size(); ++i) value.values[i] *= dt[i / v.d_v];
    for (size_t i = 0; i < dt.size(); ++i) decay.values[i] *= A[i % v.heads];
    in = {.heads = v.heads,
          .key_heads = heads_of(file.at("in.B")),
          .q = v.token_leaf("C"),
          .k = v.token_leaf("B"),
          .v = v.leaf("value", value),
          .decay = v.leaf("decay", decay)};
  }
  const FastWeightsResult r = fast_weights(in, v.first(), file.offsets, file.offsets, causal);
  v.compare(r, with_states);
  // Gradients of what its inputs were made of.
  if (op == "rwkv7") {
    Floats w = file.tokens("in.w").values;
    const Floats grad = v.grad("decay");
    for (size_t i = 0; i < w.size(); ++i) w[i] = -std::exp(w[i]) * grad[i];
    v.more_gradients["w"] = w;
  } else if (op == "mamba2_ssd") {
    const Floats x = file.tokens("in.x").values, dt = file.tokens("in.dt").values,
                 &A = file.at("in.A").values, of_value = v.grad("value"), of_decay = v.grad("decay");
    Floats of_x = of_value, of_dt(dt.size()), of_A(A.size());
    for (size_t i = 0; i < x.size(); ++i) {
      of_x[i] *= dt[i / v.d_v];
      of_dt[i / v.d_v] += x[i] * of_value[i];
    }
    for (size_t i = 0; i < dt.size(); ++i) {
      of_dt[i] += A[i % v.heads] * of_decay[i];
      of_A[i % v.heads] += dt[i] * of_decay[i];
    }
    v.more_gradients = {{"x", of_x}, {"dt", of_dt}, {"A", of_A}};
  }
  v.compare_gradients(with_states);
}

void run_selective_scan(const File& file, const std::string& name, bool with_states) {
  Variant v(file, name);
  v.heads = file.at("in.A").shape[0];
  v.d_v = v.columns = file.at("in.A").shape[1];
  v.states = {{"h", "h0", 0, v.columns}};
  const Floats& A = file.at("in.A").values;
  Array log_rates = file.at("in.A");
  for (float& a : log_rates.values) a = std::log(-a);
  const Tensor steps = time_steps(v.token_leaf("delta"), v.leaf("delta_bias", file.at("in.delta_bias")), 0,
                                  std::numeric_limits<float>::infinity());
  SelectiveScanResult r = selective_scan({.x = v.token_leaf("u"),
                                          .steps = steps,
                                          .log_rates = v.leaf("log_rates", log_rates),
                                          .B = v.token_leaf("B"),
                                          .C = v.token_leaf("C"),
                                          .skip = v.leaf("D", file.at("in.D"))},
                                         v.first(), file.offsets);
  r.y = gated(Activation::silu, join_columns(v.token_leaf("z"), r.y));
  v.compare(r, with_states);
  Floats of_A = v.grad("log_rates");
  for (size_t i = 0; i < A.size(); ++i) of_A[i] /= A[i];
  v.more_gradients["A"] = of_A;
  v.compare_gradients(with_states);
}

// A state is a, b and p of A = a exp(p) and B = b exp(p); files have A and B.
void run_wkv(const File& file, const std::string& name, bool with_states) {
  Variant v(file, name);
  const WkvInput in{v.token_leaf("k"), v.token_leaf("v"), v.leaf("time_decay", file.at("in.time_decay")),
                    v.leaf("time_first", file.at("in.time_first"))};
  Tensor first;
  if (name == "resume") {
    const auto part = [&](const char* of) { return v.leaf(of, file.at(std::string("in.") + of)); };
    first = join_columns(join_columns(part("num0"), part("den0")), part("max0"));
  }
  const WkvResult r = wkv(in, first, file.offsets);
  v.near("out", values_of(r.y), file.tokens(name + ".out").values);
  const int64_t width = in.k.width();
  const Floats state = values_of(r.state);
  Floats seed(state.size());
  for (const auto& [part, of] : {std::pair<int64_t, const char*>(0, "a"), {1, "b"}}) {
    const Floats &want = file.at(name + ".state." + of).values,
                 &weight = file.at("weight.state." + std::string(of)).values;
    Floats got;
    for (int64_t i = 0; i < std::ssize(want); ++i) {
      const int64_t row = i / width * 3 * width, c = i % width;
      const float factor = std::exp(state[row + 2 * width + c]);
      got.push_back(state[row + part * width + c] * factor);
      seed[row + part * width + c] = weight[i] * factor;
    }
    v.near(of, got, want);
  }
  std::vector<Seed> seeds = {{r.y, Tensor::of(r.y.shape(), file.tokens("weight.out").values)}};
  if (with_states) seeds.emplace_back(r.state, Tensor::of(r.state.shape(), seed));
  backward(seeds);
  v.compare_gradients(with_states);
}

// Performer's features with the small numbers beside them. With causal masking keys still see the largest
// exponent of later ones; divisors then gain 1e-6 times the sum of a query's features: a z that is not 0 at
// first.
void run_raised_features(Variant& v, const File& file, const std::string& name, const Tensor& q,
                         const Tensor& k) {
  const bool causal = name == "causal";
  const int64_t d_k = q.width() / v.heads;
  Tensor first = Tensor::zeros({file.sequences(), v.heads * d_k * v.columns}, DType::f32);
  for (int64_t i = v.d_v; i < first.count() && causal; i += v.columns) first.mutable_data<float>()[i] = 1e-6F;
  const FastWeightsResult r = fast_weights(
      {.heads = v.heads, .key_heads = v.heads, .q = q, .k = k, .v = v.token_leaf("v"), .epsilon = 0.0F},
      first, file.offsets, file.offsets, causal);
  v.compare(r, false);
}

// Random feature attention as its authors published it. Features are cosines and sines here, the other way
// round in files.
void run_unit_features(const File& file, const std::string& name, bool with_states) {
  Variant v(file, name);
  v.heads = heads_of(file.at("in.q"));
  v.d_v = file.at("in.v").shape.back();
  v.columns = v.d_v + 1;
  v.states = {{"S", "S0", 0, v.d_v}, {"z", "z0", v.d_v, 1}};
  const Array& w = file.at("in.w");
  const int64_t count = w.shape.at(1), d = w.shape.at(2);
  v.d_k = 2 * count;
  const float tau = file.at("in.tau").values.at(0);
  Array factors = file.at("in.sigma");
  factors.shape = {v.heads * d};
  for (float& x : factors.values) x /= tau;
  const Tensor by = v.leaf("factors", factors);
  std::vector<Tensor> vectors;
  for (int64_t h = 0; h < v.heads; ++h)
    vectors.push_back(
        v.leaf(fmt::format("w{}", h),
               {{count, d}, {w.values.begin() + h * count * d, w.values.begin() + (h + 1) * count * d}}));
  const auto features = [&](const char* of) {
    const Tensor x = scaled_heads(feature_map(FeatureMap::near_unit, v.token_leaf(of), v.heads), by);
    Tensor all;
    for (int64_t h = 0; h < v.heads; ++h) {
      const Tensor f =
          random_features(RandomMap::fourier, columns_of(x, h * d, (h + 1) * d), vectors[h], 1).features;
      const Tensor turned = join_columns(columns_of(f, count, 2 * count), columns_of(f, 0, count));
      all = all.defined() ? join_columns(all, turned) : turned;
    }
    return scaled(all, 0.1F * std::sqrt(static_cast<float>(count)));
  };
  const bool causal = name != "full";
  const Tensor q = features("q"), k = features("k");
  const FastWeightsResult r =
      fast_weights({.heads = v.heads,
                    .key_heads = v.heads,
                    .q = q,
                    .k = k,
                    .v = v.token_leaf("v"),
                    .epsilon = 0.0F,
                    .least_divisor = 1,
                    .divisors = causal ? LeastDivisor::above : LeastDivisor::absolute},
                   v.first(), file.offsets, file.offsets, causal);
  v.compare(r, with_states);
  Floats of_w, of_sigma = v.grad("factors");
  for (int64_t h = 0; h < v.heads; ++h)
    for (const float x : v.grad(fmt::format("w{}", h))) of_w.push_back(x);
  for (float& x : of_sigma) x /= tau;
  v.more_gradients = {{"w", of_w}, {"sigma", of_sigma}};
  v.compare_gradients(with_states);
}

// Attention by random features. States here are parts of e^m, files have them whole.
void run_random_features(const File& file, const std::string& op, const std::string& name, bool with_states) {
  Variant v(file, name);
  const bool fourier = op == "rfa";
  const Array& q_of = file.at("in.q");
  v.heads = heads_of(q_of);
  v.d_v = file.at("in.v").shape.back();
  v.columns = v.d_v + 1;
  const float scale = 1 / std::sqrt(std::sqrt(static_cast<float>(q_of.shape.back())));
  // The files' vectors meet inputs that are not scaled.
  const char* of_vectors = fourier ? "w" : "projection";
  Array vectors = file.at(std::string("in.") + of_vectors);
  if (fourier)
    for (float& x : vectors.values) x /= scale;
  const RandomMap map = fourier ? RandomMap::fourier : RandomMap::positive;
  const Tensor w = v.leaf("vectors", vectors);
  const Tensor x = scaled(v.token_leaf("q"), scale), z = scaled(v.token_leaf("k"), scale);
  if (!fourier && !name.ends_with("_eps0")) {
    run_raised_features(v, file, name, raised_features(x, w, v.heads, 1e-4F, {}),
                        raised_features(z, w, v.heads, 1e-4F, file.offsets));
    v.more_gradients[of_vectors] = v.grad("vectors");
    return v.compare_gradients(with_states);
  }
  const RandomFeatures q = random_features(map, x, w, v.heads), k = random_features(map, z, w, v.heads);
  v.d_k = k.features.width() / v.heads;
  const RunningScale sizes = running_scale(k.log_scales, {}, {}, file.offsets);
  const FastWeightsResult r = fast_weights({.heads = v.heads,
                                            .key_heads = v.heads,
                                            .q = q.features,
                                            .k = scaled_heads(k.features, sizes.factors),
                                            .v = v.token_leaf("v"),
                                            .decay = sizes.decays,
                                            .epsilon = 0.0F,
                                            .least_divisor = 1e-6F},
                                           {}, file.offsets, file.offsets, !name.starts_with("full"));
  v.near("out", values_of(r.y), file.tokens(name + ".out").values);
  std::vector<Seed> seeds = {{r.y, Tensor::of(r.y.shape(), file.tokens("weight.out").values)}};
  if (file.has(name + ".state.S")) {
    const Floats state = values_of(r.state), m = values_of(sizes.state);
    Floats seed(state.size()), sums, divisors;
    const Floats &of_S = file.at("weight.state.S").values, &of_z = file.at("weight.state.z").values;
    for (int64_t i = 0; i < std::ssize(state); ++i) {
      const int64_t row = i / v.columns, column = i % v.columns;
      const float factor = std::exp(m[row / v.d_k]);
      (column < v.d_v ? sums : divisors).push_back(state[i] * factor);
      seed[i] = (column < v.d_v ? of_S[row * v.d_v + column] : of_z[row]) * factor;
    }
    v.near("S", sums, file.at(name + ".state.S").values);
    v.near("z", divisors, file.at(name + ".state.z").values);
    if (with_states) seeds.emplace_back(r.state, Tensor::of(r.state.shape(), seed));
  }
  backward(seeds);
  Floats of_w = v.grad("vectors");
  if (fourier)
    for (float& x : of_w) x /= scale;
  v.more_gradients[of_vectors] = of_w;
  v.compare_gradients(with_states);
}

// The attention-free transformer, with the gate.
void run_attention_free(const File& file, const std::string& name) {
  Variant v(file, name);
  const bool causal = name.ends_with("_causal");
  const std::string form = name.substr(0, name.find('_'));
  PositionWeights w;
  if (form == "full" || form == "local") w.table = v.leaf("w", file.at("in.w"));
  if (form == "local") w.window = file.numbers.at("in.window");
  if (form == "factorised")
    w.table = linear(v.leaf("wu", file.at("in.wu")), v.leaf("wv", file.at("in.wv")), {}, DType::f32);
  const Tensor y = attention_free(v.token_leaf("k"), v.token_leaf("v"), w, file.offsets,
                                  KeyLayout::contiguous(file.offsets), causal),
               out = product(activation(Activation::sigmoid, v.token_leaf("q")), y);
  v.near("out", values_of(out), file.tokens(name + ".out").values);
  backward(std::vector<Seed>{{out, Tensor::of(out.shape(), file.tokens("weight.out").values)}});
  v.compare_gradients(false);
}

const std::set<std::string> kKnown = {"aft",
                                      "linear_attention_elu",
                                      "linear_attention_plain",
                                      "fast_weight",
                                      "delta_rule",
                                      "gated_delta_rule",
                                      "rwkv7",
                                      "mamba2_ssd",
                                      "mamba_scan",
                                      "rwkv4_wkv",
                                      "rfa",
                                      "rfa_paper",
                                      "performer_favor"};

TEST(Mixers, AreThoseOfPublishedCode) {
  const char* reference = std::getenv("QKV_REFERENCE");
  const std::filesystem::path folder = std::string(reference ? reference : "") + "/mixers";
  if (reference == nullptr || !std::filesystem::exists(folder)) GTEST_SKIP() << "no reference cases here";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    const std::string stem = entry.path().stem();
    // Names may go on behind the operator's: _long, ....
    std::string op;
    for (const std::string& known : kKnown)
      if ((stem == known || stem.starts_with(known + "_")) && known.size() > op.size()) op = known;
    EXPECT_FALSE(op.empty()) << stem << ": an operator that this test does not know";
    if (op.empty()) continue;
    SCOPED_TRACE(stem);
    const File file(entry.path());
    std::set<std::string> variants;
    for (const auto& [name, array] : file.arrays)
      if (const size_t at = name.find(".out"); at != std::string::npos && !name.starts_with("weight."))
        variants.insert(name.substr(0, at));
    EXPECT_FALSE(variants.empty());
    for (const std::string& variant : variants)
      for (const bool with_states : {false, true})
        op == "aft"                              ? run_attention_free(file, variant)
        : op == "mamba_scan"                     ? run_selective_scan(file, variant, with_states)
        : op == "rfa" || op == "performer_favor" ? run_random_features(file, op, variant, with_states)
        : op == "rfa_paper"                      ? run_unit_features(file, variant, with_states)
        : op == "rwkv4_wkv"                      ? run_wkv(file, variant, with_states)
                                                 : run_fast_weights(file, op, variant, with_states);
  }
}

}  // namespace
}  // namespace qkv::mixers_test
