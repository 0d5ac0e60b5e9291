// The residual stream, and how a block adds its branches to it.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "qkv/nn/norm.h"
#include "qkv/nn/residual_spec.h"
#include "qkv/nn/sublayer.h"

namespace qkv {

// The residual stream between two norms: x and the branch that is still to be added to it. Adding it
// together with the next normalisation saves a pass over memory. With two streams, x is the one that is
// read next: each branch reads one stream and is added to the other.
struct ResidualStream {
  Tensor x;
  Tensor branch;      // undefined: nothing to add
  Dropout dropout;    // dropout of the branch
  std::string name;   // name of x + branch, for probes
  Tensor other = {};  // undefined: there is one stream

  // Adds the branch and returns the normalised sum, which becomes x.
  Tensor add_and_norm(const Norm& norm, const Context& context);
  // Adds the branch to x, without a norm.
  void add_branch(const Context& context);
};

// A sublayer with its residual connection and its norm: before the sublayer, on the sum, or none.
struct Residual {
  NormPlacement placement;  // pre, post, stream or none
  std::optional<Norm> norm;
  std::unique_ptr<Sublayer> sublayer;
  float dropout;
  uint32_t site;
  std::string name;

  // REQUIRES, for post: no branch is pending. None is afterwards.
  void forward(ResidualStream& stream, const Context& context) const;
};

}  // namespace qkv
