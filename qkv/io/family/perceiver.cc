// Perceiver IO over bytes (Jaegle et al. 2022): Hugging Face's PerceiverForMaskedLM and
// PerceiverForSequenceClassification. That code has numbers that no config.json does: norms with an epsilon
// of 1e-5, and the heads and widths of the decoder's cross-attention.

#include "qkv/base/json_value.h"
#include "qkv/io/family/family_parts.h"

namespace qkv {
namespace {

constexpr float kEpsilon = 1e-5F;                 // whatever layer_norm_eps says
constexpr int64_t kOutHeads = 8, kOutKeys = 256;  // those of the masked language model's decoder

// Columns of a head. Throws Error if they are no whole number.
int64_t of_each(const JsonField& c, const char* what, int64_t columns, int64_t heads) {
  check(columns > 0 && columns % heads == 0, "{}: {}: {} columns are not divisible by {} heads", c.place(),
        what, columns, heads);
  return columns / heads;
}

// A number, or null for one that follows from others.
int64_t integer_or_null(const JsonField& c, const char* key, int64_t otherwise) {
  const auto field = c.find(key);
  return !field || field->json().is_null() ? otherwise : field->integer(1, kMost);
}

ModelSpec read_perceiver(const JsonField& c) {
  ModelSpec s;
  s.architecture = Architecture::encoder;
  s.vocab_size = c.integer_or("vocab_size", 262, 0, kMost);
  s.context = c.integer_or("max_position_embeddings", 2048, 1, kMost);
  s.width = c.integer_or("d_model", 768, 1, kMost);
  s.layers = c.integer_or("num_self_attends_per_block", 26, 0, kMost);
  s.activation = read_activation(c, "hidden_act", "gelu");
  s.norm_placement = NormPlacement::pre;
  s.norm_epsilon = kEpsilon;
  s.final_norm = false;
  s.positions = Positions::learned;
  s.init_std = c.number_or("initializer_range", 0.02F);
  s.attention.dropout = c.number_or("attention_probs_dropout_prob", 0.1F);
  LatentSpec& l = s.latents;
  l.count = c.integer_or("num_latents", 256, 1, kMost);
  l.width = c.integer_or("d_latents", 1280, 1, kMost);
  l.repeats = c.integer_or("num_blocks", 1, 1, kMost);
  const std::string shape = c.string_or("cross_attention_shape_for_attention", "kv");
  check(shape == "kv" || shape == "q",
        "{}: cross_attention_shape_for_attention: expected \"kv\" or \"q\", got \"{}\"", c.place(), shape);
  const int64_t qk_in = integer_or_null(c, "qk_channels", shape == "kv" ? s.width : l.width),
                qk = integer_or_null(c, "qk_channels", l.width);
  AttentionSpec& a = s.attention;
  a.heads = a.kv_heads = c.integer_or("num_self_attention_heads", 8, 1, kMost);
  a.d_qk = of_each(c, "qk_channels", qk, a.heads);
  a.d_vo = of_each(c, "v_channels", integer_or_null(c, "v_channels", qk), a.heads);
  s.hidden = c.integer_or("self_attention_widening_factor", 1, 1, 1 << 20) * l.width;
  l.in.heads = c.integer_or("num_cross_attention_heads", 8, 1, kMost);
  l.in.d_qk = of_each(c, "qk_channels", qk_in, l.in.heads);
  l.in.d_vo = of_each(c, "v_channels", integer_or_null(c, "v_channels", qk_in), l.in.heads);
  l.in.hidden = c.integer_or("cross_attention_widening_factor", 1, 1, 1 << 20) * l.width;
  l.in.residual = c.boolean_or("use_query_residual", true);
  read_head(c, "Perceiver", s);
  s.pooler = false;
  if (s.output == Output::sequence_classes && s.problem == Problem::single_label) {
    l.out = {.heads = 1, .d_qk = l.width, .d_vo = l.width, .hidden = l.width, .residual = true};
    return s;
  }
  check(s.output == Output::tokens && s.labels.empty(),
        "{}: architectures: only PerceiverForMaskedLM and PerceiverForSequenceClassification are supported",
        c.place());
  s.unembedding_bias = true;
  l.out = {.heads = kOutHeads,
           .d_qk = kOutKeys / kOutHeads,
           .d_vo = of_each(c, "d_model", s.width, kOutHeads),
           .hidden = s.width,
           .residual = false};
  return s;
}

OrderedJson write_perceiver(const ModelSpec& s) {
  const LatentSpec& l = s.latents;
  const AttentionSpec& a = s.attention;
  const int64_t qk_in = l.in.heads * l.in.d_qk, qk = a.heads * a.d_qk, v_in = l.in.heads * l.in.d_vo,
                v = a.heads * a.d_vo;
  const bool plain_qk = qk == l.width && (qk_in == s.width || qk_in == l.width),
             plain_v = v == qk && v_in == qk_in;
  OrderedJson c = {{"model_type", "perceiver"},
                   {"architectures", {"Perceiver" + head_name(s)}},
                   {"vocab_size", s.vocab_size},
                   {"max_position_embeddings", s.context},
                   {"d_model", s.width},
                   {"num_latents", l.count},
                   {"d_latents", l.width},
                   {"num_blocks", l.repeats},
                   {"num_self_attends_per_block", s.layers},
                   {"num_self_attention_heads", a.heads},
                   {"num_cross_attention_heads", l.in.heads},
                   {"qk_channels", plain_qk ? OrderedJson() : OrderedJson(qk)},
                   {"v_channels", plain_v ? OrderedJson() : OrderedJson(v)},
                   {"cross_attention_shape_for_attention", qk_in == s.width ? "kv" : "q"},
                   {"self_attention_widening_factor", s.hidden / l.width},
                   {"cross_attention_widening_factor", l.in.hidden / l.width},
                   {"hidden_act", config_name_of(s.activation)},
                   {"attention_probs_dropout_prob", decimal(a.dropout)},
                   {"initializer_range", decimal(s.init_std)},
                   {"layer_norm_eps", 1e-12},
                   {"use_query_residual", l.in.residual},
                   {"torch_dtype", "float32"}};
  write_labels(s, c);
  return c;
}

std::vector<WeightName> perceiver_weights(const ModelSpec& s) {
  WeightNames n;
  const std::string inputs = "perceiver.input_preprocessor.", decoder = s.output == Output::tokens
                                                                            ? "perceiver.decoder."
                                                                            : "perceiver.decoder.decoder.";
  n.tensor("embedding.token", inputs + "embeddings.weight");
  n.tensor("embedding.position", inputs + "position_embeddings.weight");
  n.tensor("encoder.latents", "perceiver.embeddings.latents");
  const auto network = [&](const std::string& e, const std::string& f) {
    n.linear(e + "up", f + "mlp.dense1");
    n.linear(e + "down", f + "mlp.dense2");
  };
  const auto read = [&](const std::string& e, const std::string& f, const LatentCross& c) {
    const std::string attention = f + "attention.self.";
    n.norm(e + "query_norm", attention + "layernorm1");
    n.norm(e + "source_norm", attention + "layernorm2");
    n.linear(e + "attention.q", attention + "query");
    n.parts(e + "attention.kv", {attention + "key", attention + "value"},
            {c.heads * c.d_qk, c.heads * c.d_vo});
    n.linear(e + "attention.out", f + "attention.output.dense");
    n.norm(e + "norm", f + "layernorm");
    network(e + "feed_forward.", f);
  };
  read("encoder.in.", "perceiver.encoder.cross_attention.", s.latents.in);
  const AttentionSpec& a = s.attention;
  for (int64_t l = 0; l < s.layers; ++l) {
    const std::string e = fmt::format("encoder.block.{}.", l),
                      f = fmt::format("perceiver.encoder.self_attends.{}.", l),
                      attention = f + "attention.self.";
    n.norm(e + "attention.norm", attention + "layernorm1");
    n.parts(e + "attention.qkv", {attention + "query", attention + "key", attention + "value"},
            {a.heads * a.d_qk, a.heads * a.d_qk, a.heads * a.d_vo});
    n.linear(e + "attention.out", f + "attention.output.dense");
    n.norm(e + "feed_forward.norm", f + "layernorm");
    network(e + "feed_forward.", f);
  }
  n.tensor("encoder.queries", decoder + "output_position_encodings.position_embeddings");
  read("encoder.out.", decoder + "decoding_cross_attention.", s.latents.out);
  if (s.output == Output::tokens)
    n.tensor("unembedding.bias", "embedding_decoder.bias");
  else
    n.linear("classifier", decoder + "final_layer");
  return n.all;
}

}  // namespace

const Family& perceiver_family() {
  static const Family family = {"perceiver",
                                read_perceiver,
                                write_perceiver,
                                [](const ModelSpec& s) {
                                  return s.latents.any() && s.positions == Positions::learned &&
                                         s.hidden % s.latents.width == 0 &&
                                         s.latents.in.hidden % s.latents.width == 0;
                                },
                                perceiver_weights,
                                "perceiver.",
                                [](const ModelSpec&, const std::string&) { return false; }};
  return family;
}

}  // namespace qkv
