#include "qkv/models/spec.h"

namespace qkv {

ModelSpec gpt2_spec(int64_t vocab_size, int64_t context, int64_t width, int64_t layers, int64_t heads) {
  check(heads > 0, "model: heads must be positive, got {}", heads);
  ModelSpec s;
  s.vocab_size = vocab_size;
  s.context = context;
  s.width = width;
  s.layers = layers;
  s.attention.heads = s.attention.kv_heads = heads;
  s.attention.d_qk = s.attention.d_vo = width / heads;
  s.hidden = 4 * width;
  check(width % heads == 0, "model: width {} is not divisible by {} heads", width, heads);
  return s;
}

void check_spec(const ModelSpec& s) {
  const auto positive = [](const char* field, int64_t n, int64_t most) {
    check(n > 0 && n <= most, "model: {} must be between 1 and {}, got {}", field, most, n);
  };
  positive("vocab_size", s.vocab_size, int64_t{1} << 28);
  positive("context", s.context, int64_t{1} << 28);
  positive("width", s.width, int64_t{1} << 20);
  positive("layers", s.layers, 4096);
  positive("hidden", s.hidden, int64_t{1} << 24);
  positive("heads", s.attention.heads, 4096);
  positive("kv_heads", s.attention.kv_heads, 4096);
  positive("d_qk", s.attention.d_qk, 576);
  positive("d_vo", s.attention.d_vo, 576);
  check(s.attention.heads % s.attention.kv_heads == 0, "model: {} heads are not divisible by {} kv_heads",
        s.attention.heads, s.attention.kv_heads);
  const auto probability = [](const char* field, float p) {
    check(p >= 0 && p < 1, "model: {} must be in [0, 1), got {}", field, p);
  };
  probability("attention dropout", s.attention.dropout);
  probability("embedding dropout", s.embedding_dropout);
  probability("residual dropout", s.residual_dropout);
  check(s.norm_epsilon >= 0 && s.norm_epsilon < 1, "model: norm_epsilon must be in [0, 1), got {}",
        s.norm_epsilon);
  check(s.init_std >= 0 && s.init_std < 100, "model: init_std must be in [0, 100), got {}", s.init_std);
}

Activation activation_from_name(const std::string& name) {
  if (name == "relu") return Activation::relu;
  if (name == "gelu") return Activation::gelu;
  if (name == "gelu_tanh") return Activation::gelu_tanh;
  fail("activation: expected relu, gelu or gelu_tanh, got '{}'", name);
}

std::string name_of(Activation activation) {
  switch (activation) {
    case Activation::relu:
      return "relu";
    case Activation::gelu:
      return "gelu";
    case Activation::gelu_tanh:
      return "gelu_tanh";
  }
  return "?";
}

}  // namespace qkv
