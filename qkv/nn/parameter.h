// Parameters and the arenas they live in: one contiguous run per kind, with named views, so that the
// optimizer, clipping and saving are each one pass.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "qkv/autograd/graph.h"
#include "qkv/tensor/tensor.h"

namespace qkv {

// Which arena a parameter lies in.
enum class ParameterKind : uint8_t {
  matrix,  // of products and tables: held in the compute type; decays
  vector,  // norms and biases: always f32; does not decay
};

// How a fresh parameter is drawn.
struct Initializer {
  enum class Kind : uint8_t { zeros, ones, normal } kind = Kind::zeros;
  float std = 0;  // of normal, mean 0
};

// A named weight of a model.
struct Parameter {
  std::string name;
  Shape shape;
  ParameterKind kind;
  Initializer initializer;
  Tensor value;                // what a forward pass reads; carries the leaf's edge while training
  Tensor master;               // f32, what the optimizer updates; only while training
  std::shared_ptr<Leaf> leaf;  // null where there is no gradient
  float rate = 1;              // times the learning rate; 0: it stays as it is
  bool learned = true;         // false: no gradient says how it moves (running averages)
  bool product = false;        // what it multiplies may be changed by an adapter
  bool frozen = false;         // nothing moves it: said before training is prepared, it has no gradient
};

// Of a product's weight [out, in] the rows [first_row, first_row + rows) have a low-rank change beside them
// (Hu et al. 2022, LoRA): W x becomes W x + scale B A x, A [rank, in], B [rows, rank].
struct AdapterSpec {
  std::string parameter;  // the weight's name
  int64_t first_row = 0, rows = 0;
  int64_t rank = 0;
  float scale = 1;
  float dropout = 0;  // of what A reads

  bool operator==(const AdapterSpec&) const = default;
};

// One kind's parameters in one run of memory. Each view starts at a multiple of 64 bytes.
struct Arena {
  Tensor master;    // f32 [size]
  Tensor gradient;  // f32 [size]
  Tensor shadow;    // the compute type's copy [size]; undefined where that is f32
};

// All parameters of a model, in the order in which its layers add them.
class Parameters {
 public:
  // Types of tensors in the file that they were read from, by its names; f32 where a name is missing.
  std::map<std::string, DType> stored = {};
  // What else that file had, by its names, and is written again: tensors that this model has no use for, and
  // rows before those of a table that it uses.
  std::map<std::string, Tensor> kept = {}, kept_rows = {};

  // A new parameter; the reference stays valid. Throws Error when the name is taken.
  Parameter& add(std::string name, Shape shape, ParameterKind kind, Initializer initializer);

  // From now on a name that begins with `prefix` is another name of the parameter that begins with `with`:
  // layers that share their weights.
  void share(std::string prefix, std::string with);

  // The changes that products have which are added from now on.
  void adapt(std::vector<AdapterSpec> adapters) { adapters_ = std::move(adapters); }
  const std::vector<AdapterSpec>& adapters() const { return adapters_; }

  std::deque<Parameter>& all() { return parameters_; }
  const std::deque<Parameter>& all() const { return parameters_; }
  Parameter* find(std::string_view name);
  int64_t count() const;  // of elements

  // For training: lays every parameter that is not frozen into arenas with masters, gradients and, for bf16,
  // shadows. Values are those already bound, or drawn from their initializers with `seed`.
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
  // Brings the shadows in line with masters that were written from outside.
  void refresh_shadows();

 private:
  std::deque<Parameter> parameters_;
  std::vector<std::pair<std::string, std::string>> shared_;
  std::vector<AdapterSpec> adapters_;
  Arena arenas_[2];
  bool training_ = false;
};

}  // namespace qkv
