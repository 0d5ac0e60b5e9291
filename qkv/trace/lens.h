// The logit lens and direct attribution: the answers of layers, and the shares of parts in them.
#pragma once

#include <string>
#include <vector>

#include "qkv/trace/trace.h"

namespace qkv {

// The logit lens (nostalgebraist 2020): logits of what leaves each layer, as if the last norm and the
// unembedding followed it: f32 [N, V] of the input of the blocks, then of each block. REQUIRES: a model with
// logits and a last stack of serial blocks.
std::vector<Tensor> logit_lens(const Transformer& model, const ModelInput& input);

// The rows that leave the input of the blocks and each block in a pass, f32 [N, D] each, and the type of the
// model's own.
struct LayerRows {
  std::vector<Tensor> rows;
  DType type;
};
LayerRows rows_by_layer(const Transformer& model, const ModelInput& input);

// A part of a logit.
struct Contribution {
  std::string name;  // a value that is added to the residual stream, or "bias": the end's own
  double value;
};

// Direct logit attribution (Elhage et al. 2021): the logit of `token` behind row `row` as a sum over what the
// embedding and each branch add to the residual stream, each through the last norm with the whole stream's
// scale, and the biases of the end. Their sum is the logit. REQUIRES: as logit_lens(); the blocks' norms are
// before their branches.
// Throws Error with why_no_contributions().
std::vector<Contribution> contributions_to(const Transformer& model, const ModelInput& input, int64_t row,
                                           int64_t token);

// The parts of a logit behind a row.
struct LogitParts {
  int64_t row, token;
  double logit;
  std::vector<Contribution> parts;
};
// The same of the likeliest token behind each row.
std::vector<LogitParts> contributions_to_likeliest(const Transformer& model, const ModelInput& input);

// The stack whose end the logits read: "encoder" of an encoder, else "decoder".
std::string last_stack_of(const ModelSpec& spec);

// True if logit_lens() reads the model.
bool has_lens(const ModelSpec& spec);
// The reason for which a model's logits cannot be divided; empty: they can.
std::string why_no_contributions(const ModelSpec& spec);

}  // namespace qkv
