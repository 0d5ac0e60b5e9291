#include "qkv/kernels/scratch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <thread>

namespace qkv::scratch_test {
namespace {

bool has(const Scratch& scratch, int64_t floats, float value) {
  return std::all_of(scratch.data(), scratch.data() + floats, [&](float x) { return x == value; });
}

TEST(Scratch, NestedOnesHaveMemoryOfTheirOwn) {
  const int64_t sizes[] = {1, 17, 5000, int64_t{1} << 18};  // the last one is too large for the stack
  for (const int64_t outer : sizes)
    for (const int64_t inner : sizes) {
      const Scratch a(outer);
      std::fill_n(a.data(), outer, 1.0F);
      {
        const Scratch b(inner), c(inner);
        std::fill_n(b.data(), inner, 2.0F);
        std::fill_n(c.data(), inner, 3.0F);
        for (const Scratch* s : {&a, &b, &c}) EXPECT_EQ(reinterpret_cast<uintptr_t>(s->data()) % 64, 0);
        EXPECT_TRUE(has(b, inner, 2));
        EXPECT_TRUE(has(c, inner, 3));
      }
      const Scratch d(inner);
      std::fill_n(d.data(), inner, 4.0F);
      EXPECT_TRUE(has(a, outer, 1));
    }
}

TEST(Scratch, EachThreadHasItsOwn) {
  const Scratch a(100);
  std::fill_n(a.data(), 100, 1.0F);
  std::thread([&] {
    const Scratch b(100);
    EXPECT_NE(a.data(), b.data());
    std::fill_n(b.data(), 100, 2.0F);
  }).join();
  EXPECT_TRUE(has(a, 100, 1));
}

TEST(Scratch, NoneIsAllowed) {
  const Scratch none(0), one(1);
  one.data()[0] = 1;
}

}  // namespace
}  // namespace qkv::scratch_test
