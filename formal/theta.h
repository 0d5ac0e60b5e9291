#pragma once

// The hyperparameters and the parameters theta of Algorithms 8, 9 and 10.

#include <string>
#include <vector>

#include "formal/activation.h"
#include "formal/attention_parameters.h"
#include "formal/notation.h"
#include "formal/parameters.h"

namespace qkv::formal {

enum class Normalization { layer_norm, RMSnorm };  // RMSnorm: Gopher's change of Algorithm 10
enum class Positions { learned, hard_coded };  // hard_coded: W_p is the formula of section 5, no parameter

// The input of module k of multi-token prediction (formal/multi_token.h): h^(k-1); that joined with the
// embedding of a token; or h^0.
enum class MTPForm { chained, joined, parallel };

// The hyperparameters of Algorithms 8 to 10, and choices that those leave to the reader.
struct Hyperparameters {
  Index N_V = 0;     // vocabulary size, special tokens included
  Index l_max = 0;   // maximal sequence length
  Index L = 0;       // layers (Algorithms 9 and 10)
  Index L_enc = 0;   // encoder layers (Algorithm 8)
  Index L_dec = 0;   // decoder layers (Algorithm 8)
  Index H = 0;       // heads
  Index d_e = 0;     // embedding
  Index d_mlp = 0;   // hidden layer of the multi-layer perceptrons
  Index d_f = 0;     // final projection (Algorithm 9); 0: d_e
  Index d_attn = 0;  // queries and keys of one head; 0: d_e / H
  Index d_mid = 0;   // values of one head; 0: d_e / H
  Index N_C = 0;     // classes of a head over Algorithm 9
  Index K = 0;       // modules of multi-token prediction behind Algorithm 10

  Activation activation = Activation::as_printed;  // as_printed: ReLU in Algorithm 8, GELU in 9 and 10
  double epsilon = 0;  // under the root of a normalisation; 0 is Algorithm 6 as printed
  Normalization normalization = Normalization::layer_norm;
  Positions positions = Positions::learned;
  bool tied = false;  // W_u = W_e^T, and no parameter of its own
  MTPForm form = MTPForm::chained;

  // Replaces zeros that stand for a default by that default.
  Hyperparameters resolved() const {
    Hyperparameters h = *this;
    assert(h.N_V > 0 && h.l_max > 0 && h.H > 0 && h.d_e > 0 && h.d_mlp > 0);
    assert((h.d_attn != 0 && h.d_mid != 0) || h.d_e % h.H == 0);
    if (h.d_attn == 0) h.d_attn = h.d_e / h.H;
    if (h.d_mid == 0) h.d_mid = h.d_e / h.H;
    if (h.d_f == 0) h.d_f = h.d_e;
    return h;
  }
};

// gamma, beta [d] of one normalisation; RMSnorm has no beta. Every parameter made here starts at zero.
template <typename T>
struct NormalizationParameters {
  Vector<T> gamma;
  Vector<T> beta;

  NormalizationParameters() = default;
  NormalizationParameters(Normalization normalization, Index d) : gamma(Vector<T>::Constant(d, T(0))) {
    if (normalization == Normalization::layer_norm) beta = Vector<T>::Constant(d, T(0));
  }

  // The paper numbers its normalisations: gamma1, beta1, ...; the final one has no number.
  template <typename F, typename... P>
  static void visit(const std::string& prefix, const std::string& number, const F& f, P&... p) {
    visit_parameter(prefix + "gamma" + number, f, p.gamma...);
    visit_parameter(prefix + "beta" + number, f, p.beta...);
  }
};

// W_mlp1 [d_mlp x d_e], b_mlp1 [d_mlp], W_mlp2 [d_e x d_mlp], b_mlp2 [d_e].
template <typename T>
struct MLPParameters {
  Matrix<T> W_mlp1;
  Vector<T> b_mlp1;
  Matrix<T> W_mlp2;
  Vector<T> b_mlp2;

  MLPParameters() = default;
  MLPParameters(Index d_e, Index d_mlp)
      : W_mlp1(Matrix<T>::Constant(d_mlp, d_e, T(0))),
        b_mlp1(Vector<T>::Constant(d_mlp, T(0))),
        W_mlp2(Matrix<T>::Constant(d_e, d_mlp, T(0))),
        b_mlp2(Vector<T>::Constant(d_e, T(0))) {}

  // `first` and `second` are the paper's numbers: 1 and 2, or 3 and 4 in the decoder of Algorithm 8.
  template <typename F, typename... P>
  static void visit(const std::string& prefix, const std::string& first, const std::string& second,
                    const F& f, P&... p) {
    visit_parameter(prefix + "W_mlp" + first, f, p.W_mlp1...);
    visit_parameter(prefix + "b_mlp" + first, f, p.b_mlp1...);
    visit_parameter(prefix + "W_mlp" + second, f, p.W_mlp2...);
    visit_parameter(prefix + "b_mlp" + second, f, p.b_mlp2...);
  }
};

// One layer of Algorithm 9 or 10, or one encoder layer of Algorithm 8.
template <typename T>
struct Layer {
  MHAttentionParameters<T> W;
  NormalizationParameters<T> norm1, norm2;  // gamma^1, beta^1; gamma^2, beta^2 [d_e]
  MLPParameters<T> mlp;                     // W_mlp1, b_mlp1, W_mlp2, b_mlp2

  Layer() = default;
  explicit Layer(const Hyperparameters& h)  // h resolved
      : W(h.H, h.d_attn, h.d_mid, h.d_e, h.d_e, h.d_e),
        norm1(h.normalization, h.d_e),
        norm2(h.normalization, h.d_e),
        mlp(h.d_e, h.d_mlp) {}

  template <typename F, typename... P>
  static void visit(const std::string& prefix, const F& f, P&... p) {
    MHAttentionParameters<T>::visit(prefix + "W.", f, p.W...);
    NormalizationParameters<T>::visit(prefix, "1", f, p.norm1...);
    NormalizationParameters<T>::visit(prefix, "2", f, p.norm2...);
    MLPParameters<T>::visit(prefix, "1", "2", f, p.mlp...);
  }
};

// One decoder layer of Algorithm 8.
template <typename T>
struct DecoderLayer {
  MHAttentionParameters<T> W_dec;                  // self-attention
  MHAttentionParameters<T> W_ed;                   // cross-attention, W^{e/d}
  NormalizationParameters<T> norm3, norm4, norm5;  // gamma^3, beta^3; ...; gamma^5, beta^5 [d_e]
  MLPParameters<T> mlp;                            // its W_mlp1 is the paper's W_mlp3, its W_mlp2 W_mlp4

  DecoderLayer() = default;
  explicit DecoderLayer(const Hyperparameters& h)  // h resolved
      : W_dec(h.H, h.d_attn, h.d_mid, h.d_e, h.d_e, h.d_e),
        W_ed(h.H, h.d_attn, h.d_mid, h.d_e, h.d_e, h.d_e),
        norm3(h.normalization, h.d_e),
        norm4(h.normalization, h.d_e),
        norm5(h.normalization, h.d_e),
        mlp(h.d_e, h.d_mlp) {}

  template <typename F, typename... P>
  static void visit(const std::string& prefix, const F& f, P&... p) {
    MHAttentionParameters<T>::visit(prefix + "W_dec.", f, p.W_dec...);
    MHAttentionParameters<T>::visit(prefix + "W_ed.", f, p.W_ed...);
    NormalizationParameters<T>::visit(prefix, "3", f, p.norm3...);
    NormalizationParameters<T>::visit(prefix, "4", f, p.norm4...);
    NormalizationParameters<T>::visit(prefix, "5", f, p.norm5...);
    MLPParameters<T>::visit(prefix, "3", "4", f, p.mlp...);
  }
};

// W_e [d_e x N_V], W_p [d_e x l_max] (absent if hard-coded), W_u [N_V x d] (absent if tied), d = d_e, or d_f
// in Algorithm 9.
template <typename T>
struct EmbeddingParameters {
  Matrix<T> W_e;
  Matrix<T> W_p;
  Matrix<T> W_u;

  EmbeddingParameters() = default;
  EmbeddingParameters(const Hyperparameters& h, Index d) : W_e(Matrix<T>::Constant(h.d_e, h.N_V, T(0))) {
    assert(!h.tied || d == h.d_e);
    if (h.positions == Positions::learned) W_p = Matrix<T>::Constant(h.d_e, h.l_max, T(0));
    if (!h.tied) W_u = Matrix<T>::Constant(h.N_V, d, T(0));
  }
};

// theta of Algorithm 8.
template <typename T>
struct EDTheta {
  Hyperparameters hyper;
  EmbeddingParameters<T> embedding;
  std::vector<Layer<T>> encoder;         // L_enc; encoder[l - 1] is layer l
  std::vector<DecoderLayer<T>> decoder;  // L_dec

  explicit EDTheta(const Hyperparameters& h)
      : hyper(h.resolved()),
        embedding(hyper, hyper.d_e),
        encoder(static_cast<std::size_t>(hyper.L_enc), Layer<T>(hyper)),
        decoder(static_cast<std::size_t>(hyper.L_dec), DecoderLayer<T>(hyper)) {}

  template <typename F, typename... P>
  static void visit(const std::string& prefix, const F& f, P&... p) {
    visit_parameter(prefix + "W_e", f, p.embedding.W_e...);
    visit_parameter(prefix + "W_p", f, p.embedding.W_p...);
    visit_each(prefix + "encoder", f, p.encoder...);
    visit_each(prefix + "decoder", f, p.decoder...);
    visit_parameter(prefix + "W_u", f, p.embedding.W_u...);
  }
};

// theta of Algorithm 9.
template <typename T>
struct ETheta {
  Hyperparameters hyper;
  EmbeddingParameters<T> embedding;
  std::vector<Layer<T>> layer;      // L; layer[l - 1] is layer l
  Matrix<T> W_f;                    // [d_f x d_e], the final projection
  Vector<T> b_f;                    // [d_f]
  NormalizationParameters<T> norm;  // gamma, beta [d_f]

  explicit ETheta(const Hyperparameters& h)
      : hyper(h.resolved()),
        embedding(hyper, hyper.d_f),
        layer(static_cast<std::size_t>(hyper.L), Layer<T>(hyper)),
        W_f(Matrix<T>::Constant(hyper.d_f, hyper.d_e, T(0))),
        b_f(Vector<T>::Constant(hyper.d_f, T(0))),
        norm(hyper.normalization, hyper.d_f) {}

  template <typename F, typename... P>
  static void visit(const std::string& prefix, const F& f, P&... p) {
    visit_parameter(prefix + "W_e", f, p.embedding.W_e...);
    visit_parameter(prefix + "W_p", f, p.embedding.W_p...);
    visit_each(prefix + "layer", f, p.layer...);
    visit_parameter(prefix + "W_f", f, p.W_f...);
    visit_parameter(prefix + "b_f", f, p.b_f...);
    NormalizationParameters<T>::visit(prefix, "", f, p.norm...);
    visit_parameter(prefix + "W_u", f, p.embedding.W_u...);
  }
};

// theta of Algorithm 10.
template <typename T>
struct DTheta {
  Hyperparameters hyper;
  EmbeddingParameters<T> embedding;
  std::vector<Layer<T>> layer;      // L; layer[l - 1] is layer l
  NormalizationParameters<T> norm;  // gamma, beta [d_e], final

  explicit DTheta(const Hyperparameters& h)
      : hyper(h.resolved()),
        embedding(hyper, hyper.d_e),
        layer(static_cast<std::size_t>(hyper.L), Layer<T>(hyper)),
        norm(hyper.normalization, hyper.d_e) {}

  template <typename F, typename... P>
  static void visit(const std::string& prefix, const F& f, P&... p) {
    visit_parameter(prefix + "W_e", f, p.embedding.W_e...);
    visit_parameter(prefix + "W_p", f, p.embedding.W_p...);
    visit_each(prefix + "layer", f, p.layer...);
    NormalizationParameters<T>::visit(prefix, "", f, p.norm...);
    visit_parameter(prefix + "W_u", f, p.embedding.W_u...);
  }
};

}  // namespace qkv::formal
