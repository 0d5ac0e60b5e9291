#include "qkv/trace/circuits.h"

#include <fmt/format.h>

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "qkv/autograd/graph.h"
#include "qkv/ops/dequantize.h"
#include "qkv/ops/elementwise.h"
#include "qkv/ops/linear.h"
#include "qkv/trace/lens.h"

namespace qkv {
namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

// The weights of a head as the paper has them, [d, D]: its queries are W_q x^T, and it writes W_o z.
struct HeadWeights {
  int64_t layer, head;
  Matrix q, k, v, o;  // o: [d_v, D]
};

Matrix matrix_of(const Tensor& x) {
  return Eigen::Map<const Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>(
             x.values<float>().data(), x.rows(), x.width())
      .cast<double>();
}

Tensor tensor_of(const Matrix& x) {
  Tensor out = Tensor::empty({x.rows(), x.cols()}, DType::f32);
  std::ranges::transform(std::span(x.data(), static_cast<size_t>(x.size())),
                         out.mutable_values<float>().begin(), [](double v) { return static_cast<float>(v); });
  return out;
}

class Weights {
 public:
  explicit Weights(const Transformer& model) : model_(model), spec_(model.spec()) {}

  // A matrix [out, D] that reads rows behind a norm: of the rows before it, but for their scale.
  Matrix reading(Matrix w, const std::string& norm, Normalization kind) const {
    scale(w, norm, kind);
    centre(w, kind);
    return w;
  }
  // A matrix [in, D] whose rows a norm follows: what leaves it, but for the scale.
  Matrix writing(Matrix w, const std::string& norm, Normalization kind) const {
    centre(w, kind);
    scale(w, norm, kind);
    return w;
  }
  Matrix matrix(const std::string& name) const {
    const Tensor x = find(name + ".weight");
    check(x.defined(), "circuits: there is no {}.weight", name);
    return matrix_of(x);
  }

  std::vector<HeadWeights> heads() const {
    using enum NormPlacement;
    std::vector<HeadWeights> out;
    const std::string stack = last_stack_of(spec_);
    for (int64_t l = 0; l < spec_.layers; ++l) {
      const BlockSpec& block = spec_.block(l);
      if (!block.mixer.attends()) continue;
      const AttentionSpec& a = block.attention;
      const std::string name = fmt::format("{}.block.{}.attention", stack, spec_.owner_of(l, spec_.layers));
      Matrix qkv = matrix(name + ".qkv"), o = matrix(name + ".out").transpose();
      const NormPlacement placement = block.norm_placement;
      if (block.mixer_norm && (placement == pre || placement == sandwich || placement == stream))
        qkv = reading(std::move(qkv), name + ".norm", block.normalization);
      if (placement == branch || placement == sandwich)
        o = writing(std::move(o), name + ".branch_norm", block.normalization);
      const int64_t keys = a.heads * a.d_qk, values = keys + a.kv_heads * a.d_qk;
      for (int64_t h = 0; h < a.heads; ++h) {
        const int64_t kv = h / (a.heads / a.kv_heads);
        out.push_back({l, h, qkv.middleRows(h * a.d_qk, a.d_qk), qkv.middleRows(keys + kv * a.d_qk, a.d_qk),
                       qkv.middleRows(values + kv * a.d_vo, a.d_vo), o.middleRows(h * a.d_vo, a.d_vo)});
      }
    }
    return out;
  }

  // W_e, [V, D].
  Tensor tokens() const { return find("embedding.token"); }
  // A matrix [., D] that reads what leaves the last block.
  Matrix unembedding(Matrix w) const {
    return spec_.ends_with_norm() ? reading(std::move(w), last_stack_of(spec_) + ".norm", spec_.normalization)
                                  : w;
  }

 private:
  void scale(Matrix& w, const std::string& norm, Normalization kind) const {
    const Tensor gamma = find(norm + ".gamma");
    if (!gamma.defined()) return;
    const bool plus_one = kind == Normalization::rms_plus_one || kind == Normalization::layer_plus_one;
    for (Eigen::Index c = 0; c < w.cols(); ++c)
      w.col(c) *= gamma.values<float>()[gamma.count() == 1 ? 0 : c] + (plus_one ? 1.0 : 0.0);
  }
  // Layer norms subtract the mean of a row.
  static void centre(Matrix& w, Normalization kind) {
    if (kind == Normalization::layer || kind == Normalization::layer_scale ||
        kind == Normalization::layer_plain || kind == Normalization::layer_plus_one)
      w.colwise() -= w.rowwise().mean().eval();
  }
  Tensor find(const std::string& name) const {
    const auto& all = model_.parameters().all();
    const auto at = std::ranges::find(all, name, &Parameter::name);
    return at == all.end() ? Tensor() : dequantized(at->weight(), DType::f32);
  }

  const Transformer& model_;
  const ModelSpec& spec_;
};

// R of w^T = Q R: [min(d, D), d], for w [d, D].
Matrix triangle(const Matrix& w) {
  const Eigen::HouseholderQR<Matrix> qr(w.transpose());
  const Eigen::Index rows = std::min(w.rows(), w.cols());
  return qr.matrixQR().topRows(rows).triangularView<Eigen::Upper>();
}

// The singular values of a^T b.
std::vector<double> singular_values(const Matrix& a, const Matrix& b) {
  const Eigen::JacobiSVD<Matrix> svd(triangle(a) * triangle(b).transpose());
  return {svd.singularValues().begin(), svd.singularValues().end()};
}

std::vector<std::complex<double>> eigenvalues(const Matrix& square) {
  const auto values = Eigen::EigenSolver<Matrix>(square, false).eigenvalues();
  std::vector<std::complex<double>> out(values.begin(), values.end());
  std::ranges::sort(out, std::greater{}, [](const auto& z) { return std::abs(z); });
  return out;
}

// From -1 to 1.
double positive_share(const std::vector<std::complex<double>>& values) {
  double sum = 0, sizes = 0;
  for (const auto& z : values) {
    sum += z.real();
    sizes += std::abs(z);
  }
  return sizes > 0 ? sum / sizes : 0;
}

// a^T b of [V, D] each, for large V.
Matrix product_over_tokens(const Tensor& a, const Weight& b) {
  constexpr int64_t kAtOnce = 4096;
  Matrix out = Matrix::Zero(a.width(), b.dim(1));
  for (int64_t v = 0; v < a.rows(); v += kAtOnce) {
    const auto turned = [&](const Weight& x) {
      return tensor_of(
          matrix_of(dequantized(x.slice_rows(v, std::min(v + kAtOnce, x.dim(0))), DType::f32)).transpose());
    };
    out += matrix_of(linear(turned(a), turned(b), {}));
  }
  return out;
}

// The compositions of heads in [begin, end) with those of later layers.
void compose(const std::vector<HeadWeights>& heads, std::vector<Composition>& out) {
  const auto layer_end = [&](size_t begin) {
    size_t end = begin;
    while (end < heads.size() && heads[end].layer == heads[begin].layer) ++end;
    return end;
  };
  // A head's |W_V W_O^T X| is |R W_O^T X| with the triangle R of W_V, and likewise for readers: one product
  // for all heads of two layers has them all.
  const auto stacked = [&](size_t begin, size_t end, Matrix HeadWeights::*of, Matrix HeadWeights::*other,
                           std::vector<double>& norms, Eigen::Index& rows) {
    std::vector<Matrix> parts;
    for (size_t h = begin; h < end; ++h) {
      parts.push_back(triangle(heads[h].*other) * heads[h].*of);
      norms.push_back(parts.back().norm());
    }
    rows = parts[0].rows();
    Matrix all(rows * std::ssize(parts), parts[0].cols());
    for (size_t p = 0; p < parts.size(); ++p)
      all.middleRows(static_cast<Eigen::Index>(p) * rows, rows) = parts[p];
    return tensor_of(all);
  };
  struct Side {
    Tensor rows;
    std::vector<double> norms;
    Eigen::Index each = 0;
  };
  struct Layer {
    size_t begin, end;
    Side writes, query, key, value;
  };
  std::vector<Layer> layers;
  for (size_t begin = 0; begin < heads.size(); begin = layers.back().end) {
    Layer l{begin, layer_end(begin), {}, {}, {}, {}};
    const auto side = [&](Side& s, Matrix HeadWeights::*of, Matrix HeadWeights::*other) {
      s.rows = stacked(l.begin, l.end, of, other, s.norms, s.each);
    };
    side(l.writes, &HeadWeights::o, &HeadWeights::v);
    side(l.query, &HeadWeights::q, &HeadWeights::k);
    side(l.key, &HeadWeights::k, &HeadWeights::q);
    side(l.value, &HeadWeights::v, &HeadWeights::o);
    layers.push_back(std::move(l));
  }
  for (size_t first = 0; first < layers.size(); ++first)
    for (size_t second = first + 1; second < layers.size(); ++second) {
      const Layer &a = layers[first], &b = layers[second];
      const size_t at = out.size();
      for (size_t w = a.begin; w < a.end; ++w)
        for (size_t r = b.begin; r < b.end; ++r)
          out.push_back({static_cast<int64_t>(w), static_cast<int64_t>(r)});
      const auto fill = [&](const Side& reader, double Composition::*to) {
        const Matrix all = matrix_of(linear(a.writes.rows, reader.rows, {}));
        size_t place = at;
        for (size_t w = 0; w < a.end - a.begin; ++w)
          for (size_t r = 0; r < b.end - b.begin; ++r)
            out[place++].*to =
                all.block(static_cast<Eigen::Index>(w) * a.writes.each,
                          static_cast<Eigen::Index>(r) * reader.each, a.writes.each, reader.each)
                    .norm() /
                std::max(a.writes.norms[w] * reader.norms[r], 1e-300);
      };
      fill(b.query, &Composition::query);
      fill(b.key, &Composition::key);
      fill(b.value, &Composition::value);
    }
}

}  // namespace

int64_t rank_of(const std::vector<double>& singular) {
  constexpr double kRounding = 1e-5;  // error of products of f32 weights, relative to the largest
  return std::ranges::count_if(singular, [&](double s) { return s > kRounding * singular.front(); });
}

std::string why_no_circuits(const ModelSpec& spec) {
  if (!spec.has_blocks() || !spec.any_attends()) return "circuits are of attention heads, and it has none";
  if (spec.branches == Branches::reversible) return "circuits are of one residual stream, and it has two";
  for (const BlockSpec* block : spec.blocks_in_use()) {
    const AttentionSpec& a = block->attention;
    if (block->mixer.attends() && block->mixer.get_if<AttentionMixer>() == nullptr)
      return fmt::format("circuits are not known of the mixer {}", name_of(block->mixer.kind()));
    if (a.query_key_norm != QueryKeyNorm::none || a.value_norm || a.clip > 0)
      return "circuits are products of weights, but norms or limits act on its queries, keys or values";
    if (a.gated || !a.head_sizes.empty() || !a.shared_query_key.empty() || a.values_of_keys || a.reused_keys)
      return "circuits are not known of heads of several sizes, or of shared queries, keys and values";
  }
  if (spec.lora.any() || !spec.lora.adapters.empty())
    return "circuits are of plain weights: merge its adapters first (qkv merge)";
  return "";
}

Circuits circuits_of(const Transformer& model) {
  const ModelSpec& spec = model.spec();
  const std::string why = why_no_circuits(spec);
  check(why.empty(), "{}", why);
  const NoGrad guard;
  const Weights weights(model);
  const std::vector<HeadWeights> heads = weights.heads();
  Circuits out;
  // Embeddings as W_e^T W_e and W_e^T W_u over all tokens: [D, D].
  Matrix embedded, unembedded;
  const Tensor tokens = weights.tokens();
  if (tokens.width() == spec.width && !spec.embedding_norm && !spec.features.any()) {
    embedded = product_over_tokens(tokens, tokens);
    if (spec.output == Output::tokens && spec.head_width == 0)
      unembedded = weights.unembedding(product_over_tokens(tokens, model.unembedding()));
  }
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  for (const HeadWeights& w : heads) {
    HeadCircuits head{w.layer, w.head};
    head.qk_singular = singular_values(w.q, w.k);
    head.ov_singular = singular_values(w.v, w.o);
    // Eigenvalues of a^T b are those of b a^T, and zeros.
    head.qk_eigenvalues = eigenvalues(w.k * w.q.transpose());
    head.ov_eigenvalues = eigenvalues(w.o * w.v.transpose());
    head.matching =
        embedded.size() > 0 ? positive_share(eigenvalues(w.k * embedded * w.q.transpose())) : kNone;
    head.copying = unembedded.size() > 0
                       ? positive_share(eigenvalues(w.o * unembedded.transpose() * w.v.transpose()))
                       : kNone;
    out.heads.push_back(std::move(head));
  }
  compose(heads, out.composed);
  return out;
}

}  // namespace qkv
