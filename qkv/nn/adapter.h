// Low-rank adapters of frozen linear layers (Hu et al. 2022, LoRA).
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "qkv/nn/context.h"
#include "qkv/nn/parameter.h"

namespace qkv {

// An adapter apart from a model, for sequences that have it beside others that do not. Its products have the
// bits that they have in a model with this adapter.
class AdapterWeights {
 public:
  // W x becomes W x + scale B A x, in rows of W from first_row on: A [rank, in], B [rows, rank].
  struct Part {
    int64_t first_row = 0;
    Tensor a, b;
    float scale = 1;
  };
  void add(const std::string& weight, Part part) { parts_[weight].push_back(std::move(part)); }
  // The parts for a model's weight of this name.
  std::span<const Part> of(std::string_view weight) const {
    const auto it = parts_.find(weight);
    return it == parts_.end() ? std::span<const Part>() : std::span<const Part>(it->second);
  }

 private:
  std::map<std::string, std::vector<Part>, std::less<>> parts_;
};

// y [N, out] = W x + b, which nobody else reads, and x [N, in] -> y with the outputs of `adapters`, each for
// the rows of its sequence in `layout`; null: none. `weight`: the name of W.
Tensor add_adapters_of_sequences(Tensor y, const Tensor& x, std::string_view weight,
                                 std::span<const AdapterWeights* const> adapters, const Layout& layout);

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
