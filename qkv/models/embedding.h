// The input embedding: from token ids to the input of the first block.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "qkv/models/feature_embedding.h"
#include "qkv/models/spec.h"
#include "qkv/nn/norm.h"

namespace qkv {

// e = W_e[:, x[t]] + W_p[:, t] (Algorithms 1 and 2) plus the segment embedding; scaled, normalised and
// dropped out as the spec says.
class InputEmbedding {
 public:
  // `token`: W_e^T [V, D] (or [V, embedding_width]), which others may share. Names of other parameters
  // begin with `name` ("embedding").
  InputEmbedding(Parameters& parameters, const std::string& name, const ModelSpec& spec, Parameter& token);

  // The embeddings of the tokens alone, with their factors: ids [N] -> [N, D].
  Tensor tokens(const Indices& ids) const;
  // ids [N] -> [N, D]; layout and segments are the context's. `features`: rows for the ids that are
  // kFeature. `stack`: "encoder" or "decoder", for the names of probed values. `site`: random site of
  // dropout.
  Tensor forward(const Indices& ids, const Tensor& features, const Context& context, std::string_view stack,
                 uint32_t site) const;

 private:
  // Rows of W_e as the blocks read them: [N, D].
  Tensor as_read(Tensor rows) const;

  ModelSpec spec_;
  const Parameters* parameters_;
  Parameter* token_;
  std::unique_ptr<FeatureEmbedding> features_;
  std::unique_ptr<Linear> projection_;  // from embedding_width to the blocks' width; else null
  // W_p^T [positions, D] of positions, or of rows and of columns in a grid: learned, or f32 by a formula.
  struct PositionTable {
    Parameter* learned = nullptr;
    Tensor formula = {};
  };
  std::vector<PositionTable> positions_;
  Parameter* segment_ = nullptr;  // [segments, D]
  std::unique_ptr<Norm> norm_;
};

}  // namespace qkv
