// Low-rank adapters of frozen linear layers (Hu et al. 2022, LoRA).
#pragma once

#include <string>
#include <vector>

#include "qkv/nn/context.h"
#include "qkv/nn/parameter.h"

namespace qkv {

// The adapters of one linear layer.
class Adapters {
 public:
  // Adds "NAME.lora.ROW.a" and ".b" for each of parameters.adapters() that names `weight` [out, in], ROW
  // being its first row. A is drawn with the variance of PyTorch's Linear layers and B is 0, so at first
  // nothing changes. Throws Error if the rank or the rows do not fit the weight.
  Adapters(Parameters& parameters, const std::string& weight, int64_t in, int64_t out);

  bool any() const { return !all_.empty(); }
  // y [N, out] = W x + b, which nobody else reads, and x [N, in] -> y with the adapters' outputs added.
  Tensor add(Tensor y, const Tensor& x, const Context& context) const;

  // The names of an adapter's two parameters.
  static std::string name_of_a(const AdapterSpec& spec);
  static std::string name_of_b(const AdapterSpec& spec);
  // True if the parameter belongs to an adapter.
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
