// Parameters and the arenas they live in: one contiguous run per kind, with named views, so that the
// optimizer, clipping and saving are each one pass.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "qkv/autograd/graph.h"
#include "qkv/nn/adapter_spec.h"
#include "qkv/tensor/weight.h"

namespace qkv {

// The arena of a parameter.
enum class ParameterKind : uint8_t {
  matrix,  // weights of linear layers and tables: in the compute type, with weight decay
  vector,  // norms and biases: always f32, without weight decay
};

// How a new parameter is initialised.
struct Initializer {
  enum class Kind : uint8_t { zeros, ones, normal, constant, listed, orthogonal } kind = Kind::zeros;
  float std = 0;                   // standard deviation of normal, whose mean is 0; orthogonal: a factor
  float value = 0;                 // the constant
  std::vector<float> values = {};  // those of listed: as many as the parameter has
};

// A named weight of a model.
struct Parameter {
  std::string name = {};
  Shape shape = {};
  ParameterKind kind = ParameterKind::matrix;
  Initializer initializer = {};
  Tensor value = {};                // read by the forward pass; has the leaf's edge while training
  Weight packed = {};               // in place of `value`: rows of the types that a file has; never trained
  Tensor master = {};               // f32, what the optimizer updates; only while training
  std::shared_ptr<Leaf> leaf = {};  // null if there is no gradient
  float rate = 1;                   // factor on the learning rate; 0: it stays as it is
  bool learned = true;              // false: it moves without a gradient (running averages)
  bool averaged = false;            // passes move it towards what they see (batch norms' averages)
  bool product = false;             // weight of a linear layer that an adapter may change
  bool frozen = false;              // never changes, has no gradient; to be set before prepare_training()
  bool any_type = false;            // read through weight() alone: it may be packed

  // The weight that products and look-ups read.
  Weight weight() const { return packed.defined() ? packed : Weight(value); }
  bool defined() const { return packed.defined() || value.defined(); }
};

// Numbers f32 as the parameter's initializer draws them, in the parameter's shape.
Tensor drawn_numbers(const Parameter& p, uint64_t seed);

// One kind's parameters in one run of memory. Each view starts at a multiple of 64 bytes.
struct Arena {
  Tensor master;    // f32 [size]
  Tensor gradient;  // f32 [size]
  Tensor shadow;    // copy of the masters in the compute type [size]; undefined if not needed
};

// All parameters of a model, in the order in which its layers add them.
class Parameters {
 public:
  // Type of the activations, and of matrices that are not packed.
  DType compute = DType::f32;
  // Types of tensors in the file that they were read from, by the file's names; f32 if a name is missing.
  std::map<std::string, DType> stored = {};
  // Other contents of that file, by the file's names, to be written again: tensors that this model does not
  // use, and rows of a table before those that it uses.
  std::map<std::string, Tensor> kept = {}, kept_rows = {};
  // Parts of a multimodal checkpoint that are not in this model, and are not written: "vision_tower".
  std::set<std::string> left_out = {};

  // Adds a parameter; the reference stays valid. Throws Error if the name is taken.
  Parameter& add(std::string name, Shape shape, ParameterKind kind, Initializer initializer);

  // From now on, names that begin with `prefix` refer to the parameters whose names begin with `with`: for
  // layers that share weights.
  void share(std::string prefix, std::string with);

  // Sets the adapters of linear layers that are added from now on.
  void adapt(std::vector<AdapterSpec> adapters) { adapters_ = std::move(adapters); }
  const std::vector<AdapterSpec>& adapters() const { return adapters_; }

  std::deque<Parameter>& all() { return parameters_; }
  const std::deque<Parameter>& all() const { return parameters_; }
  Parameter* find(std::string_view name);
  int64_t count() const;  // number of elements

  // For training: lays every parameter that is not frozen into arenas with masters, gradients and, for bf16,
  // shadows. Values are those already bound, or drawn from their initializers with `seed`. A packed one
  // stays packed if it is frozen, and becomes dense otherwise.
  void prepare_training(DType compute, uint64_t seed);
  // For inference: draws the values that nothing was bound to, in the compute type.
  void draw(uint64_t seed, DType compute);
  bool training() const { return training_; }
  Arena& arena(ParameterKind kind) { return arenas_[static_cast<int>(kind)]; }

  // Marks all gradients as unwritten (the next backward pass overwrites them).
  void reset_gradients();
  // Zeroes the gradients that no backward pass reached, so that each arena is whole, and those of parameters
  // whose rate is 0.
  void complete_gradients();
  // Updates the shadows after masters were written from outside.
  void refresh_shadows();

 private:
  std::deque<Parameter> parameters_;
  std::vector<std::pair<std::string, std::string>> shared_;
  std::vector<AdapterSpec> adapters_;
  Arena arenas_[2];
  bool training_ = false;
};

}  // namespace qkv
