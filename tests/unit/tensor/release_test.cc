// Memory that goes back to the system: how much, and what is left of the elements.
#include "qkv/tensor/release.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "tests/unit/expect_error.h"

namespace qkv::release_test {
namespace {

int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t all = 0, resident = 0;
  statm >> all >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

TEST(ReleaseMemory, GivesWholePagesBack) {
  constexpr int64_t n = 16 << 20;  // 64 MiB of floats
  Tensor x = Tensor::of({n}, std::vector<float>(static_cast<size_t>(n), 3));
  const int64_t before = resident_bytes();
  release_memory(x, 1000, n - 1001);
  EXPECT_LT(resident_bytes(), before - 4 * n * 9 / 10);
  const auto values = x.mutable_values<float>();
  for (int64_t i = 0; i < 1000; ++i) {
    ASSERT_EQ(values[i], 3);
    ASSERT_EQ(values[n - 1 - i], 3);
  }
  EXPECT_EQ(values[n / 2], 0);
  values[n / 2] = 5;
  EXPECT_EQ(values[n / 2], 5);
}

TEST(ReleaseMemory, LeavesPartsOfAPage) {
  Tensor x = Tensor::of({2000}, std::vector<float>(2000, 3));
  release_memory(x, 100, 200);
  release_memory(x, 300, 300);
  for (const float v : x.values<float>()) ASSERT_EQ(v, 3);
}

TEST(ReleaseMemory, RejectsWhatIsNotThere) {
  Tensor x = Tensor::zeros({10}, DType::f32);
  for (const auto& [begin, end] : {std::pair(0, 11), {-1, 3}, {5, 4}})
    testing::expect_error([&, b = begin, e = end] { release_memory(x, b, e); }, {"release_memory", "[10]"});
}

}  // namespace
}  // namespace qkv::release_test
