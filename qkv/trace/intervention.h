// Changes the named values of a forward pass: zeros, means, the values of another pass, additions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "qkv/trace/trace.h"

namespace qkv {

// One change to a value [N, D], or to a head's scores or probabilities [queries, keys], in some rows and
// columns. Changed numbers are constants: no gradient passes through what they replace.
struct Change {
  // zero: nothing is left. mean: the mean of the value's rows. set: the rows of `with`. add: the value and
  // these rows.
  enum class Kind : uint8_t { zero, mean, set, add };

  std::string name;  // the value's (docs/notation.md)
  Kind kind = Kind::zero;
  std::vector<int64_t> rows = {};   // all different; empty: all
  int64_t column = 0, columns = 0;  // the first, and how many; 0: all
  Tensor with = {};                 // f32 [N, D], or [1, D] for every row
  int64_t head = -1;                // the head, where the value is of heads; -1: all
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
  // Throws Error naming a change whose value no pass has had yet.
  void expect_made() const;

 private:
  std::vector<Change> changes_;
  std::vector<std::string> seen_;
  Probe* observer_;
};

// The change of a part of a model with layers from 0: "head:L.H", "neuron:L.N", "attention:L",
// "cross_attention:L", "feed_forward:L", "block:L" (all of them) or "position:T" (the input at a token).
// Parts of an encoder-decoder's encoder begin with "encoder:". Throws Error naming what is wrong.
std::vector<Change> changes_of_part(const ModelSpec& spec, const std::string& part);

// A model's logits from its hidden rows, f32: of tokens [N, V], or of classes [N, C] or [S, C]. Throws Error
// if it has neither.
Tensor logits_of(const Transformer& model, const Tensor& hidden, const ModelInput& input);
// Runs a model with changes, without gradients: its logits. Throws Error if it has no value of a change's
// name.
Tensor logits_with(const Transformer& model, const ModelInput& input, std::vector<Change> changes);

// A number that a model says: a logit, or by how much it exceeds another.
struct Question {
  int64_t row = 0;       // a row of the logits
  int64_t column = 0;    // the token or class
  int64_t instead = -1;  // the other token or class; -1: none
};
// The answer in these logits.
double answer_in(const Tensor& logits, const Question& question);

}  // namespace qkv
