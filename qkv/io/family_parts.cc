#include "qkv/io/family_parts.h"

namespace qkv {

Activation read_activation(const JsonField& config, const char* key, const char* otherwise) {
  const auto name = config.string_or(key, otherwise);
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return Activation::gelu_tanh;
  if (name == "gelu") return Activation::gelu;
  if (name == "relu") return Activation::relu;
  if (name == "silu" || name == "swish") return Activation::silu;
  if (name == "tanh") return Activation::tanh;
  fail("{}: {}: '{}' is not supported (gelu, gelu_new, gelu_pytorch_tanh, relu, silu, tanh are)",
       config.place(), key, name);
}

const char* config_name_of(Activation activation) {
  switch (activation) {
    case Activation::relu:
      return "relu";
    case Activation::gelu:
      return "gelu";
    case Activation::gelu_tanh:
      return "gelu_new";
    case Activation::silu:
      return "silu";
    case Activation::tanh:
      return "tanh";
  }
  return "?";
}

void WeightNames::norm(const std::string& engine, const std::string& file) {
  all.push_back({engine + ".gamma", file + ".weight", false, 0, 0, 0, file + ".gamma"});
  if (bias) all.push_back({engine + ".beta", file + ".bias", false, 0, 0, 0, file + ".beta"});
}

void WeightNames::parts(const std::string& engine, const std::vector<std::string>& files,
                        const std::vector<int64_t>& rows) {
  for (const std::string kind : {".weight", ".bias"}) {
    if (kind == ".bias" && !bias) continue;
    int64_t first = 0;
    for (size_t i = 0; i < files.size(); ++i) {
      all.push_back({engine + kind, files[i] + kind, false, first, rows[i]});
      first += rows[i];
    }
  }
}

}  // namespace qkv
