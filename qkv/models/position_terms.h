// Position encodings that attention reads: rotations, biases by distance, vectors of distances.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "qkv/batch/layout.h"
#include "qkv/kernels/mask.h"
#include "qkv/models/spec.h"
#include "qkv/nn/context.h"
#include "qkv/nn/norm.h"
#include "qkv/nn/parameter.h"
#include "qkv/ops/relative_bias.h"

namespace qkv {

// The position encodings of all layers with one kind of block, computed once per pass.
class PositionTerms {
 public:
  // `spec`: the model as if all its layers were of this kind. Names of parameters begin with `name`
  // ("decoder"). `mask`: of self-attention.
  // `layers`: those of this kind.
  PositionTerms(Parameters& parameters, const std::string& name, const ModelSpec& spec, const Mask& mask,
                std::span<const int64_t> layers);

  // Puts them into the context, for tokens at `places` and vectors of type `dtype`.
  void prepare(const Layout& places, DType dtype, Context& context) const;
  // Puts what only this layer has there, after prepare().
  void prepare_layer(int64_t layer, const Layout& places, Context& context) const;
  // True if layers have biases of their own.
  bool differs_by_layer() const { return !distances_.empty(); }

 private:
  void place_distances(int64_t reach, DType dtype, Context& context) const;
  std::vector<int64_t> rotary_lengths(const Layout& layout, int64_t longest) const;

  Positions positions_;
  int64_t width_, grid_;
  std::vector<float> scales_;  // factor on each head's scores, if ALiBi is scaled with them
  AttentionSpec attention_;
  bool causal_;              // no token sees those after it
  DistanceBuckets buckets_;  // buckets of relative positions
  // Biases of the buckets, f32 [buckets, heads]: one table for all layers, or one of each of them.
  Parameter* distance_ = nullptr;
  std::map<int64_t, Parameter*> distances_;
  Parameter* vectors_ = nullptr;  // vectors of disentangled attention: [rows, D]
  std::unique_ptr<Norm> vector_norm_;
};

}  // namespace qkv
