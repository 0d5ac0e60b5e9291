// Records the named values of a forward pass. docs/notation.md relates the names to the paper's symbols.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "qkv/models/transformer.h"

namespace qkv {

// The scores or probabilities of one head in one sequence: f32 [queries, keys].
struct HeadValue {
  int64_t sequence, head;
  Tensor value;
};

// A copy of a value's numbers, without its place in the graph: f32.
Tensor f32_copy(const Tensor& value);

// One named value of a pass.
struct TracedValue {
  std::string name;
  Tensor rows = {};                   // f32 [N, D]; undefined: the values of heads
  std::vector<HeadValue> heads = {};  // by sequence, then by head

  // The heads' values in a pass of one sequence: f32 [heads, queries, keys].
  Tensor of_heads() const;
};

// True if a name fits a pattern, in which * stands for any characters.
bool fits_pattern(std::string_view name, std::string_view pattern);
bool fits_any(std::string_view name, const std::vector<std::string>& patterns);

// A probe that copies values whose names fit one of some patterns, in the order of the pass.
class Trace : public Probe {
 public:
  explicit Trace(std::vector<std::string> patterns = {"*"}) : patterns_(std::move(patterns)) {}
  bool wants(std::string_view name) const override;
  void visit(std::string_view name, Tensor& value) override;
  void visit_head(std::string_view name, int64_t sequence, int64_t head, Tensor& value) override;
  // Records a value that no layer has: `logits` and the like.
  void add(std::string_view name, const Tensor& value);

  const std::vector<TracedValue>& values() const { return values_; }
  // Null if there is no such value.
  const TracedValue* find(std::string_view name) const;
  // Throws Error if there is no such value.
  const TracedValue& at(std::string_view name) const;

 private:
  std::vector<std::string> patterns_;
  std::vector<TracedValue> values_;
};

// A probe that hands the values of some patterns ("*.queries,logits") to a function and keeps none: for more
// texts than fit in memory. The function gets a copy, f32 [N, D] with head -1, or [queries, keys] of a head,
// and the model goes on with what it leaves there.
class ValueStream : public Probe {
 public:
  using Function =
      std::function<void(const std::string& name, int64_t sequence, int64_t head, Tensor& value)>;

  ValueStream(std::string_view patterns, Function f);
  bool wants(std::string_view name) const override;
  void visit(std::string_view name, Tensor& value) override;
  void visit_head(std::string_view name, int64_t sequence, int64_t head, Tensor& value) override;

 private:
  std::vector<std::string> patterns_;
  Function f_;
};

// Runs a model on an input, without gradients, and records what it computes, up to its head:
// `head` [N, d_f], where the unembedding reads other rows than the hidden ones, `logits` [N, V] and
// `probabilities` [N, V] of tokens, `pooled` [S, D] and `classes` [S, C] of sequences, `classes` [N, C] of
// tokens and spans. Returns the hidden rows [N, D].
Tensor run_traced(const Transformer& model, const ModelInput& input, Trace& trace);

}  // namespace qkv
