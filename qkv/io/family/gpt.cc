// Decoders after GPT-2 with tensors named in ways of their own: GPT-NeoX, GPT-J, Falcon, BLOOM, MPT, GPT-Neo,
// OPT, GPT-BigCode, CTRL and XGLM.

#include "qkv/base/json_value.h"
#include "qkv/io/family/family_parts.h"

namespace qkv {
namespace {

// A decoder of these sizes, read from config.json under these names.
ModelSpec sized(const JsonField& c, const char* width, const char* layers, const char* heads) {
  ModelSpec s;
  s.vocab_size = c["vocab_size"].integer(0, kMost);
  s.width = c[width].integer(0, kMost);
  s.layers = c[layers].integer(0, kMost);
  AttentionSpec& a = s.attention;
  a.heads = a.kv_heads = c[heads].integer(1, kMost);
  check(s.width % a.heads == 0, "{}: {} {} is not divisible by {} heads", c.place(), width, s.width, a.heads);
  a.d_qk = a.d_vo = s.width / a.heads;
  s.hidden = 4 * s.width;
  s.init_std = c.number_or("initializer_range", 0.02F);
  s.tied = c.boolean_or("tie_word_embeddings", true);
  return s;
}

OrderedJson write_sized(const ModelSpec& s, const char* type, const char* architecture, const char* width,
                        const char* layers, const char* heads) {
  return {{"model_type", type},
          {"architectures", {architecture}},
          {"vocab_size", s.vocab_size},
          {width, s.width},
          {layers, s.layers},
          {heads, s.attention.heads},
          {"initializer_range", decimal(s.init_std)},
          {"tie_word_embeddings", s.tied},
          {"torch_dtype", "float32"},
          {"use_cache", true}};
}

bool is_decoder(const ModelSpec& s) {
  return s.architecture == Architecture::decoder && has_decoder_head(s) &&
         s.attention.d_qk == s.attention.d_vo && s.attention.heads * s.attention.d_qk == s.width;
}

bool is_mask_or_tied(const ModelSpec& s, const std::string& name) {
  for (const char* mask : {".attn.bias", ".attn.masked_bias", ".attention.bias", ".attention.masked_bias",
                           ".rotary_emb.inv_freq"})
    if (name.ends_with(mask)) return true;
  return s.tied && (name == "lm_head.weight" || name == "embed_out.weight");
}

// What the tensors of a block are called, behind the block's own name.
struct BlockNames {
  std::string norm, second_norm;  // second: of the feed-forward network, where it has one
  std::vector<std::string> qkv;   // one fused projection or three
  std::string out, up, down;
};

// Of a fused projection in groups of queries, keys and values (each a head for every kv head), the file's row
// of each of the engine's rows.
std::vector<int64_t> grouped_rows(const AttentionSpec& a) {
  const int64_t share = a.heads / a.kv_heads, d = a.d_qk, group = (share + 2) * d;
  std::vector<int64_t> rows;
  const auto add = [&](int64_t g, int64_t head) {
    for (int64_t i = 0; i < d; ++i) rows.push_back(g * group + head * d + i);
  };
  for (int64_t h = 0; h < a.heads; ++h) add(h / share, h % share);
  for (const int64_t part : {share, share + 1})
    for (int64_t g = 0; g < a.kv_heads; ++g) add(g, part);
  return rows;
}

void add_norm(WeightNames& n, const ModelSpec& s, const std::string& engine, const std::string& file) {
  if (s.normalization == Normalization::layer_plain) return;
  n.bias = s.normalization == Normalization::layer;
  n.norm(engine, file);
}

void add_block(WeightNames& n, const ModelSpec& s, int64_t layer, const std::string& f,
               const BlockNames& names, bool grouped = false) {
  const AttentionSpec& a = s.attention;
  const std::string e = fmt::format("decoder.block.{}.", layer);
  add_norm(n, s, e + "attention.norm", f + names.norm);
  if (!names.second_norm.empty()) add_norm(n, s, e + "feed_forward.norm", f + names.second_norm);
  n.bias = a.bias;
  if (names.qkv.size() == 1) {
    const size_t first = n.all.size();
    n.linear(e + "attention.qkv", f + names.qkv[0]);
    for (size_t i = first; grouped && i < n.all.size(); ++i) n.all[i].row_order = grouped_rows(a);
  } else {
    n.parts(e + "attention.qkv", {f + names.qkv[0], f + names.qkv[1], f + names.qkv[2]},
            {a.heads * a.d_qk, a.kv_heads * a.d_qk, a.kv_heads * a.d_vo});
  }
  n.bias = a.out_bias;
  n.linear(e + "attention.out", f + names.out);
  n.bias = s.feed_forward_bias;
  n.linear(e + "feed_forward.up", f + names.up);
  n.linear(e + "feed_forward.down", f + names.down);
}

// One block for each layer, named by a pattern with its number.
template <typename F>
std::vector<WeightName> decoder_names(const ModelSpec& s, const char* embedding, const char* last_norm,
                                      const F& add_layer, const char* unembedding = "lm_head.weight") {
  WeightNames n;
  n.tensor("embedding.token", embedding);
  for (int64_t l = 0; l < s.layers; ++l) add_layer(n, l);
  add_norm(n, s, "decoder.norm", last_norm);
  if (!s.tied) n.tensor("unembedding.weight", unembedding);
  return n.all;
}

const std::vector<std::string> kFused = {"attention.query_key_value"};

}  // namespace

const Family& gpt_neox_family() {
  static const Family family = {
      "gpt_neox",
      [](const JsonField& c) {
        ModelSpec s = sized(c, "hidden_size", "num_hidden_layers", "num_attention_heads");
        s.context = c["max_position_embeddings"].integer(1, kMost);
        s.hidden = c["intermediate_size"].integer(0, kMost);
        s.activation = read_activation(c, "hidden_act", "gelu");
        s.norm_epsilon = c.number_or("layer_norm_eps", 1e-5F);
        s.attention.bias = s.attention.out_bias = c.boolean_or("attention_bias", true);
        s.branches = c.boolean_or("use_parallel_residual", true) ? Branches::parallel : Branches::serial;
        s.positions = Positions::rotary;
        RotarySpec& r = s.attention.rotary;
        r.width = read_rotated(c, "rotary_pct", 0.25, s.attention.d_qk);
        r.base = c.number_or("rotary_emb_base", 10000);
        read_rotary_scaling(c, s.context, r);
        s.tied = c.boolean_or("tie_word_embeddings", false);
        s.attention.dropout = c.number_or("attention_dropout", 0);
        s.residual_dropout = s.embedding_dropout = c.number_or("hidden_dropout", 0);
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_sized(s, "gpt_neox", "GPTNeoXForCausalLM", "hidden_size", "num_hidden_layers",
                                    "num_attention_heads");
        c["max_position_embeddings"] = s.context;
        c["intermediate_size"] = s.hidden;
        c["hidden_act"] = config_name_of(s.activation);
        c["layer_norm_eps"] = decimal(s.norm_epsilon);
        c["attention_bias"] = s.attention.bias;
        c["use_parallel_residual"] = s.branches == Branches::parallel;
        c["rotary_pct"] = rotated_part(s.attention);
        c["rotary_emb_base"] = s.attention.rotary.base;
        if (OrderedJson scaling = rotary_scaling_json(s.attention.rotary); !scaling.is_null())
          c["rope_scaling"] = std::move(scaling);
        c["attention_dropout"] = decimal(s.attention.dropout);
        c["hidden_dropout"] = decimal(s.residual_dropout);
        return c;
      },
      is_decoder,
      [](const ModelSpec& s) {
        return decoder_names(
            s, "gpt_neox.embed_in.weight", "gpt_neox.final_layer_norm",
            [&](WeightNames& n, int64_t l) {
              add_block(n, s, l, fmt::format("gpt_neox.layers.{}.", l),
                        {"input_layernorm", "post_attention_layernorm", kFused, "attention.dense",
                         "mlp.dense_h_to_4h", "mlp.dense_4h_to_h"},
                        true);
            },
            "embed_out.weight");
      },
      "gpt_neox.",
      is_mask_or_tied,
      Activation::tanh,
      "GPTNeoXForCausalLM",
      "score"};
  return family;
}

const Family& gptj_family() {
  static const Family family = {
      "gptj",
      [](const JsonField& c) {
        ModelSpec s = sized(c, "n_embd", "n_layer", "n_head");
        s.context = c["n_positions"].integer(1, kMost);
        s.hidden = c.integer_or("n_inner", 4 * s.width, 0, kMost);
        s.activation = read_activation(c, "activation_function", "gelu_new");
        s.norm_epsilon = c.number_or("layer_norm_epsilon", 1e-5F);
        s.attention.bias = s.attention.out_bias = false;
        s.branches = Branches::one_norm;
        s.positions = Positions::rotary;
        s.attention.rotary.width = c.integer_or("rotary_dim", s.attention.d_qk, 2, kMost);
        s.attention.rotary.layout = RotaryLayout::interleaved;
        s.tied = c.boolean_or("tie_word_embeddings", false);
        s.unembedding_bias = true;
        s.attention.dropout = c.number_or("attn_pdrop", 0);
        s.embedding_dropout = c.number_or("embd_pdrop", 0);
        s.residual_dropout = c.number_or("resid_pdrop", 0);
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_sized(s, "gptj", "GPTJForCausalLM", "n_embd", "n_layer", "n_head");
        c["n_positions"] = s.context;
        c["n_inner"] = s.hidden;
        c["activation_function"] = config_name_of(s.activation);
        c["layer_norm_epsilon"] = decimal(s.norm_epsilon);
        c["rotary_dim"] = s.attention.rotary.width;
        c["attn_pdrop"] = decimal(s.attention.dropout);
        c["embd_pdrop"] = decimal(s.embedding_dropout);
        c["resid_pdrop"] = decimal(s.residual_dropout);
        return c;
      },
      is_decoder,
      [](const ModelSpec& s) {
        auto names =
            decoder_names(s, "transformer.wte.weight", "transformer.ln_f", [&](WeightNames& n, int64_t l) {
              add_block(n, s, l, fmt::format("transformer.h.{}.", l),
                        {"ln_1",
                         "",
                         {"attn.q_proj", "attn.k_proj", "attn.v_proj"},
                         "attn.out_proj",
                         "mlp.fc_in",
                         "mlp.fc_out"});
            });
        names.push_back({"unembedding.bias", "lm_head.bias"});
        return names;
      },
      "transformer.",
      is_mask_or_tied,
      Activation::tanh,
      "GPTJForCausalLM",
      "score"};
  return family;
}

const Family& falcon_family() {
  static const Family family = {
      "falcon",
      [](const JsonField& c) {
        ModelSpec s = sized(c, "hidden_size", "num_hidden_layers", "num_attention_heads");
        s.context = c.integer_or("max_position_embeddings", 2048, 1, kMost);
        s.hidden = c.integer_or("ffn_hidden_size", 4 * s.width, 0, kMost);
        s.activation = read_activation(c, "activation", "gelu");
        s.norm_epsilon = c.number_or("layer_norm_epsilon", 1e-5F);
        s.attention.bias = s.attention.out_bias = s.feed_forward_bias = c.boolean_or("bias", false);
        const bool grouped = c.boolean_or("new_decoder_architecture", false);
        if (grouped)
          s.attention.kv_heads = c.integer_or("num_kv_heads", s.attention.heads, 1, kMost);
        else if (c.boolean_or("multi_query", true))
          s.attention.kv_heads = 1;
        const bool two_norms = grouped && c.integer_or("num_ln_in_parallel_attn", 2, 1, 2) == 2;
        s.branches = two_norms                             ? Branches::parallel
                     : c.boolean_or("parallel_attn", true) ? Branches::one_norm
                                                           : Branches::serial;
        if (c.boolean_or("alibi", false)) {
          s.positions = Positions::alibi_scaled;
        } else {
          s.positions = Positions::rotary;
          s.attention.rotary.width = s.attention.d_qk;
          s.attention.rotary.base = c.number_or("rope_theta", 10000);
          read_rotary_scaling(c, s.context, s.attention.rotary);
        }
        s.attention.dropout = c.number_or("attention_dropout", 0);
        s.residual_dropout = c.number_or("hidden_dropout", 0);
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_sized(s, "falcon", "FalconForCausalLM", "hidden_size", "num_hidden_layers",
                                    "num_attention_heads");
        const bool multi_query = s.attention.kv_heads == 1 && s.branches != Branches::parallel;
        const bool grouped = s.branches == Branches::parallel ||
                             (s.attention.kv_heads > 1 && s.attention.kv_heads < s.attention.heads);
        c["max_position_embeddings"] = s.context;
        c["ffn_hidden_size"] = s.hidden;
        c["activation"] = config_name_of(s.activation);
        c["layer_norm_epsilon"] = decimal(s.norm_epsilon);
        c["bias"] = s.attention.bias;
        c["alibi"] = s.positions == Positions::alibi_scaled;
        c["new_decoder_architecture"] = grouped;
        c["multi_query"] = multi_query;
        c["num_kv_heads"] = s.attention.kv_heads;
        c["num_ln_in_parallel_attn"] = s.branches == Branches::parallel ? 2 : 1;
        c["parallel_attn"] = s.branches != Branches::serial;
        c["rope_theta"] = s.attention.rotary.base;
        if (OrderedJson scaling = rotary_scaling_json(s.attention.rotary); !scaling.is_null())
          c["rope_scaling"] = std::move(scaling);
        c["attention_dropout"] = decimal(s.attention.dropout);
        c["hidden_dropout"] = decimal(s.residual_dropout);
        return c;
      },
      is_decoder,
      [](const ModelSpec& s) {
        const bool two = s.branches == Branches::parallel, serial = s.branches == Branches::serial;
        return decoder_names(s, "transformer.word_embeddings.weight", "transformer.ln_f",
                             [&](WeightNames& n, int64_t l) {
                               add_block(n, s, l, fmt::format("transformer.h.{}.", l),
                                         {two ? "ln_attn" : "input_layernorm",
                                          two      ? "ln_mlp"
                                          : serial ? "post_attention_layernorm"
                                                   : "",
                                          {"self_attention.query_key_value"},
                                          "self_attention.dense",
                                          "mlp.dense_h_to_4h",
                                          "mlp.dense_4h_to_h"},
                                         s.attention.kv_heads > 1);
                             });
      },
      "transformer.",
      is_mask_or_tied,
      Activation::tanh,
      "FalconForCausalLM",
      "score"};
  return family;
}

const Family& bloom_family() {
  static const Family family = {
      "bloom",
      [](const JsonField& c) {
        // Older files have other names.
        const auto name = [&](const char* usual, const char* other) { return c.find(other) ? other : usual; };
        ModelSpec s = sized(c, name("hidden_size", "n_embed"), name("n_layer", "num_hidden_layers"),
                            name("n_head", "num_attention_heads"));
        if (c.boolean_or("apply_residual_connection_post_layernorm", false))
          s.norm_placement = NormPlacement::stream;
        s.context = c.integer_or("seq_length", 2048, 1, kMost);  // which ALiBi does not need
        s.norm_epsilon = c.number_or("layer_norm_epsilon", 1e-5F);
        s.positions = Positions::alibi;
        s.embedding_norm = true;
        s.attention.dropout = c.number_or("attention_dropout", 0);
        s.residual_dropout = c.number_or("hidden_dropout", 0);
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_sized(s, "bloom", "BloomForCausalLM", "hidden_size", "n_layer", "n_head");
        c["seq_length"] = s.context;
        c["layer_norm_epsilon"] = decimal(s.norm_epsilon);
        c["attention_dropout"] = decimal(s.attention.dropout);
        c["hidden_dropout"] = decimal(s.residual_dropout);
        if (s.norm_placement == NormPlacement::stream) c["apply_residual_connection_post_layernorm"] = true;
        return c;
      },
      is_decoder,
      [](const ModelSpec& s) {
        auto names = decoder_names(s, "transformer.word_embeddings.weight", "transformer.ln_f",
                                   [&](WeightNames& n, int64_t l) {
                                     add_block(n, s, l, fmt::format("transformer.h.{}.", l),
                                               {"input_layernorm",
                                                "post_attention_layernorm",
                                                {"self_attention.query_key_value"},
                                                "self_attention.dense",
                                                "mlp.dense_h_to_4h",
                                                "mlp.dense_4h_to_h"},
                                               true);
                                   });
        names.push_back({"embedding.norm.gamma", "transformer.word_embeddings_layernorm.weight"});
        names.push_back({"embedding.norm.beta", "transformer.word_embeddings_layernorm.bias"});
        return names;
      },
      "transformer.",
      is_mask_or_tied,
      Activation::tanh,
      "BloomForCausalLM",
      "score"};
  return family;
}

const Family& mpt_family() {
  static const Family family = {
      "mpt",
      [](const JsonField& c) {
        ModelSpec s = sized(c, "d_model", "n_layers", "n_heads");
        check(c.boolean_or("no_bias", true), "{}: no_bias: only true is supported", c.place());
        s.context = c["max_seq_len"].integer(1, kMost);
        s.hidden = 4 * s.width;  // whatever expansion_ratio says: the published code does not read it
        s.activation = Activation::gelu;
        s.norm_epsilon = c.number_or("layer_norm_epsilon", 1e-5F);
        s.normalization = Normalization::layer_scale;
        s.attention.bias = s.attention.out_bias = s.feed_forward_bias = false;
        s.positions = Positions::alibi_evens_first;
        if (const auto attention = c.find("attn_config")) {
          check(attention->boolean_or("alibi", true), "{}: alibi: only true is supported",
                attention->place());
          check(!attention->boolean_or("qk_ln", false), "{}: qk_ln: only false is supported",
                attention->place());
          s.attention.clip = attention->number_or("clip_qkv", 0);
          check(attention->integer_or("alibi_bias_max", 8, 0, kMost) == 8,
                "{}: alibi_bias_max: only 8 is supported", attention->place());
          s.attention.scale = attention->number_or("softmax_scale", 0);
          s.attention.dropout = attention->number_or("attn_pdrop", 0);
        }
        s.embedding_dropout = c.number_or("emb_pdrop", 0);
        s.residual_dropout = c.number_or("resid_pdrop", 0);
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_sized(s, "mpt", "MptForCausalLM", "d_model", "n_layers", "n_heads");
        c["max_seq_len"] = s.context;
        c["expansion_ratio"] = 4;
        c["layer_norm_epsilon"] = decimal(s.norm_epsilon);
        c["no_bias"] = true;
        c["attn_config"] = {{"alibi", true}, {"attn_pdrop", decimal(s.attention.dropout)}};
        if (s.attention.scale > 0) c["attn_config"]["softmax_scale"] = decimal(s.attention.scale);
        if (s.attention.clip > 0) c["attn_config"]["clip_qkv"] = decimal(s.attention.clip);
        c["emb_pdrop"] = decimal(s.embedding_dropout);
        c["resid_pdrop"] = decimal(s.residual_dropout);
        return c;
      },
      is_decoder,
      [](const ModelSpec& s) {
        return decoder_names(
            s, "transformer.wte.weight", "transformer.norm_f", [&](WeightNames& n, int64_t l) {
              add_block(n, s, l, fmt::format("transformer.blocks.{}.", l),
                        {"norm_1", "norm_2", {"attn.Wqkv"}, "attn.out_proj", "ffn.up_proj", "ffn.down_proj"});
            });
      },
      "transformer.",
      is_mask_or_tied,
      Activation::tanh,
      "MptForCausalLM",
      "score"};
  return family;
}

const Family& gpt_neo_family() {
  static const Family family = {
      "gpt_neo",
      [](const JsonField& c) {
        ModelSpec s = sized(c, "hidden_size", "num_layers", "num_heads");
        s.context = c["max_position_embeddings"].integer(1, kMost);
        s.hidden = c.integer_or("intermediate_size", 4 * s.width, 0, kMost);
        s.activation = read_activation(c, "activation_function", "gelu_new");
        s.norm_epsilon = c.number_or("layer_norm_epsilon", 1e-5F);
        s.attention.bias = s.attention.scaled = false;
        // [[[kind, ...], times], ...]
        const JsonField types = c["attention_types"];
        const int64_t window = c.integer_or("window_size", 256, 1, kMost);
        for (size_t i = 0; i < types.size(); ++i)
          for (int64_t k = 0; k < types.at(i).at(1).integer(0, 4096); ++k)
            for (size_t j = 0; j < types.at(i).at(0).size(); ++j) {
              const std::string& kind = types.at(i).at(0).at(j).string();
              check(kind == "global" || kind == "local", "{}: expected global or local, got '{}'",
                    types.place(), kind);
              s.attention.patterns.push_back({.window = kind == "local" ? window : 0});
            }
        check(std::ssize(s.attention.patterns) == s.layers, "{}: {} kinds for {} layers", types.place(),
              s.attention.patterns.size(), s.layers);
        s.attention.dropout = c.number_or("attention_dropout", 0);
        s.embedding_dropout = c.number_or("embed_dropout", 0);
        s.residual_dropout = c.number_or("resid_dropout", 0);
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c =
            write_sized(s, "gpt_neo", "GPTNeoForCausalLM", "hidden_size", "num_layers", "num_heads");
        c["max_position_embeddings"] = s.context;
        c["intermediate_size"] = s.hidden;
        c["activation_function"] = config_name_of(s.activation);
        c["layer_norm_epsilon"] = decimal(s.norm_epsilon);
        c["attention_types"] = OrderedJson::array();
        c["attention_layers"] = OrderedJson::array();
        for (const Pattern& p : s.attention.patterns) {
          const int64_t w = p.window;
          const char* kind = w > 0 ? "local" : "global";
          if (w > 0) c["window_size"] = w;
          c["attention_layers"].push_back(kind);
          c["attention_types"].push_back({OrderedJson::array({kind}), 1});
        }
        c["attention_dropout"] = decimal(s.attention.dropout);
        c["embed_dropout"] = decimal(s.embedding_dropout);
        c["resid_dropout"] = decimal(s.residual_dropout);
        return c;
      },
      is_decoder,
      [](const ModelSpec& s) {
        auto names =
            decoder_names(s, "transformer.wte.weight", "transformer.ln_f", [&](WeightNames& n, int64_t l) {
              add_block(n, s, l, fmt::format("transformer.h.{}.", l),
                        {"ln_1",
                         "ln_2",
                         {"attn.attention.q_proj", "attn.attention.k_proj", "attn.attention.v_proj"},
                         "attn.attention.out_proj",
                         "mlp.c_fc",
                         "mlp.c_proj"});
            });
        names.push_back({"embedding.position", "transformer.wpe.weight"});
        return names;
      },
      "transformer.",
      is_mask_or_tied,
      Activation::tanh,
      "GPTNeoForCausalLM",
      "score"};
  return family;
}

const Family& gpt_bigcode_family() {
  static const Family family = {
      "gpt_bigcode",
      [](const JsonField& c) {
        ModelSpec s = sized(c, "n_embd", "n_layer", "n_head");
        s.context = c["n_positions"].integer(1, kMost);
        s.hidden = c.integer_or("n_inner", 4 * s.width, 0, kMost);
        s.activation = read_activation(c, "activation_function", "gelu_pytorch_tanh");
        s.norm_epsilon = c.number_or("layer_norm_epsilon", 1e-5F);
        s.attention.scaled = c.boolean_or("scale_attn_weights", true);
        if (c.boolean_or("multi_query", true)) s.attention.kv_heads = 1;
        s.attention.dropout = c.number_or("attn_pdrop", 0.1F);
        s.embedding_dropout = c.number_or("embd_pdrop", 0.1F);
        s.residual_dropout = c.number_or("resid_pdrop", 0.1F);
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_sized(s, "gpt_bigcode", "GPTBigCodeForCausalLM", "n_embd", "n_layer", "n_head");
        c["n_positions"] = s.context;
        c["n_inner"] = s.hidden;
        c["activation_function"] =
            s.activation == Activation::gelu_tanh ? "gelu_pytorch_tanh" : config_name_of(s.activation);
        c["layer_norm_epsilon"] = decimal(s.norm_epsilon);
        c["scale_attn_weights"] = s.attention.scaled;
        c["multi_query"] = s.attention.kv_heads == 1;
        c["attn_pdrop"] = decimal(s.attention.dropout);
        c["embd_pdrop"] = decimal(s.embedding_dropout);
        c["resid_pdrop"] = decimal(s.residual_dropout);
        return c;
      },
      is_decoder,
      [](const ModelSpec& s) {
        auto names =
            decoder_names(s, "transformer.wte.weight", "transformer.ln_f", [&](WeightNames& n, int64_t l) {
              add_block(n, s, l, fmt::format("transformer.h.{}.", l),
                        {"ln_1", "ln_2", {"attn.c_attn"}, "attn.c_proj", "mlp.c_fc", "mlp.c_proj"},
                        s.attention.kv_heads > 1);
            });
        names.push_back({"embedding.position", "transformer.wpe.weight"});
        return names;
      },
      "transformer.",
      is_mask_or_tied,
      Activation::tanh,
      "GPTBigCodeForCausalLM",
      "score"};
  return family;
}

const Family& opt_family() {
  constexpr int64_t kUnused = 2;  // positions count from 2
  static const Family family = {
      "opt",
      [](const JsonField& c) {
        ModelSpec s = sized(c, "hidden_size", "num_hidden_layers", "num_attention_heads");
        s.context = c["max_position_embeddings"].integer(1, kMost);
        s.hidden = c["ffn_dim"].integer(0, kMost);
        s.activation = read_activation(c, "activation_function", "relu");
        s.norm_placement =
            c.boolean_or("do_layer_norm_before", true) ? NormPlacement::pre : NormPlacement::post;
        s.final_norm =
            s.norm_placement == NormPlacement::post || !c.boolean_or("_remove_final_layer_norm", false);
        s.attention.bias = s.attention.out_bias = s.feed_forward_bias = c.boolean_or("enable_bias", true);
        s.normalization = c.boolean_or("layer_norm_elementwise_affine", true) ? Normalization::layer
                                                                              : Normalization::layer_plain;
        if (const int64_t e = c.integer_or("word_embed_proj_dim", s.width, 1, kMost); e != s.width)
          s.embedding_width = e;
        s.attention.dropout = c.number_or("attention_dropout", 0);
        s.residual_dropout = c.number_or("dropout", 0.1F);
        s.init_std = c.number_or("init_std", 0.02F);
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_sized(s, "opt", "OPTForCausalLM", "hidden_size", "num_hidden_layers",
                                    "num_attention_heads");
        c["max_position_embeddings"] = s.context;
        c["ffn_dim"] = s.hidden;
        c["activation_function"] = config_name_of(s.activation);
        c["do_layer_norm_before"] = s.norm_placement == NormPlacement::pre;
        if (!s.final_norm) c["_remove_final_layer_norm"] = true;
        c["enable_bias"] = s.attention.bias;
        c["layer_norm_elementwise_affine"] = s.normalization == Normalization::layer;
        c["word_embed_proj_dim"] = s.embedding_width > 0 ? s.embedding_width : s.width;
        c["attention_dropout"] = decimal(s.attention.dropout);
        c["dropout"] = decimal(s.residual_dropout);
        c["init_std"] = decimal(s.init_std);
        return c;
      },
      is_decoder,
      [](const ModelSpec& s) {
        WeightNames n;
        const std::string d = "model.decoder.";
        n.tensor("embedding.token", d + "embed_tokens.weight");
        n.all.push_back({"embedding.position", d + "embed_positions.weight", false, 0, 0, kUnused});
        for (int64_t l = 0; l < s.layers; ++l)
          add_block(n, s, l, fmt::format("{}layers.{}.", d, l),
                    {"self_attn_layer_norm",
                     "final_layer_norm",
                     {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
                     "self_attn.out_proj",
                     "fc1",
                     "fc2"});
        if (s.ends_with_norm()) add_norm(n, s, "decoder.norm", d + "final_layer_norm");
        if (s.embedding_width > 0) {
          n.tensor("embedding.projection.weight", d + "project_in.weight");
          n.tensor("unembedding.projection.weight", d + "project_out.weight");
        }
        if (!s.tied) n.tensor("unembedding.weight", "lm_head.weight");
        return n.all;
      },
      "model.",
      [](const ModelSpec& s, const std::string& name) { return s.tied && name == "lm_head.weight"; },
      Activation::tanh,
      "OPTForCausalLM",
      "score"};
  return family;
}

const Family& ctrl_family() {
  static const Family family = {
      "ctrl",
      [](const JsonField& c) {
        ModelSpec s = sized(c, "n_embd", "n_layer", "n_head");
        s.context = c["n_positions"].integer(1, kMost);
        s.hidden = c["dff"].integer(0, kMost);
        s.activation = Activation::relu;
        s.norm_epsilon = 1e-6F;  // of the blocks, whatever is said of the last norm's
        check(c.number_or("layer_norm_epsilon", 1e-6F) == s.norm_epsilon,
              "{}: layer_norm_epsilon: only 1e-06 is supported, which the blocks have", c.place());
        s.positions = Positions::sinusoidal_halves;
        s.embedding_scaled = s.unembedding_bias = true;
        s.embedding_dropout = c.number_or("embd_pdrop", 0.1F);
        s.residual_dropout = c.number_or("resid_pdrop", 0.1F);
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_sized(s, "ctrl", "CTRLLMHeadModel", "n_embd", "n_layer", "n_head");
        c["n_positions"] = s.context;
        c["dff"] = s.hidden;
        c["layer_norm_epsilon"] = decimal(s.norm_epsilon);
        c["embd_pdrop"] = decimal(s.embedding_dropout);
        c["resid_pdrop"] = decimal(s.residual_dropout);
        return c;
      },
      is_decoder,
      [](const ModelSpec& s) {
        auto names =
            decoder_names(s, "transformer.w.weight", "transformer.layernorm", [&](WeightNames& n, int64_t l) {
              add_block(n, s, l, fmt::format("transformer.h.{}.", l),
                        {"layernorm1",
                         "layernorm2",
                         {"multi_head_attention.Wq", "multi_head_attention.Wk", "multi_head_attention.Wv"},
                         "multi_head_attention.dense",
                         "ffn.0",
                         "ffn.2"});
            });
        names.push_back({"unembedding.bias", "lm_head.bias"});
        return names;
      },
      "transformer.",
      is_mask_or_tied,
      Activation::tanh,
      "CTRLLMHeadModel",
      "classifier"};
  return family;
}

const Family& xglm_family() {
  static const Family family = {
      "xglm",
      [](const JsonField& c) {
        // The table's row of that number is 0, and positions begin at row 2.
        check(c.integer_or("pad_token_id", 1, 0, kMost) <= 1,
              "{}: pad_token_id: only 0 and 1 are supported, which no position has", c.place());
        ModelSpec s = sized(c, "d_model", "num_layers", "attention_heads");
        s.context = c["max_position_embeddings"].integer(1, kMost);
        s.hidden = c["ffn_dim"].integer(0, kMost);
        s.activation = read_activation(c, "activation_function", "gelu");
        s.positions = Positions::sinusoidal_closed;
        s.embedding_scaled = c.boolean_or("scale_embedding", true);
        s.attention.dropout = c.number_or("attention_dropout", 0.1F);
        s.embedding_dropout = s.residual_dropout = c.number_or("dropout", 0.1F);
        s.init_std = c.number_or("init_std", 0.02F);
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_sized(s, "xglm", "XGLMForCausalLM", "d_model", "num_layers", "attention_heads");
        c.erase("initializer_range");
        c["init_std"] = decimal(s.init_std);
        c["max_position_embeddings"] = s.context;
        c["ffn_dim"] = s.hidden;
        c["activation_function"] = config_name_of(s.activation);
        c["scale_embedding"] = s.embedding_scaled;
        c["pad_token_id"] = 1;
        c["attention_dropout"] = decimal(s.attention.dropout);
        c["dropout"] = decimal(s.residual_dropout);
        return c;
      },
      is_decoder,
      [](const ModelSpec& s) {
        return decoder_names(s, "model.embed_tokens.weight", "model.layer_norm",
                             [&](WeightNames& n, int64_t l) {
                               add_block(n, s, l, fmt::format("model.layers.{}.", l),
                                         {"self_attn_layer_norm",
                                          "final_layer_norm",
                                          {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
                                          "self_attn.out_proj",
                                          "fc1",
                                          "fc2"});
                             });
      },
      "model.",
      [](const ModelSpec& s, const std::string& name) {
        return name == "model.embed_positions.weights" || (s.tied && name == "lm_head.weight");
      },
      Activation::tanh,
      "XGLMForCausalLM",
      ""};
  return family;
}

}  // namespace qkv
