// From the rows of a flat batch to those that a head reads.
#pragma once

#include <span>

#include "qkv/tensor/indices.h"
#include "qkv/tensor/tensor.h"

namespace qkv {

// x [N, D], rows [M] -> [M, D]: row rows[m] of x. Throws Error where one is out of range.
Tensor select_rows(const Tensor& x, const Indices& rows);

// x [N, D], rows [M] all different, y [M, D] of x's type -> x with row m of y as its row rows[m].
Tensor replace_rows(const Tensor& x, const Indices& rows, const Tensor& y);

// x [N, D] -> [S, D]: the mean of each sequence's rows [offsets[s], offsets[s + 1]). No sequence may be
// empty.
Tensor mean_of_sequences(const Tensor& x, std::span<const int32_t> offsets);

// x [N, D] -> [N, D]: each row divided by its Euclidean norm; a row of zeros stays one.
Tensor unit_rows(const Tensor& x);

// A loss over the rows of each group, in nats.
struct FoundRowsLoss {
  Tensor loss;        // f32 [1]: scale times the sum of the losses
  double total = 0;   // their sum
  int64_t count = 0;  // groups that are not left out
};

// scores f32 [N, C], targets [G, C]: how well a softmax over the rows [offsets[g], offsets[g + 1]) of each
// group finds the row targets[g, c] by column c. Targets count from the group's first row, and groups whose
// targets are -100 are left out. The loss is the mean of the C -log P. A sequence's tokens with two columns
// are the first and the last token of an answer (Devlin et al. 2019, section 4.2). A question's choices with
// one are multiple choice (Devlin et al. 2019, section 4.4; Radford et al. 2018, section 3.3).
FoundRowsLoss find_rows_cross_entropy(const Tensor& scores, std::span<const int32_t> offsets,
                                      const Indices& targets, float scale);

// A loss over pairs of vectors, in nats.
struct ContrastiveLoss {
  Tensor loss;  // f32 [1]: scale times the sum of the losses
  double total = 0;
  int64_t found = 0;  // pairs whose vectors are nearest to each other's, of all on the other side
};

// u, v f32 [S, D] of unit rows: how well u_i finds v_i among all v, and v_i finds u_i among all u, by a
// softmax over inner products divided by the temperature; a pair's loss is the mean of the two -log P (van
// den Oord et al. 2018, InfoNCE; both ways as Radford et al. 2021).
ContrastiveLoss contrastive_cross_entropy(const Tensor& u, const Tensor& v, float temperature, float scale);

}  // namespace qkv
