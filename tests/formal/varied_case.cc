#include "tests/formal/varied_case.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "qkv/base/json_value.h"
#include "qkv/io/family/family.h"
#include "qkv/io/model_dir.h"
#include "qkv/train/config/config.h"
#include "tests/unit/scratch_dir.h"

namespace qkv {
namespace {

// Parameters under the engine's names.
class VariedValues {
 public:
  void embedding(const std::string& name, const formal::VariedEmbedding<double>& E) {
    put(name + ".position", E.W_p.transpose());
    put(name + ".column", E.W_column.transpose());
    put(name + ".segment", E.W_text.transpose());
    norm(name + ".norm", E.norm);
    put(name + ".projection.weight", E.W_in);
    put(name + ".projection.bias", E.b_in);
    put(name + ".layers", E.W_layers.transpose());
    put(name + ".layers_projection.weight", E.W_project);
    put(name + ".layers_norm.gamma", E.gamma_project);
  }
  void tokens(const std::string& name, const formal::Matrix<double>& W_e) { put(name, W_e.transpose()); }
  void unembedding(const formal::VariedUnembedding<double>& U) {
    put("head.weight", U.W_f);
    put("head.bias", U.b_f);
    norm("head.norm", U.norm);
    put("unembedding.projection.weight", U.W_out);
    put("unembedding.weight", U.W_u);
    put("unembedding.bias", U.b_u);
  }
  // `spec`: that of the stack, which has `layers` layers; `kinds`: those of the whole model.
  void stack(const std::string& name, const formal::VariedStack<double>& from, const ModelSpec& spec,
             int64_t layers, const std::vector<BlockKind>& kinds, const std::vector<double>& scales) {
    for (size_t l = 0; l < scales.size(); ++l)
      values[fmt::format("{}.block.{}.scale", name, l)] = {scales[l]};
    const auto groups = std::ssize(from.layer);
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t first = (g * layers + groups - 1) / groups;  // a group has the name of its first layer
      layer(fmt::format("{}.block.{}.", name, first), from.layer[g], spec.block(first));
    }
    norm(name + ".norm", from.norm);
    const std::vector<std::string> used = spec.kinds_in_use(layers);
    for (size_t k = 0; k < from.distances.size(); ++k) {
      const auto& tables = from.distances[k];
      const std::string kind = k == 0 ? kDefaultKind : kinds[k - 1].name,
                        of_kind = k == 0 ? name : name + ".kind." + kind;
      if (std::ranges::find(used, kind) == used.end()) continue;
      put(of_kind + ".distance", tables.B);
      put(of_kind + ".relative", tables.P.transpose());
      norm(of_kind + ".relative_norm", tables.norm_P);
    }
  }

  Values values;

 private:
  using Rows = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using Heads = std::vector<formal::AttentionParameters<double>>;

  static Rows stacked(const Rows& above, const Rows& below) {
    if (above.size() == 0 || below.size() == 0) return above.size() == 0 ? below : above;
    Rows both(above.rows() + below.rows(), above.cols());
    both << above, below;
    return both;
  }
  void put(const std::string& name, const Rows& m) {
    if (m.size() > 0) values[name].assign(m.data(), m.data() + m.size());
  }
  void norm(const std::string& name, const formal::NormalizationParameters<double>& n) {
    put(name + ".gamma", n.gamma);
    put(name + ".beta", n.beta);
  }
  // All heads' weights, or offsets, one below the other.
  struct Stacked {
    Rows q, k, v, b_q, b_k, b_v;
    Stacked(const Heads& heads, const AttentionSpec& a) {
      for (int64_t i = 0; i < std::ssize(heads); ++i) {
        const auto& W = heads[static_cast<size_t>(i)];
        q = stacked(q, W.W_q);
        b_q = stacked(b_q, W.b_q);
        if (i % (a.heads / a.kv_heads) != 0) continue;
        k = stacked(k, W.W_k);
        // The engine's offset of keys stays 0 if only keys have none.
        const bool only_keys = W.b_k.size() == 0 && W.b_v.size() > 0 && W.W_k.size() > 0;
        b_k = stacked(b_k, only_keys ? Rows(Rows::Zero(W.W_k.rows(), 1)) : Rows(W.b_k));
        v = stacked(v, W.W_v);
        b_v = stacked(b_v, W.b_v);
      }
    }
  };
  // Separate queries, keys and values.
  void in_two(const std::string& name, const Heads& heads, const AttentionSpec& a) {
    const Stacked all(heads, a);
    put(name + ".q.weight", all.q);
    put(name + ".q.bias", all.b_q);
    put(name + ".kv.weight", stacked(all.k, all.v));
    put(name + ".kv.bias", stacked(all.b_k, all.b_v));
  }
  void attention(const std::string& name, const formal::VariedAttention<double>& from,
                 const AttentionSpec& a) {
    put(name + ".out.weight", from.W.W_o);
    put(name + ".out.bias", from.W.b_o);
    put(name + ".query_norm.gamma", from.gamma_q);
    put(name + ".key_norm.gamma", from.gamma_k);
    put(name + ".query_norm.beta", from.beta_q);
    put(name + ".key_norm.beta", from.beta_k);
    put(name + ".sinks", from.sink);
    put(name + ".distance", from.A.transpose());
    put(name + ".distance.weight", from.W_d);
    put(name + ".content_bias", from.u);
    put(name + ".position_bias", from.v);
    put(name + ".segment_bias", from.s);
    put(name + ".segment", from.G.transpose());
    put(name + ".distance_key.weight", from.W_dk);
    put(name + ".distance_key.bias", from.b_dk);
    put(name + ".distance_query.weight", from.W_dq);
    put(name + ".distance_query.bias", from.b_dq);
    put(name + ".kv_latent.weight", from.W_c);
    put(name + ".kv_latent.bias", from.b_c);
    put(name + ".kv_norm.gamma", from.gamma_c);
    put(name + ".q_latent.weight", from.W_cq);
    put(name + ".q_latent.bias", from.b_cq);
    put(name + ".q_norm.gamma", from.gamma_cq);
    Rows rotations;
    for (const formal::Matrix<double>& R : from.R) rotations = stacked(rotations, R);
    put(name + ".rotations", rotations);
    if (!from.W_global.head.empty()) in_two(name + ".global", from.W_global.head, a);
  }
  void mixer(const std::string& name, const formal::VariedMixer<double>& m) {
    const std::string ahead = m.backward.U.size() > 0 ? name + ".forward" : name;
    for (const auto& [way, r] : {std::pair(ahead, m.forward), {name + ".backward", m.backward}}) {
      put(way + ".input.weight", r.W);
      put(way + ".input.bias", r.b);
      put(way + ".state.weight", r.U);
    }
    const char* value = m.W_q.size() > 0 ? ".v" : ".value";
    put(name + (m.mu_r.size() > 0 ? ".r" : ".q") + ".weight", m.W_q);
    put(name + ".q.bias", m.b_q);
    put(name + ".k.weight", m.W_k);
    put(name + ".k.bias", m.b_k);
    const char* gate = m.vectors.size() > 0 ? ".gate" : ".beta";
    put(name + gate + ".weight", m.W_beta);
    put(name + gate + ".bias", m.b_beta);
    put(name + ".vectors", m.vectors);
    put(name + ".factors", m.sigma);
    put(name + ".positions", m.w);
    put(name + ".key_positions", m.w_s);
    put(name + ".in.weight", m.W_in);
    put(name + ".in.bias", m.b_in);
    put(name + ".convolution.weight", m.W_conv);
    put(name + ".convolution.bias", m.b_conv);
    put(name + ".select.weight", m.W_select);
    put(name + ".step.weight", m.W_step);
    put(name + ".step_bias", m.dt);
    put(name + ".log_rate", m.A_log);
    put(name + ".skip", m.D);
    put(name + ".gate_norm.gamma", m.gamma);
    put(name + ".step_norm.gamma", m.gamma_step);
    put(name + ".B_norm.gamma", m.gamma_B);
    put(name + ".C_norm.gamma", m.gamma_C);
    for (const auto& [part, mu] : {std::pair("r", &m.mu_r),
                                   {"w", &m.mu_w},
                                   {"k", &m.mu_k},
                                   {"v", &m.mu_v},
                                   {"a", &m.mu_a},
                                   {"g", &m.mu_g}})
      put(fmt::format("{}.shift.{}", name, part), *mu);
    for (const auto& [part, down, up, bias] : {std::tuple("decay", &m.W_w1, &m.W_w2, &m.b_w),
                                               {"rate", &m.W_a1, &m.W_a2, &m.b_a},
                                               {"value", &m.W_v1, &m.W_v2, &m.b_v2},
                                               {"gate", &m.W_g1, &m.W_g2, &m.b_in}}) {
      put(fmt::format("{}.{}.down.weight", name, part), *down);
      put(fmt::format("{}.{}.up.weight", name, part), *up);
      put(fmt::format("{}.{}.up.bias", name, part), m.mu_r.size() > 0 ? Rows(*bias) : Rows());
    }
    if (m.mu_r.size() > 0) put(name + ".log_rate", m.log_rate);
    put(name + ".bonus", m.u);
    put(name + ".key_scale", m.key_scale);
    put(name + ".key_rate", m.key_rate);
    put(name + ".head_norm.gamma", m.gamma_y);
    put(name + ".head_norm.beta", m.beta_y);
    put(name + value + ".weight", m.W_v);
    put(name + value + ".bias", m.b_v);
    put(name + ".out.weight", m.W_o);
    put(name + ".out.bias", m.b_o);
  }
  void perceptron(const std::string& name, const formal::VariedPerceptron<double>& p) {
    put(name + ".up.weight", stacked(p.mlp.W_mlp1, p.W_g));
    put(name + ".up.bias", stacked(p.mlp.b_mlp1, p.b_g));
    for (size_t i = 0; i < p.W_further.size(); ++i) {
      put(fmt::format("{}.inner.{}.weight", name, i + 1), p.W_further[i]);
      put(fmt::format("{}.inner.{}.bias", name, i + 1), p.b_further[i]);
    }
    put(name + ".down.weight", p.mlp.W_mlp2);
    put(name + ".down.bias", p.mlp.b_mlp2);
    put(name + ".shift.k", p.mu_k);
    put(name + ".shift.r", p.mu_r);
    put(name + ".receptance.weight", p.W_r);
    if (p.alpha.size() == 0) return;
    put(name + ".alpha_p", p.alpha.head(1));
    put(name + ".alpha_n", p.alpha.tail(1));
  }
  void layer(const std::string& block, const formal::VariedLayer<double>& from, const BlockSpec& spec) {
    const AttentionSpec& a = spec.attention;
    const std::string at = block + spec.mixer.part(), cross = block + "cross_attention",
                      ff = block + "feed_forward";
    if (!spec.mixer.attends()) {
      mixer(at, from.mixer);
    } else if (spec.mixer.get_if<LatentMixer>() == nullptr) {
      const Stacked all(from.W.W.head, a);
      put(at + ".qkv.weight", stacked(from.W.W_gate, stacked(all.q, stacked(all.k, all.v))));
      put(at + ".qkv.bias", stacked(from.W.b_gate, stacked(all.b_q, stacked(all.b_k, all.b_v))));
    } else {
      in_two(at, from.W.W.head, a);
    }
    if (spec.mixer.attends()) attention(at, from.W, a);
    if (!from.W_ed.W.head.empty()) {
      in_two(cross, from.W_ed.W.head, a);
      attention(cross, from.W_ed, a);
    }
    for (const auto& [name, norms] : {std::pair(at, from.norm), {cross, from.norm_ed}, {ff, from.norm_mlp}}) {
      if (name == ff && spec.hidden == 0) continue;  // attention alone
      norm(name + ".norm", norms.inner);
      norm(name + ".branch_norm", norms.outer);
    }
    if (spec.hidden > 0) perceptron(ff, from.mlp);
    put(block + "distance", from.B);
    put(ff + ".router.weight", from.W_r);
    put(ff + ".router.bias", from.b_r);
    Rows experts_up, experts_down, up_bias, down_bias;
    for (const auto& p : from.expert) {
      experts_up = stacked(experts_up, stacked(p.mlp.W_mlp1, p.W_g));
      experts_down = stacked(experts_down, p.mlp.W_mlp2);
      up_bias = stacked(up_bias, stacked(p.mlp.b_mlp1, p.b_g));
      down_bias = stacked(down_bias, p.mlp.b_mlp2);
    }
    put(ff + ".experts.up.weight", experts_up);
    put(ff + ".experts.down.weight", experts_down);
    put(ff + ".experts.up.bias", up_bias);
    put(ff + ".experts.down.bias", down_bias);
    perceptron(ff + ".shared", from.shared);
    put(ff + ".shared_gate.weight", from.w_shared);
    put(block + "layer_input.gate.weight", from.W_gate);
    put(block + "layer_input.out.weight", from.W_out);
    norm(block + "layer_input.branch_norm", from.norm_layer);
  }
};

// Parameters that f32 holds exactly, so that the engine's are identical. They are smaller without norms:
// otherwise scores of thousands would leave only rounding in the gradients.
template <typename Theta>
void fill(Theta& theta, const VariedHyperparameters& h, unsigned seed) {
  Uniform uniform(seed + 7);
  const double reach = h.placement == formal::NormPlacement::none ? 0.5 : 1;
  formal::fill_parameters(theta, [&](const std::string& name) {
    const bool factor = name.find("gamma") != std::string::npos &&
                        h.norm_kind != formal::NormKind::plus_one &&
                        h.norm_kind != formal::NormKind::layer_plus_one;
    return double{static_cast<float>(reach * (uniform() - 0.5) + (factor ? 1.0 : 0.0))};
  });
}

}  // namespace

OneStackCase varied_case(unsigned seed, Architecture architecture) {
  VariedShape shape = seed == kGemma3 ? gemma3_shape() : mixed_shape(seed, architecture);
  VariedHyperparameters& h = shape.hyper;
  if (shape.spec.embedding_scaled && seed != kGemma3)
    h.embedding_multiplier *= std::sqrt(static_cast<double>(h.d_sum()));
  VariedTheta<double> theta(h);
  fill(theta, h, seed);
  return {shape.spec, theta};
}

TwoStackCase two_stack_case(unsigned seed) {
  const VariedShape shape = mixed_shape(seed, Architecture::encoder_decoder);
  VariedEDTheta<double> theta(two_stacks_of(shape));
  fill(theta, shape.hyper, seed);
  return {shape.spec, theta};
}

Values values_of(const ModelSpec& spec, const VariedTheta<double>& theta) {
  VariedValues v;
  v.tokens("embedding.token", theta.W_e);
  v.embedding("embedding", theta.embedding);
  v.stack(spec.architecture == Architecture::encoder ? "encoder" : "decoder", theta.stack, spec, spec.layers,
          spec.kinds, theta.hyper.layer_scales);
  v.unembedding(theta.unembedding);
  return v.values;
}

Values values_of(const ModelSpec& spec, const VariedEDTheta<double>& theta) {
  VariedValues v;
  v.tokens("embedding.token", theta.W_e);
  v.tokens("encoder.embedding.token", theta.W_e_encoder);
  v.embedding(theta.hyper.own_embedding ? "decoder.embedding" : "embedding", theta.embedding);
  v.embedding("encoder.embedding", theta.embedding_encoder);
  const ModelSpec encoder = spec.encoder_spec();
  v.stack("encoder", theta.encoder, encoder, spec.encoder_layers, spec.kinds,
          theta.hyper.encoder.layer_scales);
  v.stack("decoder", theta.decoder, spec, spec.layers, spec.kinds, theta.hyper.decoder.layer_scales);
  v.unembedding(theta.unembedding);
  return v.values;
}

std::string text_of(const ModelSpec& spec) {
  return native_family().write_config(spec)["qkv"].dump();
}

void expect_back_from_disk(const Transformer& model, unsigned seed) {
  const testing::ScratchDir dir;
  save_model(dir.path(), model);
  const auto loaded = load_model(dir.path(), DType::f32);
  ModelSpec spec = loaded->spec();
  const std::string family = family_for(model.spec()).model_type;
  spec.family = model.spec().family;
  EXPECT_EQ(spec, model.spec()) << family << ", seed " << seed;
  for (const Parameter& p : model.parameters().all())
    EXPECT_TRUE(
        std::ranges::equal(loaded->parameters().find(p.name)->value.values<float>(), p.value.values<float>()))
        << p.name << ", seed " << seed << ", " << family;
}

}  // namespace qkv
