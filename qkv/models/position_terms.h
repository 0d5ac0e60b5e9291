// Terms of positions: rotations, biases by distance, vectors of distances, which attention reads.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "qkv/models/spec.h"
#include "qkv/ops/relative_bias.h"

namespace qkv {

// The terms of the layers that have one kind of block, made once a pass for all of them.
class PositionTerms {
 public:
  // `spec`: the model as if all its layers were of this kind. Parameters begin with `name` ("decoder");
  // `mask` is self-attention's.
  PositionTerms(Parameters& parameters, const std::string& name, const ModelSpec& spec, const Mask& mask);

  // Puts them into the context, for tokens that stand where `places` says and for vectors of type `dtype`.
  void prepare(const Layout& places, DType dtype, Context& context) const;

 private:
  void place_distances(int64_t reach, DType dtype, Context& context) const;
  std::vector<int64_t> rotary_lengths(const Layout& layout, int64_t longest) const;

  Positions positions_;
  int64_t heads_, width_, grid_;
  std::vector<float> scales_;  // of the scores of each head, where ALiBi is scaled with them
  RotarySpec rotary_;
  RelativeSpec relative_;
  bool causal_;                    // no token sees those after it
  DistanceBuckets buckets_;        // of relative positions:
  Parameter* distance_ = nullptr;  // their biases, f32 [buckets, heads]
  Parameter* vectors_ = nullptr;   // of disentangled attention: [rows, D]
  std::unique_ptr<Norm> vector_norm_;
};

}  // namespace qkv
