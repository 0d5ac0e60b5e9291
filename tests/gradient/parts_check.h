// The check of ops that go on from a state: cut into parts, a sequence gives the bits of the whole.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "qkv/tensor/tensor.h"

namespace qkv::testing {

// run(begin, end, state, marks) reads rows [begin, end) of a sequence of 40 from a state; its result has y,
// state and marked. `first`: the state before the sequence; `whole`: the result of all rows.
template <typename Result, typename Run>
void expect_bits_of_whole(const Result& whole, const Tensor& first, const Run& run) {
  constexpr int64_t kTokens = 40;
  const auto same = [](const auto& a, const auto& b) { return std::ranges::equal(a, b); };
  Tensor state = first;
  int64_t begin = 0;
  for (const int64_t end : {int64_t{1}, int64_t{2}, int64_t{7}, int64_t{35}, kTokens}) {
    const Result part = run(begin, end, state, std::vector<int32_t>());
    for (int64_t t = begin; t < end; ++t)
      ASSERT_TRUE(same(part.y.template row<float>(t - begin), whole.y.template row<float>(t))) << t;
    state = part.state;
    begin = end;
    const Tensor marked = run(0, kTokens, first, std::vector<int32_t>{static_cast<int32_t>(end)}).marked;
    EXPECT_TRUE(same(marked.values<float>(), state.values<float>())) << end;
  }
  EXPECT_TRUE(same(state.values<float>(), whole.state.template values<float>()));
}

}  // namespace qkv::testing
