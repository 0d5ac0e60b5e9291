#include "qkv/quant/quantize.h"

#include <cassert>
#include <cstring>
#include <vector>

#include "qkv/quant/float16.h"
#include "qkv/quant/quantize_rows.h"

namespace qkv {
namespace {

// The bytes may be unaligned, as blocks must not be.
template <typename Block>
void encode_row(const quant::Row& row, std::byte* bytes) {
  std::vector<Block> blocks(static_cast<size_t>(row.n / kElements<Block>));
  encode(row, blocks.data());
  std::memcpy(bytes, blocks.data(), blocks.size() * sizeof(Block));
}

template <typename Number, typename Round>
void round_row(const quant::Row& row, std::byte* bytes, Round round) {
  for (int64_t i = 0; i < row.n; ++i) {
    const Number number = round(row.x[i]);
    std::memcpy(bytes + i * static_cast<int64_t>(sizeof number), &number, sizeof number);
  }
}

}  // namespace

void quantize_row(WeightType type, int64_t n, const float* x, const float* importance, std::byte* blocks) {
  assert(n % layout_of(type).elements == 0);
  const quant::Row row{.x = x, .importance = importance, .n = n};
  switch (type) {
    case WeightType::f32:
      std::memcpy(blocks, x, static_cast<size_t>(n) * sizeof(float));
      return;
    case WeightType::f16:
      return round_row<Float16>(row, blocks, [](float number) { return round_to_f16(number); });
    case WeightType::bf16:
      return round_row<BFloat16>(row, blocks, [](float number) { return BFloat16(number); });
    case WeightType::q4_0:
      return encode_row<BlockQ40>(row, blocks);
    case WeightType::q4_1:
      return encode_row<BlockQ41>(row, blocks);
    case WeightType::q5_0:
      return encode_row<BlockQ50>(row, blocks);
    case WeightType::q5_1:
      return encode_row<BlockQ51>(row, blocks);
    case WeightType::q8_0:
      return encode_row<BlockQ80>(row, blocks);
    case WeightType::q2_k:
      return encode_row<BlockQ2K>(row, blocks);
    case WeightType::q3_k:
      return encode_row<BlockQ3K>(row, blocks);
    case WeightType::q4_k:
      return encode_row<BlockQ4K>(row, blocks);
    case WeightType::q5_k:
      return encode_row<BlockQ5K>(row, blocks);
    case WeightType::q6_k:
      return encode_row<BlockQ6K>(row, blocks);
    case WeightType::iq4_nl:
      return encode_row<BlockIq4Nl>(row, blocks);
    case WeightType::iq4_xs:
      return encode_row<BlockIq4Xs>(row, blocks);
    case WeightType::mxfp4:
      return encode_row<BlockMxfp4>(row, blocks);
  }
}

}  // namespace qkv
