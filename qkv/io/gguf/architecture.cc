#include "qkv/io/gguf/architecture.h"

#include <algorithm>

namespace qkv {
namespace {

// The first architecture for which `is` is true.
template <typename Predicate>
const GgufArchitecture* find(const Predicate& is) {
  for (const auto* table :
       {&gguf_architectures_llama(), &gguf_architectures_gemma(), &gguf_architectures_phi(),
        &gguf_architectures_gpt(), &gguf_architectures_experts(), &gguf_architectures_encoder()})
    for (const GgufArchitecture& a : *table)
      if (is(a)) return &a;
  return nullptr;
}

}  // namespace

const GgufArchitecture* find_gguf_architecture(std::string_view name) {
  return find([&](const GgufArchitecture& a) { return a.name == name; });
}

const GgufArchitecture* gguf_architecture_of(std::string_view model_type) {
  return find([&](const GgufArchitecture& a) {
    return std::find(a.types.begin(), a.types.end(), model_type) != a.types.end();
  });
}

std::vector<std::string_view> gguf_architectures() {
  std::vector<std::string_view> names;
  find([&](const GgufArchitecture& a) {
    names.push_back(a.name);
    return false;
  });
  return names;
}

}  // namespace qkv
