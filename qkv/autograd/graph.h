// Reverse-mode differentiation: the mechanism only. What an op's gradient is stands in ops/, beneath the op.
//
// A forward op makes one Node that keeps what its gradient needs, and hangs an edge to it on each of its
// outputs. backward() walks the nodes from the newest to the oldest; a node and what it saved are freed as
// the walk passes.
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

// Where a tensor came from: output `slot` of `node`.
struct GraphEdge {
  std::shared_ptr<Node> node;
  int slot = 0;
};

// A tensor and the gradient of the root with respect to it.
using Seed = std::pair<Tensor, Tensor>;

// What one op leaves behind for the backward pass: where its inputs came from, and their gradients' rule.
class Node {
 public:
  virtual ~Node() = default;
  virtual std::string_view name() const = 0;
  // grads[slot]: the gradient of output `slot`, undefined where none arrived. Hands the inputs' gradients on
  // with give(), weight_grad() or product_grad().
  virtual void backward(std::span<Tensor> grads) = 0;

  // Declares the next input; returns its index. Inputs without an edge want no gradient.
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
  // For what a product makes: calls write(target, accumulate) with the gradient that another user of the
  // input gave before, where it has this type and nobody else sees it, or with a new tensor.
  void product_grad(int input, Shape shape, DType type,
                    const std::function<void(Tensor& target, bool accumulate)>& write);

 private:
  friend void backward(std::span<const Seed>);
  std::vector<GraphEdge> inputs_;
  std::vector<Tensor> grads_;  // of the outputs, while the walk has not come here
  int64_t id_;
};

// A parameter: its gradient stays where it is, across backward passes, until set fresh again. What ops give
// it in bf16 is widened; those that write with weight_grad() round nothing.
class Leaf : public Node {
 public:
  explicit Leaf(Tensor grad) : grad(std::move(grad)) {}
  std::string_view name() const override { return "leaf"; }
  void backward(std::span<Tensor> grads) override;

  Tensor grad;        // f32
  bool fresh = true;  // nothing written yet: the first write overwrites
};

// Makes `x` a leaf whose gradient is found in the returned node.
std::shared_ptr<Leaf> make_leaf(Tensor& x, Tensor grad);

// Hangs output `slot` of `node` on x.
void connect(Tensor& x, std::shared_ptr<Node> node, int slot = 0);

// True while ops record, and one of these tensors wants a gradient.
bool recording();
bool wants_grad(std::initializer_list<const Tensor*> tensors);

// No op records while one of these lives.
class NoGrad {
 public:
  NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  bool before_;
};

// The gradient of a scalar with respect to every leaf it depends on.
void backward(const Tensor& root);
void backward(std::span<const Seed> seeds);

// f(inputs), keeping only the inputs: the backward pass computes f again (activation checkpointing; Chen et
// al., "Training deep nets with sublinear memory cost", 2016). f must give the same result each time; inputs
// and outputs may be undefined.
std::vector<Tensor> recompute(const std::vector<Tensor>& inputs,
                              std::function<std::vector<Tensor>(const std::vector<Tensor>&)> f);

}  // namespace qkv
