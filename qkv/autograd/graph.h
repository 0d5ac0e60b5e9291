// Reverse-mode differentiation: the mechanism only. Each op's gradient is defined in ops/, below the op.
//
// A forward op creates one Node, which saves what its gradient needs, and gives each output an edge to it.
// backward() visits the nodes from the newest to the oldest. It frees each node, with what it saved, on the
// way.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "qkv/tensor/tensor.h"

namespace qkv {

class Node;

// The origin of a tensor: output `slot` of `node`.
struct GraphEdge {
  std::shared_ptr<Node> node;
  int slot = 0;
};

// A tensor and the gradient of the root with respect to it.
using Seed = std::pair<Tensor, Tensor>;

// The record of one op for the backward pass: the origins of its inputs, and the rule for their gradients.
class Node {
 public:
  virtual ~Node() = default;
  virtual std::string_view name() const = 0;
  // grads[slot] is the gradient of output `slot`; undefined if none arrived. Passes the inputs' gradients
  // on with give(), weight_grad() or product_grad().
  virtual void backward(std::span<Tensor> grads) = 0;

  // Declares the next input and returns its index. Inputs without an edge need no gradient.
  int add_input(const Tensor& x);
  bool wants(int input) const { return inputs_[input].node != nullptr; }
  int64_t id() const { return id_; }

 protected:
  Node();
  // Adds `grad` to the gradient of an input.
  void give(int input, Tensor grad);
  // For weights: calls write(target, accumulate) with an f32 tensor of this shape. The target of a Leaf is
  // its own gradient, so that a product can add to it in place.
  void weight_grad(int input, Shape shape, const std::function<void(Tensor& target, bool accumulate)>& write);
  // For gradients that a matrix product computes: calls write(target, accumulate). The target is the
  // gradient that another user of the input gave before, if it has this type and nobody else uses it.
  // Otherwise it is a new tensor.
  void product_grad(int input, Shape shape, DType type,
                    const std::function<void(Tensor& target, bool accumulate)>& write);

 private:
  friend void backward(std::span<const Seed>);
  std::vector<GraphEdge> inputs_;
  std::vector<Tensor> grads_;  // gradients of the outputs, until the backward pass comes here
  int64_t id_;
};

// A parameter. Its gradient adds up over backward passes until `fresh` is set again. Gradients that ops
// give in bf16 are converted to f32; ops that use weight_grad() round nothing.
class Leaf : public Node {
 public:
  explicit Leaf(Tensor grad) : grad(std::move(grad)) {}
  std::string_view name() const override { return "leaf"; }
  void backward(std::span<Tensor> grads) override;

  Tensor grad;        // f32
  bool fresh = true;  // nothing written yet: the first write overwrites
};

// Makes `x` a leaf; the returned node holds its gradient.
std::shared_ptr<Leaf> make_leaf(Tensor& x, Tensor grad);

// Marks x as output `slot` of `node`.
void connect(Tensor& x, std::shared_ptr<Node> node, int slot = 0);

// True while ops record. wants_grad() also requires that one of these tensors needs a gradient.
bool recording();
// True while ops neither record nor belong to a pass that does: its gradient, or what it computes again.
bool inferring();
bool wants_grad(std::initializer_list<const Tensor*> tensors);

// While one of these exists, the ops of its thread do not record.
class NoGrad {
 public:
  NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  bool before_;
};

// While one of these exists, ops that do not record belong to training: a backward pass, the first run of a
// part that runs again, or losses of a validation. Rows of their results may then share sums, as faster
// kernels do.
class PartOfTraining {
 public:
  PartOfTraining();
  ~PartOfTraining();
  PartOfTraining(const PartOfTraining&) = delete;
  PartOfTraining& operator=(const PartOfTraining&) = delete;

 private:
  bool before_;
};

// Returns x. The backward pass calls seen(gradient of the root with respect to x), if any arrives, whether or
// not x depends on a leaf.
Tensor watch(const Tensor& x, std::function<void(const Tensor& gradient)> seen);

// Computes the gradient of a scalar with respect to every leaf that it depends on. With seeds, the backward
// pass starts from their gradients.
void backward(const Tensor& root);
void backward(std::span<const Seed> seeds);

// Returns f(inputs) and saves only the inputs: the backward pass computes f again (activation
// checkpointing; Chen et al., "Training deep nets with sublinear memory cost", 2016). f must give the same
// result each time. Inputs and outputs may be undefined.
std::vector<Tensor> recompute(const std::vector<Tensor>& inputs,
                              std::function<std::vector<Tensor>(const std::vector<Tensor>&)> f);

// Two f32 tensors of one shape.
struct TensorPair {
  Tensor x, other;
};
// Step i turns (x, other) into (other + f_i(x), x), for each f_i in turn. While gradients are recorded only
// the result is saved: the backward pass computes what each step read from what it left, other = x' -
// f_i(other'), up to rounding (Gomez et al. 2017, reversible residual networks). Each f_i must give the same
// result each time, and read nothing with a gradient but its argument and leaves.
TensorPair reversible(const TensorPair& start, std::vector<std::function<Tensor(const Tensor&)>> steps);

}  // namespace qkv
