#pragma once

// Losses that the paper leaves to others, in its notation: BERT's pre-training, prefix language modelling,
// permutation language modelling, texts that an encoder-decoder restores, heads of classes over Algorithm 9,
// and vectors of sequences. Sums over positions, of one sequence, where nothing else is said.

#include <cmath>
#include <vector>

#include "formal/loss.h"
#include "formal/notation.h"
#include "formal/softmax.h"
#include "formal/theta.h"
#include "formal/transformer.h"

namespace qkv::formal {

// Masked language modelling by BERT's rule (Devlin et al. 2019, section 3.1): each token is chosen with
// probability p_mask; of the chosen ones 80% become mask_token, 10% a random token and 10% stay. T~ are the
// positions of the chosen ones, which x~ alone does not tell. uniform() returns the next uniform number in
// [0, 1): one for each token, two more for each chosen one.
struct Chosen {
  Tokens x_tilde;
  std::vector<Index> T_tilde;
};
template <typename Uniform>
Chosen choose_by_BERT(const Tokens& x, Index N_V, double p_mask, Uniform&& uniform) {
  Chosen c{x, {}};
  for (Index t = 1; t <= length(x); ++t) {
    if (uniform() >= p_mask) continue;
    c.T_tilde.push_back(t);
    const double what = uniform(), which = uniform();
    int& token = c.x_tilde[static_cast<std::size_t>(t - 1)];
    if (what < 0.8)
      token = mask_token(N_V);
    else if (what < 0.9)
      token = 1 + static_cast<int>(which * static_cast<double>(N_V));
  }
  return c;
}

// Prefix language modelling (Liu et al. 2018; Raffel et al. 2020): the first l_p tokens of x are given, and
// the rest predicted: -sum_{t=l_p}^{l-1} log P[x[t+1], t]. Sequence to sequence with Algorithm 10 is this of
// z and x in a row.
template <typename T>
T PrefixLoss(const Tokens& x, Index l_p, const DTheta<T>& theta) {
  using std::log;
  const Matrix<T> P = DTransformer(x, prefix_mask(l_p, length(x)), theta);
  T loss = 0;
  for (Index t = l_p; t <= length(x) - 1; ++t) loss -= log(entry(P, at(x, t + 1), t));
  return loss;
}

// Permutation language modelling (Yang et al. 2019, XLNet, section 2.2 and eqs. 3-5, with Algorithm 9's
// layers): the tokens of x at the positions z, predicted in z's order from the others and from those before
// them in z. H is the content stream, which knows its own token; G, the query stream, knows its position
// alone, and starts as mask_token. REQUIRES: a position that is not in z.
template <typename T>
T PermutationLoss(const Tokens& x, const std::vector<Index>& z, const ETheta<T>& theta) {
  using std::log;
  const Index l = length(x), n = static_cast<Index>(z.size());
  std::vector<Index> rank(static_cast<std::size_t>(l), 0);  // in z; 0: not in z, seen by all
  for (Index i = 1; i <= n; ++i) rank[static_cast<std::size_t>(z[static_cast<std::size_t>(i - 1)] - 1)] = i;
  MaskMatrix of_H(l, l), of_G(l, n);
  for (Index t_z = 1; t_z <= l; ++t_z) {
    const Index r = rank[static_cast<std::size_t>(t_z - 1)];
    for (Index t_x = 1; t_x <= l; ++t_x) entry(of_H, t_z, t_x) = r <= rank[static_cast<std::size_t>(t_x - 1)];
    for (Index i = 1; i <= n; ++i) entry(of_G, t_z, i) = r < i;
  }
  const Tokens masked(x.size(), mask_token(theta.hyper.N_V));
  const Matrix<T> masks = embed(masked, theta.embedding, theta.hyper);
  Matrix<T> H = embed(x, theta.embedding, theta.hyper), G(H.rows(), n);
  for (Index i = 1; i <= n; ++i) column(G, i) = column(masks, z[static_cast<std::size_t>(i - 1)]);
  for (const Layer<T>& layer : theta.layer) {
    G = ETransformer_layer(G, H, layer, of_G, theta.hyper);  // eq. (4), first line
    H = ETransformer_layer(H, H, layer, of_H, theta.hyper);  // second line
  }
  const Matrix<T> P = ETransformer_predict(G, theta);
  T loss = 0;
  for (Index i = 1; i <= n; ++i) loss -= log(entry(P, at(x, z[static_cast<std::size_t>(i - 1)]), i));
  return loss;
}

// Positions [begin, end) of a sequence, from 1; begin = end: none, before that position.
struct Span {
  Index begin, end;
};

// Span corruption (Raffel et al. 2020, section 3.1.4, T5): what the encoder reads, x with the i-th of its
// spans, in order, replaced by the sentinel s[i] ...
inline Tokens without_spans(const Tokens& x, const std::vector<Span>& spans, const Tokens& s) {
  Tokens z;
  Index t = 1;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    for (; t < spans[i].begin; ++t) z.push_back(at(x, t));
    z.push_back(s[i]);
    t = spans[i].end;
  }
  for (; t <= length(x); ++t) z.push_back(at(x, t));
  return z;
}
// ... and what the decoder is to write: each sentinel followed by its span.
inline Tokens spans_alone(const Tokens& x, const std::vector<Span>& spans, const Tokens& s) {
  Tokens y;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    y.push_back(s[i]);
    for (Index t = spans[i].begin; t < spans[i].end; ++t) y.push_back(at(x, t));
  }
  return y;
}

// Denoising (Lewis et al. 2020, section 2.2, BART): x with its sentences in another order; then each span,
// even an empty one, replaced by one mask (infilling), and the tokens at `deleted` left out. The decoder is
// to write x. sentences: those of x in their new order; spans and deleted are of the text so ordered, apart
// from each other, in order.
inline Tokens noised(const Tokens& x, const std::vector<Span>& sentences, const std::vector<Span>& spans,
                     const std::vector<Index>& deleted, int mask) {
  Tokens y;
  for (const Span& s : sentences)
    for (Index t = s.begin; t < s.end; ++t) y.push_back(at(x, t));
  Tokens z;
  std::size_t i = 0, d = 0;
  for (Index t = 1; t <= length(y) + 1; ++t) {
    for (; i < spans.size() && spans[i].begin == t; ++i) {
      z.push_back(mask);
      t = spans[i].end;
    }
    if (t > length(y)) break;
    if (d < deleted.size() && deleted[d] == t)
      ++d;
    else
      z.push_back(at(y, t));
  }
  return z;
}

// Lines 3-5 of Algorithm 11 of such pairs, as of all pairs z, x: the encoder reads z eos_token, the decoder
// bos_token x, and predicts x eos_token.
template <typename T>
T RestorationLoss(const Tokens& z, const Tokens& x, const EDTheta<T>& theta) {
  using std::log;
  const Index N_V = theta.hyper.N_V;
  Tokens z_eos = z;
  z_eos.push_back(eos_token(N_V));
  const Tokens whole = with_bos_and_eos(x, N_V), read(whole.begin(), whole.end() - 1);
  const Matrix<T> P = EDTransformer(z_eos, read, theta);
  T loss = 0;
  for (Index t = 1; t <= length(read); ++t) loss -= log(entry(P, at(whole, t + 1), t));
  return loss;
}

// theta of Algorithm 9 with a head of N_C classes (Devlin et al. 2019, sections 3.2 and 4): W_c [N_C x d_e],
// b_c [N_C], and BERT's pooler W_pool [d_e x d_e], b_pool [d_e].
template <typename T>
struct ClassTheta : ETheta<T> {
  Matrix<T> W_pool;
  Vector<T> b_pool;
  Matrix<T> W_c;
  Vector<T> b_c;

  explicit ClassTheta(const Hyperparameters& h)
      : ETheta<T>(h),
        W_pool(Matrix<T>::Constant(h.d_e, h.d_e, T(0))),
        b_pool(Vector<T>::Constant(h.d_e, T(0))),
        W_c(Matrix<T>::Constant(h.N_C, h.d_e, T(0))),
        b_c(Vector<T>::Constant(h.N_C, T(0))) {}

  template <typename F, typename... P>
  static void visit(const std::string& prefix, const F& f, P&... p) {
    ETheta<T>::visit(prefix, f, p...);
    visit_parameter(prefix + "W_pool", f, p.W_pool...);
    visit_parameter(prefix + "b_pool", f, p.b_pool...);
    visit_parameter(prefix + "W_c", f, p.W_c...);
    visit_parameter(prefix + "b_c", f, p.b_c...);
  }
};

// The scores of a sequence's classes, read from its first token: W_c tanh(W_pool X[:, 1] + b_pool) + b_c,
// [N_C].
template <typename T>
Vector<T> class_scores(const Tokens& x, const ClassTheta<T>& theta) {
  using std::tanh;
  const Matrix<T> X = ETransformer_encode<T>(x, theta);
  const Matrix<T> first = column(X, 1);
  Matrix<T> pooled = affine(theta.W_pool, first, theta.b_pool);
  for (Index i = 1; i <= pooled.rows(); ++i) entry(pooled, i, 1) = tanh(entry(pooled, i, 1));
  return affine(theta.W_c, pooled, theta.b_c);
}

// -log P[c] of a sequence's class c: P = softmax of its scores.
template <typename T>
T ClassLoss(const Tokens& x, int c, const ClassTheta<T>& theta) {
  using std::log;
  const Matrix<T> scores = class_scores(x, theta), P = softmax(scores);
  return -log(entry(P, c, 1));
}

// The mean over labels of -log P of whether each applies, y in {0, 1}^N_C: P = 1 / (1 + e^-z) of its score z
// where it does, else 1 - P (binary cross-entropy).
template <typename T>
T LabelsLoss(const Tokens& x, const Vector<double>& y, const ClassTheta<T>& theta) {
  using std::exp;
  using std::log;
  const Vector<T> z = class_scores(x, theta);
  T sum = 0;
  for (Index c = 0; c < z.size(); ++c) {
    const T P = T(1) / (T(1) + exp(-z[c]));
    sum -= y[c] > 0 ? log(P) : log(T(1) - P);
  }
  return sum / T(static_cast<double>(z.size()));
}

// -log P[i] of the right choice i of a question, x_1 ... x_n: the question with each of its choices; P is the
// softmax of their n scores (N_C = 1; Radford et al. 2018, section 3.3; Devlin et al. 2019, section 4.4).
template <typename T>
T ChoiceLoss(const std::vector<Tokens>& x, int i, const ClassTheta<T>& theta) {
  using std::log;
  Matrix<T> scores(static_cast<Index>(x.size()), 1);
  for (std::size_t j = 0; j < x.size(); ++j)
    entry(scores, static_cast<Index>(j) + 1, 1) = class_scores(x[j], theta)[0];
  const Matrix<T> P = softmax(scores);
  return -log(entry(P, i, 1));
}

// The mean over N_C numbers y of (score - y)^2.
template <typename T>
T NumbersLoss(const Tokens& x, const Vector<double>& y, const ClassTheta<T>& theta) {
  const Vector<T> z = class_scores(x, theta);
  T sum = 0;
  for (Index c = 0; c < z.size(); ++c) sum += (z[c] - y[c]) * (z[c] - y[c]);
  return sum / T(static_cast<double>(z.size()));
}

// BERT's pre-training (Devlin et al. 2019, section 3.1 and appendix A.2): the mean loss of the chosen tokens
// of a batch and the mean loss of which of two texts follow each other, class c, read from the same x~.
struct BERTExample {
  Tokens x;
  Chosen chosen;
  int c;
};
template <typename T>
T BERTLoss(const std::vector<BERTExample>& batch, const ClassTheta<T>& theta) {
  T masked = 0, next = 0;
  double count = 0;
  for (const BERTExample& e : batch) {
    masked += MaskedLoss<T>(e.x, e.chosen.x_tilde, e.chosen.T_tilde, theta);
    next += ClassLoss(e.chosen.x_tilde, e.c, theta);
    count += static_cast<double>(e.chosen.T_tilde.size());
  }
  return masked / T(count) + next / T(static_cast<double>(batch.size()));
}

// The vector of a sequence, of length 1: the mean of what Algorithm 9 encodes.
template <typename T>
Vector<T> embedded(const Tokens& x, const ETheta<T>& theta) {
  using std::sqrt;
  const Matrix<T> X = ETransformer_encode<T>(x, theta);
  Vector<T> v = Vector<T>::Constant(X.rows(), T(0));
  T square = 0;
  for (Index i = 0; i < X.rows(); ++i) {
    for (Index t = 0; t < X.cols(); ++t) v(i) += X(i, t) / static_cast<double>(X.cols());
    square += v(i) * v(i);
  }
  return v / T(sqrt(square));
}

// Vectors that find each other (van den Oord et al. 2018, InfoNCE; both ways, Radford et al. 2021): of pairs
// x_i, y_i the mean of -log P that x_i finds y_i among all y, and y_i x_i among all x, by a softmax over
// inner products of their vectors divided by tau. A sum over pairs.
template <typename T>
T ContrastiveLoss(const std::vector<Tokens>& x, const std::vector<Tokens>& y, double tau,
                  const ETheta<T>& theta) {
  using std::log;
  const auto n = static_cast<Index>(x.size());
  Matrix<T> S(n, n);
  for (Index i = 0; i < n; ++i)
    for (Index j = 0; j < n; ++j)
      S(i, j) = embedded(x[static_cast<std::size_t>(i)], theta)
                    .cwiseProduct(embedded(y[static_cast<std::size_t>(j)], theta))
                    .sum() /
                tau;
  const Matrix<T> of_x = softmax(Matrix<T>(S.transpose())), of_y = softmax(S);  // down the columns
  T loss = 0;
  for (Index i = 0; i < n; ++i) loss -= (log(of_x(i, i)) + log(of_y(i, i))) / T(2);
  return loss;
}

// -sum_t log P[c[t], t] of each token's class: P = softmax(W_c X + b_c 1^T).
template <typename T>
T TagLoss(const Tokens& x, const Tokens& c, const ClassTheta<T>& theta) {
  using std::log;
  const Matrix<T> scores = affine(theta.W_c, ETransformer_encode<T>(x, theta), theta.b_c);
  const Matrix<T> P = softmax(scores);
  T loss = 0;
  for (Index t = 1; t <= length(x); ++t) loss -= log(entry(P, at(c, t), t));
  return loss;
}

// The answer stands in x[b:e]: -(log P_1[b] + log P_2[e]) / 2, where P_i = softmax over the positions of row
// i of W_c X + b_c 1^T, N_C = 2 (Devlin et al. 2019, section 4.2).
template <typename T>
T SpanLoss(const Tokens& x, Index b, Index e, const ClassTheta<T>& theta) {
  using std::log;
  const Matrix<T> scores = affine(theta.W_c, ETransformer_encode<T>(x, theta), theta.b_c);
  const Matrix<T> over_positions = scores.transpose();  // softmax goes down the columns
  const Matrix<T> P = softmax(over_positions);
  return -(log(entry(P, b, 1)) + log(entry(P, e, 2))) / T(2);
}

}  // namespace qkv::formal
