// T5 and its kin, Switch Transformers among them; BART and its, Marian and M2M-100 among them.

#include "qkv/base/json_value.h"
#include "qkv/io/family/family_parts.h"

namespace qkv {
namespace {

// T5 has no limit of its own; what it was trained with is 512, what memory holds is more.
constexpr int64_t kT5Context = 4096;

ModelSpec read_t5(const JsonField& c) {
  ModelSpec s;
  s.architecture = Architecture::encoder_decoder;
  s.vocab_size = c["vocab_size"].integer(0, kMost);
  s.context = c.integer_or("n_positions", kT5Context, 1, kMost);
  s.width = c["d_model"].integer(0, kMost);
  s.encoder_layers = c["num_layers"].integer(0, kMost);
  s.layers = c.integer_or("num_decoder_layers", s.encoder_layers, 0, kMost);
  s.attention.heads = s.attention.kv_heads = c["num_heads"].integer(0, kMost);
  s.attention.d_qk = s.attention.d_vo = c["d_kv"].integer(0, kMost);
  s.attention.bias = s.attention.out_bias = false;
  s.attention.scaled = false;
  s.hidden = c["d_ff"].integer(0, kMost);
  s.feed_forward_bias = false;
  const auto projection = c.string_or("feed_forward_proj", "relu");
  s.gated = c.boolean_or("is_gated_act", projection.starts_with("gated-"));
  // These two are what the projection means, and hold where they are given.
  const std::string activation =
      c.string_or("dense_act_fn", projection.starts_with("gated-") ? projection.substr(6) : projection);
  if (activation == "relu")
    s.activation = Activation::relu;
  else if (activation == "gelu" || activation == "gelu_new")  // "gated-gelu" has always meant the tanh form
    s.activation = (projection == "gated-gelu" && !c.find("dense_act_fn")) || activation == "gelu_new"
                       ? Activation::gelu_tanh
                       : Activation::gelu;
  else if (activation == "silu" || activation == "swish")
    s.activation = Activation::silu;
  else
    fail("{}: feed_forward_proj: '{}' is not supported (relu, gated-gelu, gated-silu, ... are)", c.place(),
         projection);
  s.normalization = Normalization::rms;
  s.norm_epsilon = c.number_or("layer_norm_epsilon", 1e-6F);
  s.positions = Positions::relative;
  s.relative_buckets = c.integer_or("relative_attention_num_buckets", 32, 0, kMost);
  s.relative_distance = c.integer_or("relative_attention_max_distance", 128, 0, kMost);
  s.tied = c.boolean_or("tie_word_embeddings", true);
  s.unembedding_scaled = s.tied;
  s.attention.dropout = s.embedding_dropout = s.residual_dropout = c.number_or("dropout_rate", 0.1F);
  return s;
}

bool expresses_t5(const ModelSpec& s) {
  const AttentionSpec& a = s.attention;
  return s.architecture == Architecture::encoder_decoder && s.positions == Positions::relative &&
         s.normalization == Normalization::rms && s.norm_placement == NormPlacement::pre && !a.bias &&
         !a.scaled && !a.scaled_by_layer && a.kv_heads == a.heads && a.d_qk == a.d_vo &&
         !s.feed_forward_bias && s.unembedding_scaled == s.tied && !s.unembedding_bias && s.head_width == 0 &&
         !s.embedding_norm && !s.embedding_scaled && s.segments == 0 && !s.stacks_apart &&
         s.source_vocab_size == 0 && a.dropout == s.residual_dropout &&
         s.embedding_dropout == s.residual_dropout && s.activation != Activation::tanh;
}

std::string t5_projection(const ModelSpec& s) {
  const char* name = s.activation == Activation::relu              ? "relu"
                     : s.activation == Activation::silu            ? "silu"
                     : s.gated || s.activation == Activation::gelu ? "gelu"
                                                                   : "gelu_new";
  return (s.gated ? "gated-" : "") + std::string(name);
}

OrderedJson write_t5(const ModelSpec& s) {
  OrderedJson c = {{"model_type", "t5"},
                   {"architectures", {"T5ForConditionalGeneration"}},
                   {"is_encoder_decoder", true},
                   {"vocab_size", s.vocab_size},
                   {"n_positions", s.context},
                   {"d_model", s.width},
                   {"d_kv", s.attention.d_qk},
                   {"d_ff", s.hidden},
                   {"num_layers", s.encoder_layers},
                   {"num_decoder_layers", s.layers},
                   {"num_heads", s.attention.heads},
                   {"feed_forward_proj", t5_projection(s)},
                   {"layer_norm_epsilon", decimal(s.norm_epsilon)},
                   {"relative_attention_num_buckets", s.relative_buckets},
                   {"relative_attention_max_distance", s.relative_distance},
                   {"dropout_rate", decimal(s.residual_dropout)},
                   {"tie_word_embeddings", s.tied},
                   {"torch_dtype", "float32"}};
  if (s.gated && s.activation == Activation::gelu) {  // "gated-gelu" alone means the tanh form
    c["dense_act_fn"] = "gelu";
    c["is_gated_act"] = true;
  }
  return c;
}

// `network`: what the feed-forward network is called.
std::vector<WeightName> weights_named_as_t5(const ModelSpec& s, const char* network) {
  WeightNames n{{}, false};
  n.tensor("embedding.token", "shared.weight");
  const int64_t inner = s.attention.heads * s.attention.d_qk;
  for (const char* stack : {"encoder", "decoder"}) {
    const bool decoder = stack[0] == 'd';
    const ExpertsSpec experts = decoder ? s.experts : s.encoder_spec().experts;
    const std::string file_stack = stack, engine_stack = stack;
    n.tensor(engine_stack + ".distance",
             file_stack + ".block.0.layer.0.SelfAttention.relative_attention_bias.weight");
    for (int64_t l = 0; l < (decoder ? s.layers : s.encoder_layers); ++l) {
      const std::string engine = fmt::format("{}.block.{}.", stack, l),
                        file = fmt::format("{}.block.{}.layer.", stack, l);
      const std::string self = file + "0.SelfAttention.", cross = file + "1.EncDecAttention.",
                        dense = fmt::format("{}{}.{}.", file, decoder ? 2 : 1, network);
      n.parts(engine + "attention.qkv", {self + "q", self + "k", self + "v"}, {inner, inner, inner});
      n.linear(engine + "attention.out", self + "o");
      n.norm(engine + "attention.norm", file + "0.layer_norm");
      if (decoder) {
        n.linear(engine + "cross_attention.q", cross + "q");
        n.parts(engine + "cross_attention.kv", {cross + "k", cross + "v"}, {inner, inner});
        n.linear(engine + "cross_attention.out", cross + "o");
        n.norm(engine + "cross_attention.norm", file + "1.layer_norm");
      }
      n.norm(engine + "feed_forward.norm", file + (decoder ? "2" : "1") + ".layer_norm");
      if (experts.in_layer(l)) {
        n.linear(engine + "feed_forward.router", dense + "router.classifier");
        for (int64_t i = 0; i < experts.count; ++i) {
          const std::string expert = fmt::format("{}experts.expert_{}.", dense, i);
          n.all.push_back({engine + "feed_forward.experts.up.weight", expert + "wi.weight", false,
                           i * experts.hidden, experts.hidden});
          n.all.push_back({engine + "feed_forward.experts.down.weight", expert + "wo.weight", false,
                           i * s.width, s.width});
        }
        continue;
      }
      if (s.gated)
        n.parts(engine + "feed_forward.up", {dense + "wi_0", dense + "wi_1"}, {s.hidden, s.hidden});
      else
        n.linear(engine + "feed_forward.up", dense + "wi");
      n.linear(engine + "feed_forward.down", dense + "wo");
    }
    n.norm(engine_stack + ".norm", file_stack + ".final_layer_norm");
  }
  if (!s.tied) n.tensor("unembedding.weight", "lm_head.weight");
  return n.all;
}

std::vector<WeightName> t5_weights(const ModelSpec& s) {
  return weights_named_as_t5(s, "DenseReluDense");
}

bool is_extra_in_t5(const ModelSpec& s, const std::string& name) {
  // Published files also have a table of distances to the source, which no code reads.
  return name.ends_with(".embed_tokens.weight") || (s.tied && name == "lm_head.weight") ||
         name == "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight";
}

// BART counts positions from 2.
constexpr int64_t kBartUnused = 2;

// What BART and Marian share.
ModelSpec read_bart_like(const JsonField& c, const char* context = "max_position_embeddings") {
  ModelSpec s;
  s.architecture = Architecture::encoder_decoder;
  s.vocab_size = c["vocab_size"].integer(0, kMost);
  s.context = c[context].integer(0, kMost);
  s.width = c["d_model"].integer(0, kMost);
  s.encoder_layers = c["encoder_layers"].integer(0, kMost);
  s.layers = c["decoder_layers"].integer(0, kMost);
  const int64_t heads = c["decoder_attention_heads"].integer(1, kMost),
                encoder_heads = c["encoder_attention_heads"].integer(1, kMost),
                encoder_hidden = c["encoder_ffn_dim"].integer(1, kMost);
  s.hidden = c["decoder_ffn_dim"].integer(0, kMost);
  if (encoder_heads != heads) s.encoder.heads = encoder_heads;
  if (encoder_hidden != s.hidden) s.encoder.hidden = encoder_hidden;
  for (const int64_t n : {heads, encoder_heads})
    check(s.width % n == 0, "{}: d_model {} is not divisible by {} heads", c.place(), s.width, n);
  s.attention.heads = s.attention.kv_heads = heads;
  s.attention.d_qk = s.attention.d_vo = s.width / heads;
  s.activation = read_activation(c, "activation_function", "gelu");
  s.norm_placement = NormPlacement::post;
  s.embedding_scaled = c.boolean_or("scale_embedding", false);
  s.unembedding_bias = true;  // final_logits_bias
  s.attention.dropout = c.number_or("attention_dropout", 0);
  s.embedding_dropout = s.residual_dropout = c.number_or("dropout", 0.1F);
  s.init_std = c.number_or("init_std", 0.02F);
  s.tied = c.boolean_or("tie_word_embeddings", true);
  return s;
}

OrderedJson write_bart_like(const ModelSpec& s, const char* type, const char* architecture) {
  OrderedJson c = {{"model_type", type},
                   {"architectures", {architecture}},
                   {"is_encoder_decoder", true},
                   {"vocab_size", s.vocab_size},
                   {"max_position_embeddings", s.context},
                   {"d_model", s.width},
                   {"encoder_layers", s.encoder_layers},
                   {"decoder_layers", s.layers},
                   {"encoder_attention_heads", s.encoder_spec().attention.heads},
                   {"decoder_attention_heads", s.attention.heads},
                   {"encoder_ffn_dim", s.encoder_spec().hidden},
                   {"decoder_ffn_dim", s.hidden},
                   {"activation_function", config_name_of(s.activation)},
                   {"scale_embedding", s.embedding_scaled},
                   {"attention_dropout", decimal(s.attention.dropout)},
                   {"activation_dropout", 0.0},
                   {"dropout", decimal(s.residual_dropout)},
                   {"init_std", decimal(s.init_std)},
                   {"torch_dtype", "float32"}};
  if (!s.tied) c["tie_word_embeddings"] = false;
  return c;
}

bool is_bart_like(const ModelSpec& s) {
  const AttentionSpec& a = s.attention;
  return s.architecture == Architecture::encoder_decoder && s.normalization == Normalization::layer &&
         a.bias && a.out_bias && a.scaled && !a.scaled_by_layer && a.kv_heads == a.heads &&
         a.d_qk == a.d_vo && a.heads * a.d_qk == s.width && s.feed_forward_bias && !s.gated &&
         !s.unembedding_scaled && s.head_width == 0 && s.segments == 0 &&
         s.embedding_dropout == s.residual_dropout && s.activation != Activation::tanh &&
         s.norm_epsilon == 1e-5F && s.source_vocab_size == 0 && s.encoder.width == 0;
}

void add_bart_blocks(const ModelSpec& s, WeightNames& n) {
  const int64_t w = s.width;
  for (const char* stack : {"encoder", "decoder"}) {
    const bool decoder = stack[0] == 'd';
    for (int64_t l = 0; l < (decoder ? s.layers : s.encoder_layers); ++l) {
      const std::string engine = fmt::format("{}.block.{}.", stack, l),
                        file = fmt::format("model.{}.layers.{}.", stack, l);
      const std::string self = file + "self_attn.", cross = file + "encoder_attn.";
      n.parts(engine + "attention.qkv", {self + "q_proj", self + "k_proj", self + "v_proj"}, {w, w, w});
      n.linear(engine + "attention.out", self + "out_proj");
      n.norm(engine + "attention.norm", file + "self_attn_layer_norm");
      if (decoder) {
        n.linear(engine + "cross_attention.q", cross + "q_proj");
        n.parts(engine + "cross_attention.kv", {cross + "k_proj", cross + "v_proj"}, {w, w});
        n.linear(engine + "cross_attention.out", cross + "out_proj");
        n.norm(engine + "cross_attention.norm", file + "encoder_attn_layer_norm");
      }
      n.linear(engine + "feed_forward.up", file + "fc1");
      n.linear(engine + "feed_forward.down", file + "fc2");
      n.norm(engine + "feed_forward.norm", file + "final_layer_norm");
    }
    if (s.norm_placement == NormPlacement::pre)
      n.norm(fmt::format("{}.norm", stack), fmt::format("model.{}.layer_norm", stack));
  }
}

void add_bart_unembedding(const ModelSpec& s, WeightNames& n) {
  n.all.push_back({.engine = "unembedding.bias",
                   .file = "final_logits_bias",
                   .shape = {1, s.vocab_size},
                   .optional = true});
  n.untied(s, "lm_head.weight");
}

std::vector<WeightName> bart_weights(const ModelSpec& s) {
  WeightNames n;
  n.tensor("embedding.token", "model.shared.weight");
  for (const char* stack : {"encoder", "decoder"}) {
    const std::string engine = fmt::format("{}.embedding", stack), file = fmt::format("model.{}.", stack);
    n.all.push_back({engine + ".position", file + "embed_positions.weight", false, 0, 0, kBartUnused});
    n.norm(engine + ".norm", file + "layernorm_embedding");
  }
  add_bart_blocks(s, n);
  add_bart_unembedding(s, n);
  return n.all;
}

std::vector<WeightName> marian_weights(const ModelSpec& s) {
  WeightNames n;
  n.tensor("embedding.token", "model.shared.weight");
  add_bart_blocks(s, n);
  add_bart_unembedding(s, n);
  return n.all;
}

bool is_extra_in_bart(const ModelSpec& s, const std::string& name) {
  return name.ends_with(".embed_tokens.weight") || (s.tied && name == "lm_head.weight");
}

// Whisper: the keys have no biases, what is read are frames.
ModelSpec read_whisper(const JsonField& c) {
  ModelSpec s = read_bart_like(c, "max_target_positions");
  s.encoder.context = c["max_source_positions"].integer(1, kMost);
  s.features.kind = FeatureSpec::Kind::frames;
  s.features.channels = c["num_mel_bins"].integer(1, 1 << 16);
  s.norm_placement = NormPlacement::pre;
  s.stacks_apart = true;
  s.unembedding_bias = s.embedding_scaled = false;  // scale_embedding is read by nothing
  check(!c.boolean_or("use_weighted_layer_sum", false), "{}: use_weighted_layer_sum: not supported",
        c.place());
  return s;
}

OrderedJson write_whisper(const ModelSpec& s) {
  OrderedJson c = write_bart_like(s, "whisper", "WhisperForConditionalGeneration");
  c.erase("max_position_embeddings");
  c["max_target_positions"] = s.context;
  c["max_source_positions"] = s.encoder.context;
  c["num_mel_bins"] = s.features.channels;
  return c;
}

std::vector<WeightName> whisper_weights(const ModelSpec& s) {
  WeightNames n;
  n.tensor("embedding.token", "model.decoder.embed_tokens.weight");
  for (const char* stack : {"encoder", "decoder"})
    n.tensor(fmt::format("{}.embedding.position", stack),
             fmt::format("model.{}.embed_positions.weight", stack));
  for (int i = 0; i < 2; ++i) {
    const std::string engine = fmt::format("encoder.embedding.convolution.{}", i),
                      file = fmt::format("model.encoder.conv{}", i + 1);
    n.all.push_back({.engine = engine + ".weight",
                     .file = file + ".weight",
                     .shape = {s.width, i == 0 ? s.features.channels : s.width, 3}});
    n.tensor(engine + ".bias", file + ".bias");
  }
  add_bart_blocks(s, n);
  n.untied(s, "proj_out.weight");
  for (WeightName& w : n.all)
    if (w.file.ends_with(".k_proj.bias")) w.file.clear();
  return n.all;
}

// The sinusoids that some files carry.
bool is_extra_in_marian(const ModelSpec& s, const std::string& name) {
  return is_extra_in_bart(s, name) || name.ends_with(".embed_positions.weight");
}

}  // namespace

const Family& t5_family() {
  static const Family family = {"t5", read_t5, write_t5, expresses_t5, t5_weights, "", is_extra_in_t5};
  return family;
}

namespace {

// Of the layers of a Switch Transformer's stack each step-th has experts, the second of each step.
int64_t read_sparse_step(const JsonField& c, const std::string& stack, int64_t layers) {
  const int64_t sparse = c.integer_or("num_sparse_" + stack + "_layers", 3, 0, kMost);
  const int64_t step = c.integer_or(stack + "_sparse_step", sparse > 0 ? layers / sparse : layers, 1, kMost);
  check(step > 0, "{}: num_sparse_{}_layers: {} of {} layers leave none between (say {}_sparse_step)",
        c.place(), stack, sparse, layers, stack);
  return step;
}
int64_t first_sparse(int64_t step) {
  return step > 1 ? 1 : 0;
}

}  // namespace

const Family& switch_family() {
  static const Family family = {
      "switch_transformers",
      [](const JsonField& c) {
        ModelSpec s = read_t5(c);
        const auto network = c.string_or("dense_act_fn", "relu");
        check(c.string_or("feed_forward_proj", network) == network,
              "{}: feed_forward_proj: only dense_act_fn's {} is supported", c.place(), network);
        s.activation = read_activation(c, "dense_act_fn", "relu");
        for (const char* key : {"router_bias", "add_router_probs"})
          check(!c.boolean_or(key, false), "{}: {}: only false is supported", c.place(), key);
        ExpertsSpec& x = s.experts;
        x.count = c.integer_or("num_experts", 8, 1, kMost);
        x.chosen = 1;
        x.renormalized = false;
        x.hidden = s.hidden;
        x.every = read_sparse_step(c, "decoder", s.layers);
        x.first = first_sparse(x.every);
        if (const int64_t step = read_sparse_step(c, "encoder", s.encoder_layers); step != x.every)
          s.encoder.expert_every = step, s.encoder.expert_first = first_sparse(step);
        x.capacity = c.integer_or("expert_capacity", 64, 0, kMost);
        x.balance = c.number_or("router_aux_loss_coef", 0.001F);
        return s;
      },
      [](const ModelSpec& s) {
        const ExpertsSpec& x = s.experts;
        OrderedJson c = write_t5(s);
        c["model_type"] = "switch_transformers";
        c["architectures"] = {"SwitchTransformersForConditionalGeneration"};
        c.erase("feed_forward_proj");
        c["dense_act_fn"] = config_name_of(s.activation);
        c["num_experts"] = x.count;
        const int64_t encoder_step = s.encoder_spec().experts.every;
        c["encoder_sparse_step"] = encoder_step;
        c["decoder_sparse_step"] = x.every;
        c["num_sparse_encoder_layers"] = s.encoder_layers / encoder_step;
        c["num_sparse_decoder_layers"] = s.layers / x.every;
        c["expert_capacity"] = x.capacity;
        c["router_aux_loss_coef"] = decimal(x.balance);
        c["router_bias"] = false;
        c["router_jitter_noise"] = 0.0;
        return c;
      },
      [](const ModelSpec& s) {
        ModelSpec dense = s;
        dense.experts = {};
        dense.encoder = {};
        return expresses_t5(dense) && !s.gated && s.experts.count > 0;
      },
      [](const ModelSpec& s) { return weights_named_as_t5(s, "mlp"); },
      "",
      is_extra_in_t5};
  return family;
}

const Family& whisper_family() {
  static const Family family = {
      "whisper",
      read_whisper,
      write_whisper,
      [](const ModelSpec& s) {
        return is_bart_like(s) && s.features.kind == FeatureSpec::Kind::frames && s.encoder.context > 0;
      },
      whisper_weights,
      "",
      [](const ModelSpec& s, const std::string& name) { return s.tied && name == "proj_out.weight"; }};
  return family;
}

const Family& m2m100_family() {
  static const Family family = {
      "m2m_100",
      [](const JsonField& c) {
        ModelSpec s = read_bart_like(c);
        s.activation = read_activation(c, "activation_function", "relu");
        s.embedding_scaled = c.boolean_or("scale_embedding", true);
        s.first_position = read_first_position(c);
        s.norm_placement = NormPlacement::pre;
        s.positions = Positions::sinusoidal_closed;
        s.unembedding_bias = false;
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_bart_like(s, "m2m_100", "M2M100ForConditionalGeneration");
        c["pad_token_id"] = rows_before_first(s) - 1;
        return c;
      },
      [](const ModelSpec& s) {
        return s.architecture == Architecture::encoder_decoder && s.positions == Positions::sinusoidal_closed;
      },
      [](const ModelSpec& s) {
        WeightNames n;
        n.tensor("embedding.token", "model.shared.weight");
        add_bart_blocks(s, n);
        n.untied(s, "lm_head.weight");
        return n.all;
      },
      "model.",
      [](const ModelSpec& s, const std::string& name) {
        return is_extra_in_bart(s, name) || name.ends_with(".embed_positions.weights");
      }};
  return family;
}

const Family& bart_family() {
  static const Family family = {
      "bart",
      [](const JsonField& c) {
        ModelSpec s = read_bart_like(c);
        s.stacks_apart = true;
        s.embedding_norm = true;
        return s;
      },
      [](const ModelSpec& s) { return write_bart_like(s, "bart", "BartForConditionalGeneration"); },
      [](const ModelSpec& s) {
        return is_bart_like(s) && s.positions == Positions::learned && s.stacks_apart && s.embedding_norm;
      },
      bart_weights,
      "model.",
      is_extra_in_bart};
  return family;
}

const Family& mbart_family() {
  static const Family family = {
      "mbart",
      [](const JsonField& c) {
        ModelSpec s = read_bart_like(c);
        s.norm_placement = NormPlacement::pre;
        s.stacks_apart = true;
        s.embedding_norm = true;
        return s;
      },
      [](const ModelSpec& s) { return write_bart_like(s, "mbart", "MBartForConditionalGeneration"); },
      [](const ModelSpec& s) { return is_bart_like(s) && s.positions == Positions::learned; },
      bart_weights,
      "model.",
      is_extra_in_bart};
  return family;
}

const Family& pegasus_family() {
  static const Family family = {
      "pegasus",
      [](const JsonField& c) {
        ModelSpec s = read_bart_like(c);
        s.norm_placement = NormPlacement::pre;
        s.positions = Positions::sinusoidal_halves;
        return s;
      },
      [](const ModelSpec& s) { return write_bart_like(s, "pegasus", "PegasusForConditionalGeneration"); },
      [](const ModelSpec& s) { return is_bart_like(s) && s.positions == Positions::sinusoidal_halves; },
      marian_weights,
      "model.",
      is_extra_in_marian};
  return family;
}

const Family& marian_family() {
  static const Family family = {"marian",
                                [](const JsonField& c) {
                                  ModelSpec s = read_bart_like(c);
                                  s.positions = Positions::sinusoidal_halves;
                                  check(c.boolean_or("share_encoder_decoder_embeddings", true),
                                        "{}: share_encoder_decoder_embeddings: only true is supported",
                                        c.place());
                                  return s;
                                },
                                [](const ModelSpec& s) {
                                  OrderedJson config = write_bart_like(s, "marian", "MarianMTModel");
                                  config["decoder_vocab_size"] = s.vocab_size;
                                  config["share_encoder_decoder_embeddings"] = true;
                                  return config;
                                },
                                [](const ModelSpec& s) {
                                  return is_bart_like(s) && s.positions == Positions::sinusoidal_halves &&
                                         !s.stacks_apart && !s.embedding_norm;
                                },
                                marian_weights,
                                "model.",
                                is_extra_in_marian};
  return family;
}

}  // namespace qkv
