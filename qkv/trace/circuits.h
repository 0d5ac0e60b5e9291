// The circuits of attention heads: what each looks for, what it moves, and which heads read what others
// write. Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits".
#pragma once

#include <complex>
#include <string>
#include <vector>

#include "qkv/models/transformer.h"

namespace qkv {

// A head of a model's last stack. Rows x and y of the residual stream, as they leave the last norm or the
// embedding, meet in the score x W_Q W_K^T y^T, and y adds y W_V W_O^T to what it is mixed into. Weights of
// the norm before the block belong to W_Q, W_K and W_V, those of a norm behind its branch to W_O. Biases,
// rotary positions and scaling by d_k are left out.
struct HeadCircuits {
  int64_t layer = 0, head = 0;
  // Singular values of W_Q W_K^T and W_V W_O^T, the largest first: min(D, d_k) and min(D, d_v) of them, which
  // are the most that their ranks can be.
  std::vector<double> qk_singular = {}, ov_singular = {};
  // Eigenvalues of both but for zeros that no head's width can fill; the largest first.
  std::vector<std::complex<double>> qk_eigenvalues = {}, ov_eigenvalues = {};
  // Sum of the eigenvalues over the sum of their sizes, from -1 to 1, of the circuits from tokens to tokens:
  // W_e W_Q W_K^T W_e^T, 1: tokens look for tokens like themselves; W_e W_V W_O^T W_u, 1: a token that is
  // attended to becomes likelier itself. NaN where embeddings are not the stream itself: of another
  // width, normalised, or of images.
  double matching = 0, copying = 0;
};

// How much of what one head writes another head reads in a later layer: |W_1 W_2| / |W_1| |W_2| by Frobenius
// norms, W_1 = W_V W_O^T of the writer, W_2 = W_Q W_K^T from its side of queries or keys, or W_V W_O^T of the
// reader.
struct Composition {
  int64_t writer = 0, reader = 0;  // places in HeadCircuits
  double query = 0, key = 0, value = 0;
};

struct Circuits {
  std::vector<HeadCircuits> heads;    // by layer, then by head
  std::vector<Composition> composed;  // every two heads of different layers
};

// The number of singular values that rounding to f32 does not explain.
int64_t rank_of(const std::vector<double>& singular);

// Throws Error with why_no_circuits().
Circuits circuits_of(const Transformer& model);
// The reason for which a model's heads are no products of four matrices; empty: they are.
std::string why_no_circuits(const ModelSpec& spec);

}  // namespace qkv
