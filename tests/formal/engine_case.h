// Shared by the comparisons of the engine with the specification: random small models in both notations.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "formal/gradient.h"
#include "formal/loss.h"
#include "formal/multi_token.h"
#include "formal/objectives.h"
#include "qkv/data/dataset.h"
#include "qkv/models/transformer.h"
#include "tests/formal/test_theta.h"

namespace qkv {

using formal::Hyperparameters;
using formal::Tokens;
using formal::testing::Uniform;

template <typename Theta>
inline constexpr Architecture kArchitecture = Architecture::decoder;
template <>
inline constexpr Architecture kArchitecture<formal::ETheta<double>> = Architecture::encoder;
template <>
inline constexpr Architecture kArchitecture<formal::ClassTheta<double>> = Architecture::encoder;
template <>
inline constexpr Architecture kArchitecture<formal::EDTheta<double>> = Architecture::encoder_decoder;

// A random model in both notations.
template <typename Theta>
struct Case {
  Hyperparameters hyper;
  ModelSpec spec;
  Theta theta;
};

inline int between(Uniform& u, int low, int high) {
  return low + static_cast<int>(u() * (high - low + 1));
}

template <typename Theta, typename F>
void for_each_attention(Theta& theta, const F& f) {
  if constexpr (requires { theta.layer; }) {
    for (auto& layer : theta.layer) f(layer.W);
  } else {
    for (auto& layer : theta.encoder) f(layer.W);
    for (auto& layer : theta.decoder) f(layer.W_dec), f(layer.W_ed);
  }
}

template <typename Theta>
Case<Theta> random_case(unsigned seed, bool grouped = true) {
  constexpr Architecture architecture = kArchitecture<Theta>;
  Uniform u(seed);
  ModelSpec s;
  s.architecture = architecture;
  s.vocab_size = between(u, 4, 12);
  s.context = between(u, 3, 8);
  s.layers = between(u, 1, 2);
  s.width = between(u, 3, 16);
  s.hidden = between(u, 1, 20);
  s.attention.heads = between(u, 1, 4);
  s.attention.kv_heads =
      s.attention.heads % 2 == 0 && u() < 0.5 && grouped ? s.attention.heads / 2 : s.attention.heads;
  s.attention.d_qk = between(u, 1, 6);
  s.attention.d_vo = between(u, 1, 6);
  s.tied = u() < 0.5;
  const Activation activations[] = {Activation::relu, Activation::gelu, Activation::gelu_tanh};
  const formal::Activation formal_activations[] = {formal::Activation::ReLU, formal::Activation::GELU,
                                                   formal::Activation::GELU_tanh};
  const int a = between(u, 0, 2);
  s.activation = activations[a];
  if (architecture != Architecture::decoder) {
    s.norm_placement = NormPlacement::post;
    if (u() < 0.3 && s.width % 2 == 0) s.positions = Positions::sinusoidal_paper;
  }
  // Not narrower, because a norm of two nearly equal numbers amplifies their rounding 300 times.
  if (architecture == Architecture::encoder) s.head_width = s.tied ? s.width : between(u, 5, 9);
  if (architecture == Architecture::encoder_decoder) s.encoder_layers = between(u, 1, 2);
  const bool classes = std::is_same_v<Theta, formal::ClassTheta<double>>;
  if (classes) {  // classes do not use the head for tokens
    s.tied = true;
    s.head_width = 0;
    s.output = Output::sequence_classes;
    s.pooler = true;
    s.labels = {"a", "b", "c"};
  }
  if (u() < 0.25) s.normalization = Normalization::rms;
  Hyperparameters h;
  h.N_C = classes ? std::ssize(s.labels) : 0;
  h.normalization = s.normalization == Normalization::rms ? formal::Normalization::RMSnorm
                                                          : formal::Normalization::layer_norm;
  h.N_V = s.vocab_size;
  h.l_max = s.context;
  h.L = h.L_dec = s.layers;
  h.L_enc = s.encoder_layers;
  h.H = s.attention.heads;
  h.d_e = s.width;
  h.d_mlp = s.hidden;
  h.d_f = s.head_width;
  h.d_attn = s.attention.d_qk;
  h.d_mid = s.attention.d_vo;
  h.activation = formal_activations[a];
  h.epsilon = double{s.norm_epsilon};
  h.tied = s.tied;
  if (s.positions == Positions::sinusoidal_paper) h.positions = formal::Positions::hard_coded;
  Case<Theta> c{h, s, formal::testing::random_theta<Theta>(h, seed)};
  // Grouped heads: the heads of a group have the same keys and values.
  const int64_t group = s.attention.heads / s.attention.kv_heads;
  for_each_attention(c.theta, [&](auto& W) {
    for (int64_t head = 0; head < s.attention.heads; ++head) {
      auto& to = W.head[head];
      const auto& from = W.head[head / group * group];
      to.W_k = from.W_k, to.b_k = from.b_k, to.W_v = from.W_v, to.b_v = from.b_v;
    }
  });
  return c;
}

using Values = std::map<std::string, std::vector<double>>;

// A theta, or a gradient of one, under the engine's names and in its layout: rows are outputs, and the
// embedding matrices are transposed. Heads that share keys and values appear once (`sum`: added up, as
// gradients are).
class EngineValues {
 public:
  EngineValues(const ModelSpec& spec, bool sum) : spec_(spec), sum_(sum) {}

  void operator()(const formal::DTheta<double>& theta) {
    embedding(theta.embedding);
    for (size_t l = 0; l < theta.layer.size(); ++l)
      layer(fmt::format("decoder.block.{}.", l), theta.layer[l]);
    norm("decoder.norm", theta.norm);
  }
  void operator()(const formal::MTPTheta<double>& theta) {
    (*this)(static_cast<const formal::DTheta<double>&>(theta));
    for (size_t k = 1; k <= theta.module.size(); ++k) {
      const formal::MTPModule<double>& from = theta.module[k - 1];
      const std::string name = fmt::format("mtp.{}.", k);
      layer(fmt::format("decoder.block.{}.", theta.layer.size() + k - 1), from.layer);
      norm(name + "norm", from.norm);
      if (spec_.mtp.form != MtpForm::joined) continue;
      norm(name + "embedding_norm", from.norm_e);
      norm(name + "hidden_norm", from.norm_h);
      put(name + "projection.weight", from.M);
    }
  }
  void operator()(const formal::ETheta<double>& theta) {
    embedding(theta.embedding);
    for (size_t l = 0; l < theta.layer.size(); ++l)
      layer(fmt::format("encoder.block.{}.", l), theta.layer[l]);
    put("head.weight", theta.W_f);
    put("head.bias", theta.b_f);
    norm("head.norm", theta.norm);
  }
  void operator()(const formal::ClassTheta<double>& theta) {
    (*this)(static_cast<const formal::ETheta<double>&>(theta));
    put("pooler.weight", theta.W_pool);
    put("pooler.bias", theta.b_pool);
    put("classifier.weight", theta.W_c);
    put("classifier.bias", theta.b_c);
  }
  void operator()(const formal::EDTheta<double>& theta) {
    embedding(theta.embedding);
    for (size_t l = 0; l < theta.encoder.size(); ++l)
      layer(fmt::format("encoder.block.{}.", l), theta.encoder[l]);
    for (size_t l = 0; l < theta.decoder.size(); ++l) {
      const std::string name = fmt::format("decoder.block.{}.", l);
      const auto& from = theta.decoder[l];
      self_attention(name + "attention", from.W_dec);
      cross_attention(name + "cross_attention", from.W_ed);
      mlp(name + "feed_forward", from.mlp);
      norm(name + "attention.norm", from.norm3);
      norm(name + "cross_attention.norm", from.norm4);
      norm(name + "feed_forward.norm", from.norm5);
    }
  }

  Values values;

 private:
  using Rows = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  void put(const std::string& name, const Rows& m) { values[name].assign(m.data(), m.data() + m.size()); }
  void embedding(const formal::EmbeddingParameters<double>& W) {
    put("embedding.token", W.W_e.transpose());
    if (spec_.positions == Positions::learned) put("embedding.position", W.W_p.transpose());
    if (!spec_.tied) put("unembedding.weight", W.W_u);
  }
  void norm(const std::string& name, const formal::NormalizationParameters<double>& n) {
    put(name + ".gamma", n.gamma);
    put(name + ".beta", n.beta);
  }
  void mlp(const std::string& name, const formal::MLPParameters<double>& m) {
    put(name + ".up.weight", m.W_mlp1);
    put(name + ".up.bias", m.b_mlp1);
    put(name + ".down.weight", m.W_mlp2);
    put(name + ".down.bias", m.b_mlp2);
  }
  // Keys from row k on, values from row v on, of all heads.
  void keys_and_values(const formal::MHAttentionParameters<double>& W, int64_t k, int64_t v, Rows& weight,
                       Rows& bias) const {
    const AttentionSpec& a = spec_.attention;
    const int64_t group = a.heads / a.kv_heads;
    for (int64_t h = 0; h < a.heads; ++h) {
      if (h % group != 0 && !sum_) continue;
      const auto& w = W.head[h];
      weight.middleRows(k + h / group * a.d_qk, a.d_qk) += w.W_k;
      bias.middleRows(k + h / group * a.d_qk, a.d_qk) += w.b_k;
      weight.middleRows(v + h / group * a.d_vo, a.d_vo) += w.W_v;
      bias.middleRows(v + h / group * a.d_vo, a.d_vo) += w.b_v;
    }
  }
  void queries(const formal::MHAttentionParameters<double>& W, Rows& weight, Rows& bias) const {
    const AttentionSpec& a = spec_.attention;
    for (int64_t h = 0; h < a.heads; ++h) {
      weight.middleRows(h * a.d_qk, a.d_qk) = W.head[h].W_q;
      bias.middleRows(h * a.d_qk, a.d_qk) = W.head[h].b_q;
    }
  }
  void output(const std::string& name, const formal::MHAttentionParameters<double>& W) {
    put(name + ".out.weight", W.W_o);
    put(name + ".out.bias", W.b_o);
  }
  void self_attention(const std::string& name, const formal::MHAttentionParameters<double>& W) {
    const AttentionSpec& a = spec_.attention;
    const int64_t q_rows = a.heads * a.d_qk, k_rows = a.kv_heads * a.d_qk, v_rows = a.kv_heads * a.d_vo;
    Rows weight = Rows::Zero(q_rows + k_rows + v_rows, spec_.width), bias = Rows::Zero(weight.rows(), 1);
    queries(W, weight, bias);
    keys_and_values(W, q_rows, q_rows + k_rows, weight, bias);
    put(name + ".qkv.weight", weight);
    put(name + ".qkv.bias", bias);
    output(name, W);
  }
  void cross_attention(const std::string& name, const formal::MHAttentionParameters<double>& W) {
    const AttentionSpec& a = spec_.attention;
    const int64_t q_rows = a.heads * a.d_qk, k_rows = a.kv_heads * a.d_qk, v_rows = a.kv_heads * a.d_vo;
    Rows q = Rows::Zero(q_rows, spec_.width), q_bias = Rows::Zero(q_rows, 1);
    queries(W, q, q_bias);
    put(name + ".q.weight", q);
    put(name + ".q.bias", q_bias);
    Rows kv = Rows::Zero(k_rows + v_rows, spec_.width), kv_bias = Rows::Zero(kv.rows(), 1);
    keys_and_values(W, 0, k_rows, kv, kv_bias);
    put(name + ".kv.weight", kv);
    put(name + ".kv.bias", kv_bias);
    output(name, W);
  }
  void layer(const std::string& name, const formal::Layer<double>& from) {
    self_attention(name + "attention", from.W);
    mlp(name + "feed_forward", from.mlp);
    norm(name + "attention.norm", from.norm1);
    norm(name + "feed_forward.norm", from.norm2);
  }

  const ModelSpec& spec_;
  bool sum_;
};

template <typename Theta>
Values engine_values(const Case<Theta>& c, const Theta& theta, bool sum) {
  EngineValues v(c.spec, sum);
  v(theta);
  return v.values;
}

template <typename Theta>
std::unique_ptr<Transformer> engine_model(const Case<Theta>& c) {
  auto model = std::make_unique<Transformer>(c.spec);
  const Values values = engine_values(c, c.theta, false);
  for (Parameter& p : model->parameters().all()) {
    const auto& v = values.at(p.name);
    p.value = Tensor::of(p.shape, std::vector<float>(v.begin(), v.end()));
  }
  return model;
}

inline Tokens random_tokens(const ModelSpec& spec, Uniform& u, int length) {
  Tokens x;
  for (int i = 0; i < length; ++i) x.push_back(between(u, 1, static_cast<int>(spec.vocab_size)));
  return x;
}

// The engine counts ids from 0.
inline std::vector<int32_t> engine_ids(const Tokens& x) {
  std::vector<int32_t> ids;
  for (const int t : x) ids.push_back(t - 1);
  return ids;
}

// f32 arithmetic through a few layers of width <= 20: some hundred roundings, each of 6e-8 relative,
// amplified by norms of nearly constant rows. Deviations are relative to the tensor's largest magnitude, or
// to a twentieth of the largest in the model: a small sum of large terms that cancel has their rounding.
// After a norm of three numbers of which ReLU leaves one, the terms cancel up to the effect of epsilon.
inline constexpr double kTolerance = 1e-4;  // the worst of 1,000 models was 4e-5, the usual 3e-7

inline double largest(const std::vector<double>& x) {
  double m = 0;
  for (const double e : x) m = std::max(m, std::abs(e));
  return m;
}

inline double largest(const Values& values) {
  double m = 0;
  for (const auto& [name, x] : values) m = std::max(m, largest(x));
  return m;
}

inline double deviation(std::span<const float> got, const std::vector<double>& want, double of_all) {
  EXPECT_EQ(got.size(), want.size());
  const double scale = std::max(largest(want), of_all / 20);
  double worst = 0;
  for (size_t i = 0; i < want.size(); ++i) worst = std::max(worst, std::abs(got[i] - want[i]));
  return scale == 0 ? worst : worst / scale;
}

// `theta` with every weight changed by 2^-21 of itself, up or down at random.
template <typename Theta>
Theta moved(Theta theta, unsigned seed) {
  Uniform signs(seed);
  formal::for_each_parameter(theta, [&](const std::string&, auto& m) {
    for (auto& w : m.reshaped()) w *= 1 + (signs() < 0.5 ? -0x1p-21 : 0x1p-21);
  });
  return theta;
}

// Compares the engine's gradients with `want`, the formal ones of `loss` at `theta`. They may be off by
// kTolerance, or by the effect of perturbed weights on the formal ones: a norm of a nearly constant row
// amplifies every rounding. `values`: a theta as Values.
template <typename Theta, typename Loss, typename ValuesOf>
void expect_gradients_near(const Transformer& model, const Values& want, const Theta& theta, const Loss& loss,
                           const ValuesOf& values, unsigned seed, const std::string& what) {
  constexpr unsigned kMoved = 4;
  std::vector<Values> there;
  for (const Parameter& p : model.parameters().all()) {
    if (!p.learned) continue;
    const auto off = [&](std::span<const float> got) {
      return deviation(got, want.at(p.name), largest(want));
    };
    const double got = off(p.leaf->grad.values<float>());
    if (got < kTolerance) continue;
    for (unsigned i = static_cast<unsigned>(there.size()); i < kMoved; ++i)
      there.push_back(values(formal::loss_and_gradient(loss, moved(theta, seed + 2000 + i)).gradient));
    double may = 0;
    for (const Values& of : there) {
      const std::vector<float> one(of.at(p.name).begin(), of.at(p.name).end());
      may = std::max(may, off(one));
    }
    EXPECT_LT(got, may) << p.name << ", seed " << seed << what;
  }
}

// The rows of `logits` from `row` on, as probabilities, are the columns of P.
inline void expect_probabilities(const Tensor& logits, int64_t row, const formal::Matrix<double>& P,
                                 unsigned seed, double tolerance = kTolerance) {
  for (int t = 1; t <= P.cols(); ++t, ++row) {
    const float* z = logits.data<float>() + row * logits.width();
    double top = *std::max_element(z, z + logits.width()), sum = 0;
    for (int v = 0; v < logits.width(); ++v) sum += std::exp(z[v] - top);
    for (int v = 1; v <= logits.width(); ++v)
      ASSERT_NEAR(std::exp(z[v - 1] - top) / sum, formal::entry(P, v, t), tolerance) << "seed " << seed;
  }
}

// Models in each suite: 20, or QKV_SEEDS. `make check-all` takes 60, and its long sweep 1,000.
inline unsigned seeds() {
  const char* text = std::getenv("QKV_SEEDS");
  return text == nullptr ? 20 : static_cast<unsigned>(std::atoi(text));
}

}  // namespace qkv
