// Low-rank changes of products that stay as they are (Hu et al. 2022, LoRA).
#pragma once

#include <string>
#include <vector>

#include "qkv/nn/context.h"
#include "qkv/nn/parameter.h"

namespace qkv {

// Those of one product.
class Adapters {
 public:
  // Adds "NAME.lora.ROW.a" and ".b" for each of parameters.adapters() that names `weight` [out, in], ROW
  // being its first. A is drawn as Linear layers of PyTorch are, B is 0: at first nothing changes. Throws
  // Error where rows are not the weight's.
  Adapters(Parameters& parameters, const std::string& weight, int64_t in, int64_t out);

  bool any() const { return !all_.empty(); }
  // y [N, out] = W x + b, made of x [N, in] and read by nobody else -> y with the changes added.
  Tensor add(Tensor y, const Tensor& x, const Context& context) const;

  // The names of those two parameters.
  static std::string name_of_a(const AdapterSpec& spec);
  static std::string name_of_b(const AdapterSpec& spec);
  // Whether a parameter is one.
  static bool is_adapter(const std::string& name) { return name.find(".lora.") != std::string::npos; }

 private:
  struct One {
    AdapterSpec spec;
    Parameter *a, *b;
    uint32_t site;
  };
  std::vector<One> all_;
};

}  // namespace qkv
