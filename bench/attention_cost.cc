// Measures attention under one pattern at one length, or what stands in its place: a forward pass, and one
// with its gradients. Prints
//   forward_ms step_ms forward_gflops step_gflops visited_tiles tiles peak_mb
// where the rates count the arithmetic on tiles that the pattern does not empty, of --rule that of its
// matrices. bench/attention_cost.py draws the curves.
//
//   attention_cost [--pattern all] [--length 4096] [--encoder] [--dtype f32|bf16] [--heads 2] [--distances 0]
//   attention_cost --rule linear|normalised|delta [--length 4096] [--dtype f32|bf16] [--heads 2]
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "bench/measure.h"
#include "qkv/autograd/graph.h"
#include "qkv/base/parallel.h"
#include "qkv/models/spec.h"
#include "qkv/ops/attention.h"
#include "qkv/ops/elementwise.h"
#include "qkv/ops/fast_weights.h"
#include "qkv/ops/feature_map.h"
#include "qkv/ops/relative_products.h"

namespace qkv {
namespace {

constexpr int64_t kWidth = 64;  // width of a head

struct Options {
  std::string pattern = "all", dtype = "f32", rule = {};
  int64_t length = 4096, heads = 2, distances = 0;
  bool encoder = false;
};

void run_rule(const Options& o) {
  const DType dtype = o.dtype == "bf16" ? DType::bf16 : DType::f32;
  const std::vector<int32_t> offsets = {0, static_cast<int32_t>(o.length)};
  const int64_t columns = o.heads * kWidth;
  Tensor q = draw(o.length, columns, 1, dtype), k = draw(o.length, columns, 2, dtype),
         v = draw(o.length, columns, 3, dtype);
  const Tensor dout = draw(o.length, columns, 4, dtype);
  Tensor beta = activation(Activation::sigmoid, draw(o.length, o.heads, 5, DType::f32));
  const FeatureMap features = o.rule == "linear"       ? FeatureMap::identity
                              : o.rule == "normalised" ? FeatureMap::elu
                                                       : FeatureMap::unit;
  const auto forward = [&] {
    FastWeightsInput in;
    in.heads = in.key_heads = o.heads;
    in.q = feature_map(features, q, o.heads);
    in.k = feature_map(features, k, o.heads);
    in.v = v;
    if (o.rule == "normalised") in.epsilon = 1e-6F;
    if (o.rule == "delta") in.beta = beta;
    return fast_weights(in, {}, offsets, offsets, true).y;
  };
  const double forward_ms = milliseconds(forward);
  const auto of_q = make_leaf(q, Tensor::zeros(q.shape(), DType::f32)),
             of_k = make_leaf(k, Tensor::zeros(k.shape(), DType::f32)),
             of_v = make_leaf(v, Tensor::zeros(v.shape(), DType::f32)),
             of_beta = make_leaf(beta, Tensor::zeros(beta.shape(), DType::f32));
  const double step_ms = milliseconds([&] {
    const Seed seed{forward(), dout};
    backward(std::span(&seed, 1));
  });
  // Multiplications of each number of a matrix for a token: forward to write and to read, with the delta rule
  // to look up, too; backward those again, and one for each gradient and what it is made of.
  const bool delta = o.rule == "delta";
  const double once = 2.0 * static_cast<double>(o.length * columns * kWidth);
  fmt::print("{:.3f} {:.3f} {:.1f} {:.1f} 1 1 {:.0f}\n", forward_ms, step_ms,
             (delta ? 4 : 2) * once / forward_ms / 1e6, (delta ? 16 : 8) * once / step_ms / 1e6, peak_mb());
}

void run(const Options& o) {
  const DType dtype = o.dtype == "bf16" ? DType::bf16 : DType::f32;
  const Mask mask = (o.encoder ? Mask::full() : Mask::causal()).with(pattern_from_text(o.pattern));
  const Mask its = mask.of_length(o.length);
  int64_t tiles = 0, visited = 0;
  for (int64_t q = 0; q < o.length; q += kKeyTile)
    for (int64_t k = 0; k < o.length; k += kKeyTile, ++tiles)
      visited += its.cover(q, std::min(o.length, q + kKeyTile), k, std::min(o.length, k + kKeyTile)) !=
                 TileCover::empty;
  const std::vector<int32_t> offsets = {0, static_cast<int32_t>(o.length)};
  const int64_t columns = o.heads * kWidth;
  Tensor qkv = draw(o.length, 3 * columns, 1, dtype);
  const Tensor dout = draw(o.length, columns, 2, dtype);
  AttentionOptions options;
  options.mask = mask;
  options.scale = 1 / std::sqrt(static_cast<float>(kWidth));
  // Shaw's vectors for distances up to o.distances; none if that is 0.
  const DistanceRows rows{DistanceRows::Kind::behind, std::max<int64_t>(0, o.distances)};
  Tensor vectors = draw(rows.rows(), kWidth, 3, dtype);
  const auto forward = [&] {
    if (o.distances > 0) {
      options.pair.by_query =
          relative_products({qkv, 0, o.heads, kWidth}, {vectors, 0, 1, kWidth}, o.heads, options.scale);
      options.pair.columns = rows.columns(o.length - 1);
    }
    return attention({qkv, 0, o.heads, kWidth}, {qkv, columns, o.heads, kWidth},
                     {qkv, 2 * columns, o.heads, kWidth}, offsets, KeyLayout::contiguous(offsets), options);
  };
  const double forward_ms = milliseconds(forward);
  const auto leaf = make_leaf(qkv, Tensor::zeros(qkv.shape(), DType::f32));
  const auto of_vectors = make_leaf(vectors, Tensor::zeros(vectors.shape(), DType::f32));
  const double step_ms = milliseconds([&] {
    const Seed seed{forward(), dout};
    backward(std::span(&seed, 1));
  });
  // Products: S and O forward; S, dP, dV, dK and dQ backward.
  const double product = 2.0 * static_cast<double>(visited * kKeyTile * kKeyTile * kWidth * o.heads);
  fmt::print("{:.3f} {:.3f} {:.1f} {:.1f} {} {} {:.0f}\n", forward_ms, step_ms,
             2 * product / forward_ms / 1e6, 7 * product / step_ms / 1e6, visited, tiles, peak_mb());
}

}  // namespace
}  // namespace qkv

int main(int argc, char** argv) {
  qkv::Options o;
  CLI::App app("What attention costs under a pattern");
  app.add_option("--pattern", o.pattern);
  app.add_option("--length", o.length)->check(CLI::Range(1, 1 << 20));
  app.add_option("--heads", o.heads)->check(CLI::Range(1, 64));
  app.add_option("--dtype", o.dtype)->check(CLI::IsMember({"f32", "bf16"}));
  app.add_flag("--encoder", o.encoder);
  app.add_option("--distances", o.distances, "Scores know distances up to this by vectors")
      ->check(CLI::Range(0, 1 << 16));
  app.add_option("--rule", o.rule, "Fast weights in place of attention")
      ->check(CLI::IsMember({"linear", "normalised", "delta"}));
  CLI11_PARSE(app, argc, argv);
  try {
    o.rule.empty() ? qkv::run(o) : qkv::run_rule(o);
  } catch (const std::exception& e) {
    fmt::print(stderr, "attention_cost: {}\n", e.what());
    return 1;
  }
  return 0;
}
