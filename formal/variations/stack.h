#pragma once

// The layers of a transformer, from the embeddings to the input of the unembedding.

#include <utility>
#include <vector>

#include "formal/named.h"
#include "formal/variations/attention.h"
#include "formal/variations/feed_forward.h"
#include "formal/variations/mixers.h"

namespace qkv::formal {

// Memory that a segment inherits from the one before (Dai et al. 2019, section 3.2). For each layer it has
// the last columns, at most m, that attention read. They are constants: no gradient flows through them.
struct SegmentMemory {
  Index m = 0;
  std::vector<Matrix<double>> M;  // for each layer [d_e x up to m]; empty before the first segment
};

// Attention f over Z = [SG(M) X]: Z [d_e x l_z] -> [d_e x l_z]. Returns X's columns of the result. M
// becomes the memory for the next segment.
template <typename T, typename F>
Matrix<T> with_memory(const Matrix<T>& X, const F& f, Matrix<double>& M, Index m) {
  Matrix<T> Z(X.rows(), M.cols() + X.cols());
  Z << M.template cast<T>(), X;
  const Index kept = std::min(m, Z.cols());
  M = Z.rightCols(kept).unaryExpr([](const T& z) { return value(z); });
  return f(Z).rightCols(X.cols());
}

// The residual stream X, and the second stream Y of reversible layers.
template <typename T>
struct VariedStream {
  Matrix<T> X, Y;

  // Adds a branch f, with its norms.
  template <typename F>
  void add(const F& f, const BranchNorms<T>& n, const VariedHyperparameters& h) {
    const bool two = h.branches == Branches::reversible;
    const T m = h.residual_multiplier;
    Matrix<T>& to = two ? Y : X;
    const auto norm = [&](const Matrix<T>& A, const NormalizationParameters<T>& by) {
      return varied_normalize(A, by, h);
    };
    const auto inner = [&](const Matrix<T>& A) { return named("norm", norm(A, n.inner)); };
    const auto branch = [&](const Matrix<T>& A) { return named("branch", Matrix<T>(m * A)); };
    switch (h.placement) {
      case NormPlacement::pre:
        to = Matrix<T>(to + branch(f(n.reads_norm ? inner(X) : X)));
        break;
      case NormPlacement::post:
        X = Matrix<T>(X + branch(f(X)));
        break;
      case NormPlacement::sandwich:
        to = Matrix<T>(to + branch(norm(f(inner(X)), n.outer)));
        break;
      case NormPlacement::branch:
        to = Matrix<T>(to + branch(norm(f(X), n.outer)));
        break;
      case NormPlacement::none:
        to = Matrix<T>(to + branch(f(X)));
        break;
      case NormPlacement::stream:
        X = inner(X);
        X = Matrix<T>(X + branch(f(X)));
        break;
    }
    named("sum", to);
    if (h.placement == NormPlacement::post) X = inner(X);
    if (two) std::swap(X, Y);
  }
};

// W_out (f(W_gate X) .* e), X [d_e x l], e [d_layer x l] -> [d_e x l].
template <typename T>
Matrix<T> gated_input(const Matrix<T>& X, const Matrix<T>& e, const VariedLayer<T>& layer,
                      const VariedHyperparameters& h) {
  const Matrix<T> gate =
      activate(h.activation, Activation::GELU, Matrix<T>(layer.W_gate * X)).cwiseProduct(e);
  return layer.W_out * named("hidden", gate);
}

// The layers of Algorithm 8, 9 or 10: embeddings X [d_e x l] and, for cross-attention, Z [d_z x l_z] ->
// [d_out() x l]. s gives the texts of X, E [L d_layer x l] the layers' own inputs. With `memory`, X continues
// the text of an earlier call.
template <typename T>
Matrix<T> varied_layers(const Matrix<T>& X, const Matrix<T>& Z, const Tokens& s, const VariedStack<T>& stack,
                        const VariedHyperparameters& h, SegmentMemory* memory = nullptr,
                        const Matrix<T>& E = {}) {
  if (memory != nullptr) memory->M.resize(static_cast<std::size_t>(h.L), Matrix<double>(h.d_e, 0));
  VariedStream<T> stream{X, X};
  Matrix<T> first_values;  // RWKV-7's
  std::vector<KeysAndValues<T>> keys(static_cast<std::size_t>(h.L));
  for (std::size_t l = 0; l < static_cast<std::size_t>(h.L); ++l) {
    const Scope of_layer(indexed("layer", l + 1));
    const VariedLayer<T>& layer = stack.layer[l * stack.layer.size() / static_cast<std::size_t>(h.L)];
    const VariedHyperparameters& its = h.of_layer(l);
    DistanceTables<T> tables = stack.distances[h.kind(l)];
    if (its.biases_by_layer) tables.B = layer.B;
    if (its.normed_distances) tables.P = varied_normalize(tables.P, tables.norm_P, its);
    const auto over = [&](const Matrix<T>& X) {
      const KeysAndValues<T>* given = its.keys_of_kind >= 0 ? &keys[h.keys_of(l)] : nullptr;
      const AttentionPlace<T> place{l, varied_mask(X.cols(), l, its), &tables, s, given, &keys[l]};
      return varied_attention(X, X, layer.W, place, its);
    };
    const auto mixer = [&](const Matrix<T>& X) {
      if (its.mixer != Mixer::attention) return varied_mixer(X, layer.mixer, its, first_values);
      return memory == nullptr ? over(X) : with_memory(X, over, memory->M[l], memory->m);
    };
    const auto cross_attention = [&](const Matrix<T>& X) {
      const AttentionPlace<T> place{l, bidirectional_mask(Z.cols(), X.cols()), nullptr, {}};
      return varied_attention(X, Z, layer.W_ed, place, its.of_cross_attention());
    };
    const auto mlp = [&](const Matrix<T>& X) { return varied_MLP(X, layer, l, its); };
    const auto add = [&](const char* name, const auto& f, const BranchNorms<T>& norms) {
      const Scope of_branch(name);
      stream.add(f, norms, its);
    };
    if (h.branches == Branches::serial || h.branches == Branches::reversible) {
      add("mixer", mixer, layer.norm);
      if (h.d_z > 0) add("cross_attention", cross_attention, layer.norm_ed);
      if (its.d_mlp > 0) add("feed_forward", mlp, layer.norm_mlp);
      if (h.d_layer > 0) {
        const Scope of_input("layer_input");
        const Matrix<T> e = E.middleRows(static_cast<Index>(l) * h.d_layer, h.d_layer),
                        branch =
                            varied_normalize(gated_input(stream.X, e, layer, its), layer.norm_layer, its);
        stream.X = named(
            "sum", Matrix<T>(stream.X + named("branch", Matrix<T>(T(its.residual_multiplier) * branch))));
      }
      if (!h.layer_scales.empty()) stream.X = named("scaled", Matrix<T>(stream.X * T(h.layer_scales[l])));
      continue;
    }
    const Matrix<T> first = varied_normalize(stream.X, layer.norm.inner, its),
                    second = h.branches == Branches::one_norm
                                 ? first
                                 : varied_normalize(stream.X, layer.norm_mlp.inner, its);
    const auto within = [](const char* name, const auto& f, const Matrix<T>& A) {
      const Scope of_branch(name);
      return named("branch", f(A));
    };
    const Matrix<T> both = within("mixer", mixer, first) + within("feed_forward", mlp, second);
    const Scope of_sum("parallel");
    if (h.branches == Branches::one_norm) named("norm", first);
    stream.X =
        named("sum", Matrix<T>(stream.X + named("branch", Matrix<T>(T(its.residual_multiplier) * both))));
  }
  Matrix<T> out = stream.X;
  if (h.branches == Branches::reversible) {
    out.resize(2 * h.d_e, X.cols());
    out << stream.Y, stream.X;
    named("streams", out);
  }
  return h.ends_with_norm() ? named("norm", varied_normalize(out, stack.norm, h)) : out;
}

}  // namespace qkv::formal
