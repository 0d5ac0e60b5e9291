// Changes the named values of a forward pass: zeros, means, the values of another pass, additions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "qkv/trace/trace.h"

namespace qkv {

// One change to a value [N, D], in some rows and columns.
struct Change {
  // zero: nothing is left. mean: the mean of the value's rows. set, add: the rows of `with`.
  enum class Kind : uint8_t { zero, mean, set, add };

  std::string name;  // the value's (docs/notation.md)
  Kind kind = Kind::zero;
  std::vector<int64_t> rows = {};   // empty: all
  int64_t column = 0, columns = 0;  // the first, and how many; 0: all
  Tensor with = {};                 // f32 [N, D], or [1, D] for every row
};

// A probe that makes changes, each where its value is computed, and lets another probe see what is left.
class Intervention : public Probe {
 public:
  // `observer`: null, or a probe that outlives this.
  explicit Intervention(std::vector<Change> changes, Probe* observer = nullptr)
      : changes_(std::move(changes)), observer_(observer) {}
  bool wants(std::string_view name) const override;
  // Throws Error where a change does not fit its value.
  void visit(std::string_view name, Tensor& value) override;
  void visit_head(std::string_view name, int64_t sequence, int64_t head, Tensor& value) override;
  // The changes whose value no pass has had yet.
  std::vector<std::string> unmade() const;

 private:
  std::vector<Change> changes_;
  std::vector<std::string> seen_;
  Probe* observer_;
};

// The change of a part of a model with layers from 0: "head:L.H", "neuron:L.N", "attention:L",
// "cross_attention:L", "feed_forward:L", "block:L" (all of them) or "position:T" (the input at a token).
// Parts of an encoder-decoder's encoder begin with "encoder:". Throws Error naming what is wrong.
std::vector<Change> changes_of_part(const ModelSpec& spec, const std::string& part);

// Runs a model with changes, without gradients: the logits [N, V] behind its last stack.
Tensor logits_with(const Transformer& model, const ModelInput& input, std::vector<Change> changes);

}  // namespace qkv
