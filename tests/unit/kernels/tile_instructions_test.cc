// Covers: qkv/kernels/tile/groups.cc
// The machine code of the tile instructions, interpreted where the processor has none, against the emulated
// tiles: which registers, which addresses, in which order, and that a share leaves no tiles behind.
#ifdef __x86_64__

#include "qkv/kernels/tile/block.h"
#include "qkv/kernels/tile/groups.h"
#include "qkv/kernels/tile/share.h"
#include "qkv/tensor/storage.h"
#include "tests/unit/kernels/kernel_testing.h"
#include "tests/unit/kernels/tile_interpreter.h"

namespace qkv::tile_instructions_test {
namespace {

template <typename Out>
void test_share(const TileBlocking& blocking, bool a_transposed) {
  const int64_t m = 75, n = 90, k = 170;
  const auto a = Buffer<BFloat16>::normal(m * k, 1), b = Buffer<BFloat16>::normal(k * n, 2);
  const auto start = Buffer<Out>::normal(m * n, 3);
  Buffer<Out> interpreted = start, emulated = start;
  Product p{.m = m, .n = n, .k = k, .out = dtype_of<Out>};
  p.a = dense(a.data(), DType::bf16, a_transposed ? m : k, a_transposed);
  p.b = dense(b.data(), DType::bf16, n);
  p.c_stride = n, p.accumulate = true;
  const auto packed = Storage::allocate(tile::panels(n) * tile::panels(k) * tile::kStepElements * 2);
  const auto scratch = Storage::allocate(tile::scratch_bytes(p, blocking));
  auto* packed_b = reinterpret_cast<BFloat16*>(packed->data());
  tile::pack_b(p, {0, tile::panels(k)}, packed_b);
  p.c = emulated.data();
  tile::multiply_emulated({p, packed_b, blocking, scratch->data()});
  p.c = interpreted.data();
  const TileInterpreter interpreter;
  tile::multiply_amx({p, packed_b, blocking, scratch->data()});
  if (interpreter.instructions() == 0) GTEST_SKIP() << "the processor did it";
  EXPECT_FALSE(interpreter.configured());
  EXPECT_TRUE(interpreted.guards_intact());
  for (int64_t i = 0; i < m * n; ++i) ASSERT_EQ(interpreted.at(i), emulated.at(i)) << i;
}

class TileInstructions : public ::testing::Test {
 protected:
  void SetUp() override {
    if (tiles_available(TileUnit::amx)) GTEST_SKIP() << "the processor has them";
    if (!tiles_available(TileUnit::emulated)) GTEST_SKIP() << "no AVX-512 here, or QKV_MAX_ISA excludes it";
  }
};

TEST_F(TileInstructions, OnePass) {
  test_share<float>({.rows = 96, .columns = 96, .depth = 192}, false);
  test_share<BFloat16>({.rows = 64, .columns = 32, .depth = 192}, true);
}
TEST_F(TileInstructions, SeveralPasses) {
  test_share<float>({.rows = 64, .columns = 64, .depth = 64}, true);
  test_share<BFloat16>({.rows = 32, .columns = 64, .depth = 32}, false);
}

// Rows and lines are farther apart than they are long, and all bytes occur.
TEST_F(TileInstructions, SumsOfGroups) {
  constexpr int64_t kGroups = 5, kStride = kGroups * 32 + 7, kLine = 256;
  std::vector<int8_t> a(16 * kStride);
  std::vector<uint8_t> b(kGroups * 8 * kLine);
  for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<int8_t>(i * 37 % 256 - 128);
  for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<uint8_t>(i * 101 % 256);
  auto interpreted = Buffer<int32_t>(kGroups * 16 * 32), emulated = interpreted;
  tile::GroupSums p{kGroups, a.data(), kStride, b.data() + 128, kLine, emulated.data()};
  tile::sum_groups_emulated(p);
  p.sums = interpreted.data();
  const TileInterpreter interpreter;
  tile::configure_groups_amx();
  tile::sum_groups_amx(p);
  const bool configured = interpreter.configured();
  tile::release_amx();
  if (interpreter.instructions() == 0) GTEST_SKIP() << "the processor did it";
  EXPECT_TRUE(configured);
  EXPECT_EQ(interpreter.instructions(), 2 + 9 * kGroups);
  EXPECT_FALSE(interpreter.configured());
  EXPECT_TRUE(interpreted.guards_intact());
  for (int64_t i = 0; i < interpreted.size(); ++i) ASSERT_EQ(interpreted.at(i), emulated.at(i)) << i;
  int32_t sum = 0;  // by the definition: group 2, row 3, column 17
  for (int64_t k = 0; k < 32; ++k)
    sum += a[3 * kStride + 64 + k] * b[(16 + k / 4) * kLine + 128 + 17 * 4 + k % 4];
  EXPECT_EQ(emulated.at((2 * 16 + 3) * 32 + 17), sum);
}

}  // namespace
}  // namespace qkv::tile_instructions_test

#endif
