// The engine against the specification: random small Perceivers.
// Covers: qkv/models/latents.cc

#include "formal/perceiver.h"
#include "tests/formal/engine_case.h"

namespace qkv::engine_perceiver_test {
namespace {

using Theta = formal::PerceiverTheta<double>;

struct Perceiver {
  ModelSpec spec;
  Theta theta;
};

formal::PerceiverHyperparameters::Read read(Uniform& u) {
  return {between(u, 1, 3), between(u, 1, 4), between(u, 1, 4), between(u, 1, 7), true};
}
void take(const formal::PerceiverHyperparameters::Read& from, LatentCross& to) {
  to = {from.H, from.d_attn, from.d_mid, from.d_mlp, from.residual};
}

Perceiver random_perceiver(unsigned seed) {
  Uniform u(seed);
  formal::PerceiverHyperparameters h;
  h.N_V = between(u, 3, 9);
  h.l_max = between(u, 3, 8);
  h.d_e = between(u, 3, 8);
  h.M = between(u, 1, 5);
  h.d_z = between(u, 3, 8);
  h.L = between(u, 1, 2);
  h.repeats = between(u, 1, 3);
  h.read_again = u() < 0.4;
  h.one_query = u() < 0.4;
  h.in = read(u), h.self = read(u), h.out = read(u);
  h.in.residual = u() < 0.7;
  h.out.residual = u() < 0.5;
  ModelSpec s;
  s.architecture = Architecture::encoder;
  s.vocab_size = h.N_V, s.context = h.l_max, s.width = h.d_e, s.layers = h.L;
  s.activation = Activation::gelu;
  s.final_norm = false;
  s.attention.heads = s.attention.kv_heads = h.self.H;
  s.attention.d_qk = h.self.d_attn, s.attention.d_vo = h.self.d_mid;
  s.hidden = h.self.d_mlp;
  s.latents.count = h.M, s.latents.width = h.d_z, s.latents.repeats = h.repeats;
  s.latents.read_again = h.read_again;
  take(h.in, s.latents.in);
  take(h.out, s.latents.out);
  s.unembedding_bias = !h.one_query;
  h.epsilon = double{s.norm_epsilon};
  if (h.one_query) {
    s.output = Output::sequence_classes;
    s.labels = {"a", "b", "c"};
    h.N_C = 3;
  }
  Theta theta(h);
  Uniform drawn(seed + 7);
  formal::fill_parameters(theta, [&](const std::string& name) {
    return double{static_cast<float>(drawn() - 0.5 + (name.find("gamma") != std::string::npos ? 1.0 : 0.0))};
  });
  return {s, theta};
}

// A theta, or a gradient of one, under the engine's names and in its layout.
class PerceiverValues {
 public:
  explicit PerceiverValues(const Theta& theta) {
    const bool one = theta.hyper.one_query;
    put("embedding.token", theta.W_e.transpose());
    put("embedding.position", theta.W_p.transpose());
    put("encoder.latents", theta.Z.transpose());
    put("encoder.queries", theta.O.transpose());
    layer("encoder.in.", theta.in, false);
    layer("encoder.out.", theta.out, false);
    for (size_t l = 0; l < theta.layer.size(); ++l)
      layer(fmt::format("encoder.block.{}.", l), theta.layer[l], true);
    put("classifier.weight", theta.W_c);
    put(one ? "classifier.bias" : "unembedding.bias", theta.b);
  }
  Values values;

 private:
  using Rows = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

  void put(const std::string& name, const Rows& m) {
    if (m.size() > 0) values[name].insert(values[name].end(), m.data(), m.data() + m.size());
  }
  void layer(const std::string& name, const formal::PerceiverLayer<double>& p, bool self) {
    const std::string attention = name + "attention.", ff = name + "feed_forward.";
    put(self ? attention + "norm.gamma" : name + "query_norm.gamma", p.gamma_q);
    put(self ? attention + "norm.beta" : name + "query_norm.beta", p.beta_q);
    put(name + "source_norm.gamma", p.gamma_s);
    put(name + "source_norm.beta", p.beta_s);
    put((self ? ff : name) + "norm.gamma", p.gamma);
    put((self ? ff : name) + "norm.beta", p.beta);
    const std::string of_q = self ? "qkv" : "q", of_kv = self ? "qkv" : "kv";
    for (const auto& W : p.W.head)
      put(attention + of_q + ".weight", W.W_q), put(attention + of_q + ".bias", W.b_q);
    for (const auto& W : p.W.head)
      put(attention + of_kv + ".weight", W.W_k), put(attention + of_kv + ".bias", W.b_k);
    for (const auto& W : p.W.head)
      put(attention + of_kv + ".weight", W.W_v), put(attention + of_kv + ".bias", W.b_v);
    put(attention + "out.weight", p.W.W_o);
    put(attention + "out.bias", p.W.b_o);
    put(ff + "up.weight", p.W_1);
    put(ff + "up.bias", p.b_1);
    put(ff + "down.weight", p.W_2);
    put(ff + "down.bias", p.b_2);
  }
};

std::unique_ptr<Transformer> engine_of(const Perceiver& c) {
  auto model = std::make_unique<Transformer>(c.spec);
  const Values values = PerceiverValues(c.theta).values;
  EXPECT_EQ(values.size(), model->parameters().all().size());
  for (Parameter& p : model->parameters().all()) {
    const std::vector<double>& from = values.at(p.name);
    p.value = Tensor::of(p.shape, std::vector<float>(from.begin(), from.end()));
  }
  model->parameters().compute = DType::f32;
  return model;
}

class PerceiverAgainstFormal : public ::testing::TestWithParam<unsigned> {};

// Texts of several lengths in one batch; targets are any tokens or classes.
TEST_P(PerceiverAgainstFormal, LossGradientsAndProbabilities) {
  const Perceiver c = random_perceiver(GetParam());
  const bool one = c.theta.hyper.one_query;
  Uniform u(GetParam() + 99);
  std::vector<Tokens> texts;
  std::vector<std::vector<int>> targets;  // from 1
  std::vector<int32_t> ids, lengths, wanted;
  for (int i = 0; i < 3; ++i) {
    texts.emplace_back();
    targets.emplace_back();
    lengths.push_back(between(u, 1, static_cast<int>(c.spec.context)));
    for (int t = 0; t < lengths.back(); ++t) {
      texts.back().push_back(between(u, 1, static_cast<int>(c.spec.vocab_size)));
      ids.push_back(texts.back().back() - 1);
    }
    for (int t = 0; t < (one ? 1 : lengths.back()); ++t) {
      targets.back().push_back(between(u, 1, one ? 3 : static_cast<int>(c.spec.vocab_size)));
      wanted.push_back(targets.back().back() - 1);
    }
  }
  const auto loss = [&]<typename T>(const formal::PerceiverTheta<T>& theta) {
    T sum = 0;
    for (size_t i = 0; i < texts.size(); ++i) {
      const formal::Matrix<T> P = formal::softmax(formal::Perceiver(texts[i], theta));
      for (size_t t = 0; t < targets[i].size(); ++t) {
        using std::log;
        sum -= log(P(targets[i][t] - 1, static_cast<formal::Index>(t)));
      }
    }
    return sum;
  };
  const auto model = engine_of(c);
  {
    const NoGrad guard;
    const ModelInput input{ids, Layout::of(lengths)};
    const Tensor hidden = model->hidden(input, {}),
                 logits = one ? model->classes(hidden, input, {}) : model->logits(hidden);
    int64_t row = 0;
    for (size_t i = 0; i < texts.size(); ++i) {
      const formal::Matrix<double> P = formal::softmax(formal::Perceiver(texts[i], c.theta));
      expect_probabilities(logits, row, P, GetParam());
      row += P.cols();
    }
  }
  for (const bool recompute : {false, true}) {
    const auto trained = engine_of(c);
    trained->set_recompute(recompute);
    trained->parameters().prepare_training(DType::f32, 0);
    trained->parameters().reset_gradients();
    const CrossEntropyResult r = trained->loss({ids, Layout::of(lengths)}, wanted, {}, 1);
    const auto want = formal::loss_and_gradient(loss, c.theta);
    EXPECT_NEAR(r.loss.item(), want.loss, kTolerance * std::max(1.0, want.loss));
    backward(r.loss);
    trained->parameters().complete_gradients();
    expect_gradients_near(
        *trained, PerceiverValues(want.gradient).values, c.theta, loss,
        [](const Theta& theta) { return PerceiverValues(theta).values; }, GetParam(), "");
  }
}

// The output reads positions that the text does not have.
TEST_P(PerceiverAgainstFormal, ReadsAnyPositions) {
  const Perceiver c = random_perceiver(GetParam());
  if (c.theta.hyper.one_query) return;
  const auto model = engine_of(c);
  const NoGrad guard;
  ModelInput input{std::vector<int32_t>{1, 0}, Layout::of({2})};
  const Tensor two = model->hidden(input, {});
  input.query_layout = Layout::of({static_cast<int32_t>(c.spec.context)});
  const Tensor all = model->hidden(input, {});
  ASSERT_EQ(all.dim(0), c.spec.context);
  for (int64_t i = 0; i < 2; ++i)
    for (int64_t d = 0; d < all.width(); ++d) EXPECT_NEAR(all.row<float>(i)[d], two.row<float>(i)[d], 1e-6F);
}

INSTANTIATE_TEST_SUITE_P(Seeds, PerceiverAgainstFormal, ::testing::Range(0U, seeds()));

}  // namespace
}  // namespace qkv::engine_perceiver_test
