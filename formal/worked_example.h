#pragma once

// The steps of a worked numeric example, the slides "Step-by-step calculation of the transformer
// architecture" (one encoder layer with a single head, and the new parts of the decoder), each as one
// function.
//
// Its notation, not Phuong & Hutter's: a token is a row, X [n x d], and weights stand right of what they act
// on. The functions are those of formal/ where the two agree; where they differ the docstring says so.

#include <cctype>
#include <cmath>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "formal/activation.h"
#include "formal/notation.h"
#include "formal/softmax.h"

namespace qkv::formal::worked_example {

using Rows = Matrix<double>;  // one token per row

// Step 1: a sentence -> its words. Split at spaces, without full stops and commas, in lower case but for "I".
inline std::vector<std::string> tokenize(const std::string& sentence) {
  std::vector<std::string> tokens;
  std::istringstream words(sentence);
  for (std::string word; words >> word;) {
    while (!word.empty() && (word.back() == '.' || word.back() == ',')) word.pop_back();
    if (word != "I") word[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(word[0])));
    tokens.push_back(word);
  }
  return tokens;
}

// Step 1: the distinct words of all sentences, in order of their first appearance.
inline std::vector<std::string> vocabulary(const std::vector<std::string>& sentences) {
  std::vector<std::string> distinct;
  for (const std::string& sentence : sentences) {
    for (const std::string& token : tokenize(sentence)) {
      bool known = false;
      for (const std::string& other : distinct) known = known || other == token;
      if (!known) distinct.push_back(token);
    }
  }
  return distinct;
}

// Step 2: words -> ids, the place (from 1) of each word in tokens_by_id.
inline Tokens encode(const std::vector<std::string>& words, const std::vector<std::string>& tokens_by_id) {
  Tokens ids;
  for (const std::string& word : words) {
    std::size_t i = 0;
    while (i < tokens_by_id.size() && tokens_by_id[i] != word) ++i;
    if (i == tokens_by_id.size()) throw std::invalid_argument("not in the vocabulary: " + word);
    ids.push_back(static_cast<int>(i + 1));
  }
  return ids;
}

// Step 3: PE(x | pos) = sin(pos / 10000^(x/d)) for even x, cos(pos / 10000^((x-1)/d)) for odd x -> [n x d].
// Positions pos and dimensions x count from 0, and the base is 10000: unlike hard_coded_positional_embedding
// in embedding.h.
inline Rows positional_encoding(Index n, Index d) {
  Rows PE(n, d);
  for (Index pos = 0; pos < n; ++pos) {
    for (Index x = 0; x < d; ++x) {
      const double exponent = static_cast<double>(x - x % 2) / static_cast<double>(d);
      const double angle = static_cast<double>(pos) / std::pow(10000.0, exponent);
      PE(pos, x) = x % 2 == 0 ? std::sin(angle) : std::cos(angle);
    }
  }
  return PE;
}

// Step 4: static embedding + positional encoding, [n x d] each.
inline Rows input(const Rows& embedding, const Rows& PE) {
  return embedding + PE;
}

// Steps 5.1, 5.4, 7 and 10: X W, [n x d_in], [d_in x d_out] -> [n x d_out].
inline Rows multiply(const Rows& X, const Rows& W) {
  return X * W;
}

// Step 5.2: Q K^T, [n x d_k], [m x d_k] -> [n x m].
inline Rows scores(const Rows& Q, const Rows& K) {
  return Q * K.transpose();
}

// Step 5.2: Q K^T / sqrt(d_k).
inline Rows scale(const Rows& QK, Index d_k) {
  return QK / std::sqrt(static_cast<double>(d_k));
}

// Step 5.3: softmax of every row. (The slides let the sum run to d; it runs over the keys, of which there are
// six as well.)
inline Rows row_softmax(const Rows& A) {
  return softmax(Rows(A.transpose())).transpose();
}

// Step 6: (x - mean) / (s + epsilon) of every row, s the sample standard deviation: divided by d - 1, and
// epsilon added to s. Algorithm 6 divides by d, and where an epsilon is used it is added to the variance.
inline Rows normalize(const Rows& X, double epsilon) {
  Rows Y(X.rows(), X.cols());
  for (Index t = 0; t < X.rows(); ++t) {
    const double mean = X.row(t).sum() / static_cast<double>(X.cols());
    const double square_sum = (X.row(t).array() - mean).square().sum();
    const double s = std::sqrt(square_sum / static_cast<double>(X.cols() - 1));
    Y.row(t) = (X.row(t).array() - mean) / (s + epsilon);
  }
  return Y;
}

// Step 7: X + b in every row, b [d_out].
inline Rows add_bias(const Rows& X, const Vector<double>& b) {
  return X.rowwise() + b.transpose();
}

// Step 7: max{0, X}.
inline Rows relu(const Rows& X) {
  return X.unaryExpr([](double x) { return ReLU(x); });
}

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

// The MASK that is added to Q K^T, [n_sequence x n_sequence]: 0 where a real query (a row below `queries`)
// may attend to a real key (a column below `keys`), minus infinity elsewhere: also in all of a padding
// query's row. Padding of the encoder has queries = keys = its tokens; step 9, cross-attention, has queries =
// the decoder's tokens.
inline Rows padding_mask(Index n_sequence, Index queries, Index keys) {
  Rows MASK = Rows::Constant(n_sequence, n_sequence, kMinusInfinity);
  MASK.topLeftCorner(queries, keys).setZero();
  return MASK;
}

// Step 8: as padding_mask for `tokens` tokens, and no query attends to a later key.
inline Rows masked_mask(Index n_sequence, Index tokens) {
  Rows MASK = padding_mask(n_sequence, tokens, tokens);
  for (Index query = 0; query < tokens; ++query) {
    for (Index key = query + 1; key < tokens; ++key) MASK(query, key) = kMinusInfinity;
  }
  return MASK;
}

// Steps 8 and 9: softmax((Q K^T + MASK) / sqrt(d_k)), rows. A row of MASK that is all minus infinity gives
// 0/0 = NaN.
inline Rows masked_weights(const Rows& Q, const Rows& K, const Rows& MASK) {
  return row_softmax(scale(scores(Q, K) + MASK, Q.cols()));
}

// Step 10: the id (from 1) of the largest logit in every row of L = X W, [n_seq x V].
inline Tokens predict(const Rows& L) {
  Tokens ids;
  for (Index t = 0; t < L.rows(); ++t) {
    Index best = 0;
    L.row(t).maxCoeff(&best);
    ids.push_back(static_cast<int>(best) + 1);
  }
  return ids;
}

}  // namespace qkv::formal::worked_example
