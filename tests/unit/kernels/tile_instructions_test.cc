// The machine code of the tile instructions, interpreted where the processor has none, against the emulated
// tiles: which registers, which addresses, in which order, and that a share leaves no tiles behind.
#ifdef __x86_64__

#include "qkv/kernels/tile/share.h"
#include "qkv/tensor/storage.h"
#include "tests/unit/kernels/kernel_testing.h"
#include "tests/unit/kernels/tile_interpreter.h"

namespace qkv {
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

class TileInstructions : public testing::Test {
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

}  // namespace
}  // namespace qkv

#endif
