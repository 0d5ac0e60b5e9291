// XLNet: Hugging Face's XLNetLMHeadModel, XLNetForSequenceClassification, XLNetForMultipleChoice and
// XLNetForTokenClassification.

#include "qkv/base/json_value.h"
#include "qkv/io/family/family_parts.h"

namespace qkv {
namespace {

ModelSpec read_xlnet(const JsonField& c) {
  // Its length is limited only by memory; the trained memory length is used as the context.
  const auto remembered = c.integer_or("mem_len", 512, -1, kMost);
  ModelSpec s = gpt2_spec(c["vocab_size"].integer(0, kMost), remembered > 0 ? remembered : 512,
                          c["d_model"].integer(0, kMost), c["n_layer"].integer(0, kMost),
                          c["n_head"].integer(0, kMost));
  s.architecture = Architecture::encoder;
  s.norm_placement = NormPlacement::post;
  s.positions = Positions::none;
  s.hidden = c["d_inner"].integer(0, kMost);
  s.activation = read_activation(c, "ff_activation", "gelu");
  s.norm_epsilon = c.number_or("layer_norm_eps", 1e-12F);
  s.attention.bias = s.attention.out_bias = false;
  s.attention.dropout = s.embedding_dropout = s.residual_dropout = c.number_or("dropout", 0.1F);
  s.init_std = c.number_or("initializer_range", 0.02F);
  RelativeSpec& r = s.attention.relative;
  r.kind = RelativeAttention::transformer_xl;
  r.distance = std::max<int64_t>(0, c.integer_or("clamp_len", -1, -1, kMost));
  r.segments = true;
  check(c.integer_or("d_head", s.attention.d_qk, 1, kMost) == s.attention.d_qk,
        "{}: d_head: only d_model / n_head is supported", c.place());
  check(c.string_or("attn_type", "bi") == "bi", "{}: attn_type: only bi is supported", c.place());
  check(!c.boolean_or("bi_data", false), "{}: bi_data: only false is supported", c.place());
  check(!c.boolean_or("same_length", false), "{}: same_length: only false is supported", c.place());
  check(c.boolean_or("tie_word_embeddings", true), "{}: tie_word_embeddings: only true is supported",
        c.place());
  std::string name = "XLNetLMHeadModel";
  if (const auto list = c.find("architectures"); list && list->size() > 0) name = list->at(0).string();
  if (name == "XLNetLMHeadModel") {
    s.unembedding_bias = true;
    return s;
  }
  check(name == "XLNetForSequenceClassification" || name == "XLNetForMultipleChoice" ||
            name == "XLNetForTokenClassification",
        "{}: architectures: '{}' is not supported (XLNetLMHeadModel, XLNetForSequenceClassification, "
        "XLNetForMultipleChoice and XLNetForTokenClassification are)",
        c.place(), name);
  read_head(c, "XLNet", s);
  s.head_dropout = c.number_or("summary_last_dropout", 0.1F);
  if (s.output == Output::token_classes) {
    s.head_dropout = s.residual_dropout;
    return s;
  }
  s.pooling = Pooling::last;
  check(c.string_or("summary_type", "last") == "last" && c.boolean_or("summary_use_proj", true) &&
            c.string_or("summary_activation", "tanh") == "tanh",
        "{}: summary_type: only last, projected and with tanh, is supported", c.place());
  return s;
}

OrderedJson write_xlnet(const ModelSpec& s) {
  const RelativeSpec& r = s.attention.relative;
  OrderedJson config = {
      {"model_type", "xlnet"},
      {"architectures", {s.output == Output::tokens ? "XLNetLMHeadModel" : "XLNet" + head_name(s)}},
      {"vocab_size", s.vocab_size},
      {"mem_len", s.context},
      {"d_model", s.width},
      {"n_layer", s.layers},
      {"n_head", s.attention.heads},
      {"d_head", s.attention.d_qk},
      {"d_inner", s.hidden},
      {"ff_activation", config_name_of(s.activation)},
      {"layer_norm_eps", decimal(s.norm_epsilon)},
      {"dropout", decimal(s.residual_dropout)},
      {"initializer_range", decimal(s.init_std)},
      {"clamp_len", r.distance > 0 ? r.distance : -1},
      {"attn_type", "bi"},
      {"bi_data", false},
      {"same_length", false},
      {"untie_r", true},
      {"summary_type", "last"},
      {"summary_use_proj", true},
      {"summary_activation", "tanh"},
      {"summary_last_dropout", decimal(s.head_dropout)},
      {"torch_dtype", "float32"}};
  write_labels(s, config);
  return config;
}

std::vector<WeightName> xlnet_weights(const ModelSpec& s) {
  WeightNames n;
  const int64_t heads = s.attention.heads, d = s.attention.d_qk, all = heads * d;
  n.tensor("embedding.token", "transformer.word_embedding.weight");
  for (int64_t l = 0; l < s.layers; ++l) {
    const std::string engine = fmt::format("encoder.block.{}.", l), attention = engine + "attention.",
                      file = fmt::format("transformer.layer.{}.", l), self = file + "rel_attn.";
    // Projections are stored as [in, heads, columns per head].
    const auto projection = [&](const std::string& of, const char* part, int64_t first, int64_t rows) {
      n.all.push_back({attention + of, self + part, true, first, rows, 0, "", {s.width, heads, d}});
    };
    projection("qkv.weight", "q", 0, all);
    projection("qkv.weight", "k", all, all);
    projection("qkv.weight", "v", 2 * all, all);
    projection("distance.weight", "r", 0, 0);
    n.all.push_back({attention + "out.weight", self + "o", false, 0, 0, 0, "", {s.width, heads, d}});
    const auto of_heads = [&](const char* of, const char* part) {
      n.all.push_back({attention + of, self + part, false, 0, 0, 0, "", {heads, d}});
    };
    of_heads("content_bias", "r_w_bias");
    of_heads("position_bias", "r_r_bias");
    of_heads("segment_bias", "r_s_bias");
    n.all.push_back({attention + "segment", self + "seg_embed", false, 0, 0, 0, "", {2, heads, d}});
    n.norm(engine + "attention.norm", self + "layer_norm");
    n.linear(engine + "feed_forward.up", file + "ff.layer_1");
    n.linear(engine + "feed_forward.down", file + "ff.layer_2");
    n.norm(engine + "feed_forward.norm", file + "ff.layer_norm");
  }
  if (s.output == Output::tokens) {
    n.tensor("unembedding.bias", "lm_loss.bias");
    return n.all;
  }
  if (s.pooler) n.linear("pooler", "sequence_summary.summary");
  n.linear("classifier", s.pooler ? "logits_proj" : "classifier");
  return n.all;
}

}  // namespace

const Family& xlnet_family() {
  static const Family family = {
      "xlnet", read_xlnet, write_xlnet,
      [](const ModelSpec& s) {
        return s.attention.relative.kind == RelativeAttention::transformer_xl &&
               s.attention.relative.segments &&
               (s.output == Output::tokens || s.output == Output::sequence_classes ||
                s.output == Output::token_classes);
      },
      xlnet_weights, "transformer.",
      // The embedding of a token to be predicted.
      [](const ModelSpec&, const std::string& name) {
        return name == "transformer.mask_emb" || name == "mask_emb" || name == "lm_loss.weight";
      },
      Activation::tanh, "", "", Pooling::last};
  return family;
}

}  // namespace qkv
