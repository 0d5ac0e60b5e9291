// GPT-Neo: Hugging Face's GPTNeoForCausalLM.

#include "qkv/base/json_value.h"
#include "qkv/io/family/gpt_parts.h"

namespace qkv {
namespace {

constexpr SizeKeys kGptNeoSizes = {"hidden_size", "num_layers", "num_heads"};
constexpr DropoutKeys kGptNeoDropouts = {"attention_dropout", "embed_dropout", "resid_dropout"};

// "attention_types": [[[kind, ...], times], ...]
std::vector<Pattern> read_patterns(const JsonField& c, int64_t layers) {
  const JsonField types = c["attention_types"];
  const int64_t window = c.integer_or("window_size", 256, 1, kMost);
  std::vector<Pattern> patterns;
  for (size_t i = 0; i < types.size(); ++i)
    for (int64_t k = 0; k < types.at(i).at(1).integer(0, 4096); ++k)
      for (size_t j = 0; j < types.at(i).at(0).size(); ++j) {
        const std::string& kind = types.at(i).at(0).at(j).string();
        check(kind == "global" || kind == "local", "{}: expected global or local, got '{}'", types.place(),
              kind);
        patterns.push_back({.window = kind == "local" ? window : 0});
      }
  check(std::ssize(patterns) == layers, "{}: {} kinds for {} layers", types.place(), patterns.size(), layers);
  return patterns;
}

ModelSpec read_gpt_neo(const JsonField& c) {
  ModelSpec s = read_gpt_like(c, kGptNeoSizes);
  s.context = c["max_position_embeddings"].integer(1, kMost);
  s.hidden = c.integer_or("intermediate_size", 4 * s.width, 0, kMost);
  s.activation = read_activation(c, "activation_function", "gelu_new");
  s.norm_epsilon = c.number_or("layer_norm_epsilon", 1e-5F);
  s.attention.bias = s.attention.scaled = false;
  s.attention.patterns = read_patterns(c, s.layers);
  read_dropouts(c, kGptNeoDropouts, 0, s);
  return s;
}

OrderedJson write_gpt_neo(const ModelSpec& s) {
  OrderedJson c = write_gpt_like(s, "gpt_neo", "GPTNeoForCausalLM", kGptNeoSizes);
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
  write_dropouts(s, kGptNeoDropouts, c);
  return c;
}

std::vector<WeightName> gpt_neo_weights(const ModelSpec& s) {
  WeightNames n = weights_named_as_gpt(
      s, {.block = {"ln_1",
                    "ln_2",
                    {"attn.attention.q_proj", "attn.attention.k_proj", "attn.attention.v_proj"},
                    "attn.attention.out_proj",
                    "mlp.c_fc",
                    "mlp.c_proj"}});
  n.tensor("embedding.position", "transformer.wpe.weight");
  return n.all;
}

}  // namespace

const Family& gpt_neo_family() {
  static const Family family =
      gpt_like("gpt_neo", "GPTNeoForCausalLM", read_gpt_neo, write_gpt_neo, gpt_neo_weights);
  return family;
}

}  // namespace qkv
