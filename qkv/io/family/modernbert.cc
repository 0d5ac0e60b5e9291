// ModernBERT: Hugging Face's ModernBertForMaskedLM and so on.

#include <algorithm>

#include "qkv/base/json_value.h"
#include "qkv/io/family/bert_parts.h"
#include "qkv/io/family/window_parts.h"

namespace qkv {
namespace {

constexpr const char *kFirst = "first", *kGlobal = "global";

// The base of a type of layers: its field in older files, or in rope_parameters. `null`: what null means.
double rotary_base(const JsonField& c, const char* key, const char* type, double otherwise, double null) {
  if (c.object().contains(key)) return c.number_or(key, null);
  const auto of_type = plain_rotary_of(c, type);
  return of_type ? of_type->number_or("rope_theta", otherwise) : otherwise;
}

// Layers in turn: one that sees all, some that see a window on both sides. The first has no norm before its
// attention.
void read_modernbert_layers(const JsonField& c, ModelSpec& s) {
  RotarySpec& r = s.attention.rotary;
  r.width = s.attention.d_qk;
  r.base = rotary_base(c, "global_rope_theta", kFull, 160000, 160000);
  BlockSpec local = s, first = s;
  const BlockSpec global = s;
  local.attention.rotary.base = rotary_base(c, "local_rope_theta", kWindowed, 10000, r.base);
  local.attention.patterns = {{.window = c.integer_or("local_attention", 128, 1, kMost) / 2 + 1}};
  first.mixer_norm = false;
  const auto every = c.integer_or("global_attn_every_n_layers", 3, 1, kMost);
  const std::vector<bool> windowed = read_windowed(c, s.layers, [&](int64_t l) { return l % every != 0; });
  check(windowed.empty() || !windowed[0], "{}: layer_types: the first layer sees all tokens", c.place());
  const bool any = std::ranges::find(windowed, true) != windowed.end();
  if (any) static_cast<BlockSpec&>(s) = local;
  s.kinds = {{kFirst, first}};
  s.layer_kinds = {kFirst};
  bool others = false;
  for (size_t l = 1; l < windowed.size(); ++l) {
    const bool own = any && !windowed[l];
    s.layer_kinds.push_back(own ? kGlobal : kDefaultKind);
    others = others || own;
  }
  if (others) s.kinds.push_back({kGlobal, global});
}

ModelSpec read_modernbert(const JsonField& c) {
  ModelSpec s =
      bert_spec(c.integer_or("vocab_size", 50368, 1, kMost),
                c.integer_or("max_position_embeddings", 8192, 1, kMost), c["hidden_size"].integer(0, kMost),
                c["num_hidden_layers"].integer(1, kMost), c["num_attention_heads"].integer(1, kMost));
  s.hidden = c["intermediate_size"].integer(0, kMost);
  s.activation = read_activation(c, "hidden_activation", "gelu");
  s.gated = true;
  s.norm_placement = NormPlacement::pre;
  s.normalization = c.boolean_or("norm_bias", false) ? Normalization::layer : Normalization::layer_scale;
  s.norm_epsilon = c.number_or("norm_eps", 1e-5F);
  s.attention.bias = s.attention.out_bias = c.boolean_or("attention_bias", false);
  s.feed_forward_bias = c.boolean_or("mlp_bias", false);
  s.attention.dropout = c.number_or("attention_dropout", 0);
  s.embedding_dropout = c.number_or("embedding_dropout", 0);
  s.residual_dropout = c.number_or("mlp_dropout", 0);
  s.head_dropout = c.number_or("classifier_dropout", 0);
  s.init_std = c.number_or("initializer_range", 0.02F);
  s.segments = 0;
  s.positions = Positions::rotary;
  read_modernbert_layers(c, s);
  read_head(c, "ModernBert", s);
  check(s.output != Output::tokens || s.labels.empty(),
        "{}: architectures: ModernBertForPreTraining is not supported", c.place());
  const Activation f = read_activation(c, "classifier_activation", "gelu");
  const bool bias = c.boolean_or("classifier_bias", false);
  if (s.output == Output::tokens) {
    s.tied = c.boolean_or("tie_word_embeddings", true);
    s.unembedding_bias = c.boolean_or("decoder_bias", true);
    s.head_bias = bias;
    set_head_activation(s, f);
    return s;
  }
  s.pooler = s.output != Output::embedding;
  if (!s.pooler) return s;
  s.pooler_activation = f;
  s.pooler_bias = bias;
  s.pooler_norm = true;
  const auto pooling = c.string_or("classifier_pooling", "cls");
  check(pooling == "cls" || pooling == "mean",
        "{}: classifier_pooling: '{}' is not supported (cls, mean are)", c.place(), pooling);
  s.pooling = pooling == "mean" && s.output == Output::sequence_classes ? Pooling::mean : Pooling::first;
  return s;
}

OrderedJson write_modernbert(const ModelSpec& s) {
  const bool tokens = s.output == Output::tokens;
  OrderedJson c = {
      {"model_type", "modernbert"},
      {"architectures", {"ModernBert" + head_name(s)}},
      {"vocab_size", s.vocab_size},
      {"max_position_embeddings", s.context},
      {"hidden_size", s.width},
      {"num_hidden_layers", s.layers},
      {"num_attention_heads", s.attention.heads},
      {"intermediate_size", s.hidden},
      {"hidden_activation", config_name_of(s.activation)},
      {"norm_eps", decimal(s.norm_epsilon)},
      {"norm_bias", s.normalization == Normalization::layer},
      {"attention_bias", s.attention.bias},
      {"mlp_bias", s.feed_forward_bias},
      {"attention_dropout", decimal(s.attention.dropout)},
      {"embedding_dropout", decimal(s.embedding_dropout)},
      {"mlp_dropout", decimal(s.residual_dropout)},
      {"classifier_dropout", decimal(s.head_dropout)},
      {"classifier_bias", tokens ? s.head_bias : s.pooler_bias},
      {"classifier_activation", config_name_of(tokens ? s.activation_of_head() : s.pooler_activation)},
      {"classifier_pooling", s.pooling == Pooling::mean ? "mean" : "cls"},
      {"initializer_range", decimal(s.init_std)},
      {"tie_word_embeddings", s.tied},
      {"torch_dtype", "float32"}};
  if (tokens) c["decoder_bias"] = s.unembedding_bias;
  int64_t every = 1;
  while (every < s.layers && window_of(s, every) > 0) ++every;
  c["global_attn_every_n_layers"] = every;
  c["global_rope_theta"] = s.block(0).attention.rotary.base;
  if (const int64_t w = first_window(s); w > 0) {
    c["local_attention"] = std::max<int64_t>(1, 2 * (w - 1));
    c["local_rope_theta"] = s.attention.rotary.base;
  }
  write_labels(s, c);
  return c;
}

std::vector<WeightName> modernbert_weights(const ModelSpec& s) {
  WeightNames n;
  const bool norm_bias = s.normalization == Normalization::layer;
  const auto norm = [&](const std::string& engine, const std::string& file) {
    n.bias = norm_bias;
    n.norm(engine, file);
  };
  const auto linear = [&](bool bias, const std::string& engine, const std::string& file) {
    n.bias = bias;
    n.linear(engine, file);
  };
  n.tensor("embedding.token", "model.embeddings.tok_embeddings.weight");
  norm("embedding.norm", "model.embeddings.norm");
  for (int64_t l = 0; l < s.layers; ++l) {
    const std::string e = fmt::format("encoder.block.{}.", l), f = fmt::format("model.layers.{}.", l);
    if (l > 0) norm(e + "attention.norm", f + "attn_norm");
    linear(s.attention.bias, e + "attention.qkv", f + "attn.Wqkv");
    linear(s.attention.bias, e + "attention.out", f + "attn.Wo");
    norm(e + "feed_forward.norm", f + "mlp_norm");
    linear(s.feed_forward_bias, e + "feed_forward.up", f + "mlp.Wi");
    linear(s.feed_forward_bias, e + "feed_forward.down", f + "mlp.Wo");
  }
  norm("encoder.norm", "model.final_norm");
  if (s.output == Output::tokens) {
    linear(s.head_bias, "head", "head.dense");
    norm("head.norm", "head.norm");
    if (s.unembedding_bias) n.tensor("unembedding.bias", "decoder.bias");
    n.untied(s, "decoder.weight");
  } else if (s.pooler) {
    linear(s.pooler_bias, "pooler", "head.dense");
    norm("pooler.norm", "head.norm");
    linear(true, "classifier", "classifier");
  }
  return n.all;
}

}  // namespace

const Family& modernbert_family() {
  static const Family family = [] {
    Family f = {
        "modernbert",
        read_modernbert,
        write_modernbert,
        [](const ModelSpec& s) {
          return s.architecture == Architecture::encoder && s.positions == Positions::rotary &&
                 s.norm_placement == NormPlacement::pre && s.embedding_norm && s.layers > 0 &&
                 (s.normalization == Normalization::layer || s.normalization == Normalization::layer_scale) &&
                 (s.output != Output::tokens || s.head_width == s.width) &&
                 (s.output == Output::tokens || s.output == Output::embedding || s.pooler_norm);
        },
        modernbert_weights,
        "model.",
        [](const ModelSpec& s, const std::string& name) {
          const bool of_head =
              name.starts_with("head.") || name.starts_with("decoder.") || name.starts_with("classifier.");
          return (s.tied && name == "decoder.weight") || (s.output == Output::embedding && of_head);
        },
        Activation::gelu};
    f.rotates_by_type = true;
    return f;
  }();
  return family;
}

}  // namespace qkv
