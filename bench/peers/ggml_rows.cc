// Rows of every block format, encoded and decoded by qkv and by ggml's library, which is opened at run time.
//   ggml_rows FOLDER [ROWS] [SEED]
// FOLDER has libggml-base.so, as that of the npm package @node-llama-cpp/linux-x64. Draws ROWS rows (2000) of
// several kinds and widths for each type, with and without importance. Prints a line for each type:
//   q4_k plain ROWS DIFFERENT importance ROWS DIFFERENT decoded ROWS DIFFERENT
// Exits with 1 if any row differs in a byte.
#include <dlfcn.h>
#include <fmt/core.h>

#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "qkv/base/error.h"
#include "qkv/base/rng.h"
#include "qkv/quant/quantize.h"

namespace qkv {
namespace {

struct Peer {
  WeightType type;
  int number;           // in ggml's enum
  const char* decoder;  // with its signature (blocks, numbers, count)
};
constexpr Peer kPeers[] = {
    {WeightType::f16, 1, "ggml_fp16_to_fp32_row"},     {WeightType::bf16, 30, "ggml_bf16_to_fp32_row"},
    {WeightType::q4_0, 2, "dequantize_row_q4_0"},      {WeightType::q4_1, 3, "dequantize_row_q4_1"},
    {WeightType::q5_0, 6, "dequantize_row_q5_0"},      {WeightType::q5_1, 7, "dequantize_row_q5_1"},
    {WeightType::q8_0, 8, "dequantize_row_q8_0"},      {WeightType::q2_k, 10, "dequantize_row_q2_K"},
    {WeightType::q3_k, 11, "dequantize_row_q3_K"},     {WeightType::q4_k, 12, "dequantize_row_q4_K"},
    {WeightType::q5_k, 13, "dequantize_row_q5_K"},     {WeightType::q6_k, 14, "dequantize_row_q6_K"},
    {WeightType::iq4_nl, 20, "dequantize_row_iq4_nl"}, {WeightType::iq4_xs, 23, "dequantize_row_iq4_xs"},
    {WeightType::mxfp4, 39, "dequantize_row_mxfp4"},
};

using Encode = size_t (*)(int type, const float* from, void* to, int64_t start, int64_t rows, int64_t width,
                          const float* importance);
using Decode = void (*)(const void* blocks, float* numbers, int64_t count);

class Library {
 public:
  explicit Library(const std::string& path) : handle_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (!handle_) fail("{}", dlerror());
  }
  template <typename Function>
  Function find(const char* name) const {
    void* symbol = dlsym(handle_, name);
    check(symbol != nullptr, "{} is not in the library", name);
    return reinterpret_cast<Function>(symbol);
  }

 private:
  void* handle_;
};

// Numbers that come one after the other.
class Draws {
 public:
  explicit Draws(uint64_t seed) : stream_{.seed = seed, .step = 0, .site = 0} {}
  float normal() { return static_cast<float>(stream_.normal(next_++)); }
  uint64_t below(uint64_t n) {
    return static_cast<uint64_t>(stream_.uniform(next_++) * static_cast<double>(n));
  }

 private:
  RandomStream stream_;
  uint64_t next_ = 0;
};

std::vector<float> draw_row(Draws& draws, int64_t width) {
  std::vector<float> x(static_cast<size_t>(width));
  const float spread = std::pow(10.0f, 1.5f * draws.normal() - 1);
  const uint64_t kind = draws.below(15);
  for (float& number : x) number = spread * draws.normal();
  const auto at = [&] { return draws.below(x.size()); };
  switch (kind) {
    case 0:  // some zeros
      for (float& number : x) number = draws.below(2) ? number : 0.0f;
      break;
    case 1:  // above zero
      for (float& number : x) number = std::fabs(number) + spread;
      break;
    case 2:  // an outlier
      x[at()] *= 1000;
      break;
    case 3:  // one number apart from zeros
      for (float& number : x) number = 0;
      x[at()] = spread;
      break;
    case 4:  // a constant
      for (float& number : x) number = spread;
      break;
    case 5:  // a few numbers only, which are often equally near to two levels
      for (float& number : x) number = static_cast<float>(draws.below(17)) - 8;
      break;
    case 6:  // spreads that differ between columns
      for (float& number : x) number *= std::pow(10.0f, draws.normal());
      break;
    case 7:  // scales become subnormal f16 numbers or zero
      for (float& number : x) number = draws.normal() * 1e-6f;
      break;
    case 8:  // squares that f32 hardly holds
      for (float& number : x) number = draws.normal() * 1e-20f;
      break;
    case 9:  // numbers as bf16 holds them
      for (float& number : x) number = static_cast<float>(BFloat16(number));
      break;
    case 10:  // squares that f32 does not hold
      for (float& number : x) number = draws.normal() * 1e25f;
      break;
    case 11:  // subnormal numbers, whose inverses are infinite
      for (float& number : x) number = draws.normal() * 1e-40f;
      break;
    default:
      break;
  }
  return x;
}

std::vector<float> draw_importance(Draws& draws, int64_t width) {
  std::vector<float> importance(static_cast<size_t>(width));
  const uint64_t kind = draws.below(4);
  for (float& weight : importance) {
    const float number = draws.normal();
    weight = kind == 0 && draws.below(3) == 0 ? 0.0f : kind == 1 ? std::exp(3 * number) : number * number;
  }
  return importance;
}

// Equal bits, or NaN both.
bool same_numbers(const std::vector<float>& a, const std::vector<float>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i]) &&
        !(std::isnan(a[i]) && std::isnan(b[i])))
      return false;
  }
  return true;
}

// Prints the line of a type; true if all rows are equal.
bool compare(const Library& library, const Peer& peer, int rows, uint64_t seed) {
  const auto encode = library.find<Encode>("ggml_quantize_chunk");
  const auto decode = library.find<Decode>(peer.decoder);
  const BlockLayout layout = layout_of(peer.type);
  Draws draws(seed);
  int different[2] = {0, 0}, decoded_differently = 0;
  for (int row = 0; row < rows; ++row) {
    const int64_t unit = layout.elements == 1 ? 7 : layout.elements;
    const int64_t width = unit * static_cast<int64_t>(1 + draws.below(4));
    const auto bytes = static_cast<size_t>(width / layout.elements * layout.bytes);
    const std::vector<float> x = draw_row(draws, width), importance = draw_importance(draws, width);
    std::vector<std::byte> ours(bytes), theirs(bytes);
    for (int weighted = 0; weighted < 2; ++weighted) {
      const float* weights = weighted ? importance.data() : nullptr;
      quantize_row(peer.type, width, x.data(), weights, ours.data());
      encode(peer.number, x.data(), theirs.data(), 0, 1, width, weights);
      different[weighted] += ours != theirs;
    }
    if (row % 2)  // any bytes are blocks
      for (std::byte& byte : theirs) byte = static_cast<std::byte>(draws.below(256));
    std::vector<float> our_numbers(x.size()), their_numbers(x.size());
    dequantize_row(peer.type, theirs.data(), width, our_numbers.data());
    decode(theirs.data(), their_numbers.data(), width);
    decoded_differently += !same_numbers(our_numbers, their_numbers);
  }
  fmt::print("{} plain {} {} importance {} {} decoded {} {}\n", layout.name, rows, different[0], rows,
             different[1], rows, decoded_differently);
  return different[0] + different[1] + decoded_differently == 0;
}

int run(int arguments, char** argument) {
  if (arguments < 2) throw UsageError("usage: ggml_rows FOLDER [ROWS] [SEED]");
  const Library library(std::string(argument[1]) + "/libggml-base.so");
  const int rows = arguments > 2 ? std::stoi(argument[2]) : 2000;
  const uint64_t seed = arguments > 3 ? std::stoull(argument[3]) : 1;
  bool equal = true;
  for (const Peer& peer : kPeers) equal &= compare(library, peer, rows, seed);
  return equal ? 0 : 1;
}

}  // namespace
}  // namespace qkv

int main(int arguments, char** argument) {
  try {
    return qkv::run(arguments, argument);
  } catch (const std::exception& error) {
    fmt::print(stderr, "ggml_rows: {}\n", error.what());
    return 2;
  }
}
