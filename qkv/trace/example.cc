#include "qkv/trace/example.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace qkv {
namespace {

using Rows = std::vector<std::vector<double>>;
using Names = std::vector<std::string>;

// The numbers that the slides start from: rows of W are inputs, as in X W.
const Names kTokens = {"when", "you", "play", "game", "of", "thrones"};
const Names kDecoderTokens = {"<start>", "you", "win", "or", "you", "die", "<end>"};
const Rows kEmbedding = {{0.79, 0.6, 0.96, 0.64, 0.97, 0.2},    {0.38, -0.37, 0.01, -0.21, 0.9, -0.26},
                         {0.01, 1.93, 0.18, 0.31, 0.56, 0.59},  {0.12, 1.73, 0.52, -0.77, 0.06, -0.63},
                         {0.88, 1.24, 0.62, -0.36, 0.49, -0.3}, {0.6, 1.02, 0.53, 0.51, 0.93, 0.21}};
const Rows kDecoderEmbedding = {
    {0.51, 0.83, 0.22, 0.04, -0.11, 0.2},    {0.38, -0.37, -0.15, -0.55, 0.85, -1.8},
    {0.91, 1.92, -0.14, 0.2, 0.77, 0.59},    {0.12, 0.03, 0.05, -0.58, -0.57, -0.62},
    {0.38, -0.37, -0.15, -0.55, 0.85, -1.8}, {0.6, 1.22, -0.12, -1.01, 0.31, 0.24},
    {0.11, 0.12, -0.5, 0.01, 1.3, 0.012}};
const Rows kQuery = {{0.52, 0.45, 0.91, 0.69}, {0.05, 0.85, 0.37, 0.83}, {0.49, 0.1, 0.56, 0.61},
                     {0.71, 0.64, 0.4, 0.14},  {0.76, 0.27, 0.92, 0.67}, {0.85, 0.56, 0.57, 0.07}};
const Rows kKey = {{0.74, 0.57, 0.21, 0.73}, {0.55, 0.16, 0.9, 0.17},  {0.25, 0.74, 0.8, 0.98},
                   {0.8, 0.73, 0.2, 0.31},   {0.37, 0.96, 0.42, 0.08}, {0.28, 0.41, 0.87, 0.86}};
const Rows kValue = {{0.62, 0.07, 0.7, 0.95},  {0.2, 0.97, 0.61, 0.35},  {0.57, 0.8, 0.61, 0.5},
                     {0.67, 0.35, 0.98, 0.54}, {0.47, 0.83, 0.34, 0.94}, {0.6, 0.69, 0.13, 0.98}};
const Rows kOutput = {{0.8, 0.34, 0.45, 0.54, 0.07, 0.53},
                      {0.85, 0.74, 0.78, 0.5, 0.75, 0.55},
                      {0.53, 0.81, 0.55, 0.59, 0.49, 0.14},
                      {0.7, 0.6, 0.12, 0.42, 0.29, 0.87}};
const Rows kFeedForward = {{0.5, 0.05, 0.97, 0.22, 0.56, 0.02},  {0.17, 0.52, 0.63, 0.48, 0.06, 0.6},
                           {0.53, 0.87, 0.47, 0.1, 0.31, 0.79},  {0.83, 0.58, 0.38, 0.09, 0.64, 0.25},
                           {0.81, 0.85, 0.74, 0.35, 0.31, 0.53}, {0.25, 0.31, 0.22, 0.77, 0.57, 0.85}};
const std::vector<double> kBias = {0.42, 0.18, 0.25, 0.42, 0.35, 0.45};
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// As printed with so many digits; halves go to the even digit.
Rows rounded(Rows x, int digits) {
  const double by = std::pow(10.0, digits);
  for (auto& row : x)
    for (double& v : row) v = std::nearbyint(std::nearbyint(v * by * 1e6) / 1e6) / by;
  return x;
}

Rows transposed(const Rows& x) {
  Rows out(x[0].size(), std::vector<double>(x.size()));
  for (size_t i = 0; i < x.size(); ++i)
    for (size_t j = 0; j < x[i].size(); ++j) out[j][i] = x[i][j];
  return out;
}

Rows product(const Rows& x, const Rows& w) {
  Rows out(x.size(), std::vector<double>(w[0].size(), 0));
  for (size_t i = 0; i < x.size(); ++i)
    for (size_t j = 0; j < w[0].size(); ++j)
      for (size_t k = 0; k < w.size(); ++k) out[i][j] += x[i][k] * w[k][j];
  return out;
}

template <typename F>
Rows mapped(Rows x, const F& f) {
  for (auto& row : x)
    for (double& v : row) v = f(v);
  return x;
}

Rows sum(Rows x, const Rows& y) {
  for (size_t i = 0; i < x.size(); ++i)
    for (size_t j = 0; j < x[i].size(); ++j) x[i][j] += y[i][j];
  return x;
}

Rows softmax(Rows x) {
  for (auto& row : x) {
    const double top = *std::ranges::max_element(row);
    double all = 0;
    for (double& v : row) all += v = std::exp(v - top);
    for (double& v : row) v /= all;
  }
  return x;
}

// (x - mean) / (s + epsilon), s the sample standard deviation.
Rows normalized(Rows x, double epsilon) {
  for (auto& row : x) {
    double mean = 0, squares = 0;
    for (const double v : row) mean += v / static_cast<double>(row.size());
    for (const double v : row) squares += (v - mean) * (v - mean);
    const double s = std::sqrt(squares / static_cast<double>(row.size() - 1));
    for (double& v : row) v = (v - mean) / (s + epsilon);
  }
  return x;
}

Rows positions(size_t tokens, size_t width) {
  Rows out(tokens, std::vector<double>(width));
  for (size_t pos = 0; pos < tokens; ++pos)
    for (size_t x = 0; x < width; ++x) {
      const double angle = static_cast<double>(pos) /
                           std::pow(10000.0, static_cast<double>(x - x % 2) / static_cast<double>(width));
      out[pos][x] = x % 2 == 0 ? std::sin(angle) : std::cos(angle);
    }
  return out;
}

// 0 where a query may attend to a key, minus infinity elsewhere.
Rows mask(size_t length, size_t queries, size_t keys, bool causal) {
  Rows out(length, std::vector<double>(length, -kInfinity));
  for (size_t q = 0; q < queries; ++q)
    for (size_t k = 0; k < keys; ++k)
      if (!causal || k <= q) out[q][k] = 0;
  return out;
}

Names padded(Names names, size_t length) {
  names.resize(length, "PAD");
  return names;
}

Rows padded(Rows x, size_t length) {
  x.resize(length, std::vector<double>(x[0].size(), 0));
  return x;
}

}  // namespace

std::vector<ExampleTable> worked_example() {
  constexpr size_t kLength = 10;  // n_sequence of the masks
  std::vector<ExampleTable> all;
  const auto add = [&](ExampleTable table) { all.push_back(std::move(table)); };
  add({"2",
       "static embedding",
       "E",
       "embedding",
       kTokens,
       {},
       kEmbedding,
       2,
       "The vector that the slide repeats for \"of\" is another one: its column of this table is used."});
  const Rows pe = rounded(positions(kTokens.size(), 6), 4);
  add({"3",
       "positional encoding",
       "PE(x | pos) = sin(pos / 10000^(x/d)), cos(pos / 10000^((x-1)/d)) for odd x",
       "positional_encoding",
       kTokens,
       {},
       pe,
       4});
  const Rows x = rounded(sum(kEmbedding, pe), 2);
  add({"4", "input", "X = E + PE", "input", kTokens, {}, x, 2});
  const Rows q = rounded(product(x, kQuery), 2), k = rounded(product(x, kKey), 2),
             v = rounded(product(x, kValue), 2);
  add({"5.1", "queries", "Q = X W^Q", "Q", kTokens, {}, q, 2});
  add({"5.1", "keys", "K = X W^K", "K", kTokens, {}, k, 2});
  add({"5.1", "values", "V = X W^V", "V", kTokens, {}, v, 2});
  const Rows scores = product(q, transposed(k));
  add({"5.2", "scores", "Q K^T", "Q_K_transposed", kTokens, kTokens, rounded(scores, 2), 2});
  const auto half = [](double s) { return s / 2; };
  add({"5.2", "scaled scores", "Q K^T / sqrt(d_k), d_k = 4", "scaled_scores", kTokens, kTokens,
       rounded(mapped(rounded(scores, 2), half), 2), 2,
       "Halves of an odd last digit are printed rounded up in some cells, and down in others."});
  const Rows weights = rounded(softmax(mapped(scores, half)), 4);
  add({"5.3", "softmax", "softmax(Q K^T / sqrt(d_k))", "softmax", kTokens, kTokens, weights, 4,
       "Its sum runs over the keys, not to d. It is taken of the scores before they are rounded."});
  const Rows z = rounded(product(weights, v), 4);
  add({"5.3", "output of the head", "Z = softmax(Q K^T / sqrt(d_k)) V", "Z", kTokens, {}, z, 4});
  const Rows attended = rounded(product(z, kOutput), 2);
  add({"5.4", "output of the attention", "Z W^O", "multi_head_output", kTokens, {}, attended, 2});
  const Rows added = rounded(sum(x, attended), 2);
  add({"6", "add", "X + Z W^O", "matrix_to_normalize", kTokens, {}, added, 2});
  const Rows normed = rounded(normalized(added, 1e-4), 4);
  add({"6",
       "normalize",
       "(x - mean) / (s + 0.0001), s the sample standard deviation",
       "normalized",
       kTokens,
       {},
       normed,
       4,
       "Algorithm 6 divides by the root of the variance, over d and not d - 1."});
  const Rows product_w = rounded(product(normed, kFeedForward), 4);
  add({"7", "linear layer", "X W", "XW", kTokens, {}, product_w, 4});
  const Rows biased = rounded(sum(product_w, Rows(product_w.size(), kBias)), 4);
  add({"7", "bias", "X W + b", "XW_plus_b", kTokens, {}, biased, 4});
  add({"7",
       "activation",
       "max{0, X W + b}",
       "relu",
       kTokens,
       {},
       mapped(biased, [](double y) { return std::max(0.0, y); }),
       4});
  add({"8",
       "padded input of the encoder",
       "E, then zeros up to n_sequence = 10",
       "padded_embedding",
       padded(kTokens, kLength),
       {},
       padded(kEmbedding, kLength),
       2,
       "The slide repeats the embeddings with 20 other numbers; those of step 2, which the input follows "
       "from, are used."});
  add({"8", "mask of padding", "MASK, added to Q K^T", "mask_padding", padded(kTokens, kLength),
       padded(kTokens, kLength), mask(kLength, kTokens.size(), kTokens.size(), false), 0,
       "Rows of padding are minus infinity in all columns, whose softmax is 0/0. qkv has no padding: such "
       "rows do not exist."});
  add({"8",
       "input of the decoder",
       "E of the decoder",
       "decoder_embedding",
       padded(kDecoderTokens, kLength),
       {},
       padded(kDecoderEmbedding, kLength),
       2});
  add({"8", "mask of the masked attention", "MASK, minus infinity for later tokens", "mask_masked",
       padded(kDecoderTokens, kLength), padded(kDecoderTokens, kLength),
       mask(kLength, kDecoderTokens.size(), kDecoderTokens.size(), true), 0,
       "The slide has six rows of tokens; the decoder has seven, and <end> may attend to keys 1 to 7."});
  add({"9", "mask of the cross-attention", "MASK, for queries of the decoder and keys of the encoder",
       "mask_cross", padded(kDecoderTokens, kLength), padded(kTokens, kLength),
       mask(kLength, kDecoderTokens.size(), kTokens.size(), false), 0});
  return all;
}

}  // namespace qkv
