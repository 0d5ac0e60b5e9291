// The tree of shards: its nodes, its sums on any number of ranks, and the bytes that ranks send.
#include "qkv/optim/shard_sum.h"

#include <gtest/gtest.h>

#include "qkv/base/parallel.h"
#include "qkv/base/rng.h"
#include "tests/rank_threads.h"
#include "tests/unit/expect_error.h"

namespace qkv::shard_sum_test {
namespace {

TEST(ShardSum, DividesShardsEvenly) {
  const auto runs = [](int64_t shards, int ranks) {
    std::vector<int64_t> counts;
    int64_t next = 0;
    for (int r = 0; r < ranks; ++r) {
      const ShardRun run = shards_of(shards, r, ranks);
      EXPECT_EQ(run.first, next);
      counts.push_back(run.count());
      next = run.end;
    }
    EXPECT_EQ(next, shards);
    return counts;
  };
  EXPECT_EQ(runs(8, 3), (std::vector<int64_t>{3, 3, 2}));
  EXPECT_EQ(runs(8, 5), (std::vector<int64_t>{2, 2, 2, 1, 1}));
  EXPECT_EQ(runs(4, 4), (std::vector<int64_t>{1, 1, 1, 1}));
  EXPECT_EQ(runs(16, 1), (std::vector<int64_t>{16}));
}

TEST(ShardSum, ARankHoldsTheWholeNodesOfItsRun) {
  using Nodes = std::vector<TreeNode>;
  EXPECT_EQ(nodes_of({0, 8}), (Nodes{{0, 8}}));
  EXPECT_EQ(nodes_of({0, 3}), (Nodes{{0, 2}, {2, 1}}));
  EXPECT_EQ(nodes_of({3, 6}), (Nodes{{3, 1}, {4, 2}}));
  EXPECT_EQ(nodes_of({1, 8}), (Nodes{{1, 1}, {2, 2}, {4, 4}}));
  EXPECT_EQ(nodes_of({1, 7}), (Nodes{{1, 1}, {2, 2}, {4, 2}, {6, 1}}));
  EXPECT_EQ(kept_gradients({0, 1}), 0);
  EXPECT_EQ(kept_gradients({0, 2}), 1);
  EXPECT_EQ(kept_gradients({0, 8}), 3);  // 0-3, 4-5 and 6 while the last shard is computed
  EXPECT_EQ(kept_gradients({0, 64}), 6);
  EXPECT_EQ(kept_gradients({3, 6}), 2);  // 3 and 4
}

// Numbers of very different sizes: each order of additions has other bits.
std::vector<float> numbers(int64_t shard, int64_t n) {
  const RandomStream random{static_cast<uint64_t>(shard), 1, 2};
  std::vector<float> out;
  for (int64_t i = 0; i < n; ++i)
    out.push_back(static_cast<float>(random.normal(static_cast<uint64_t>(i)) *
                                     std::pow(10, static_cast<double>(random.below(i, 9)))));
  return out;
}

// The definition: a node is the sum of its halves.
std::vector<float> tree_sum(int64_t first, int64_t count, int64_t n) {
  if (count == 1) return numbers(first, n);
  std::vector<float> left = tree_sum(first, count / 2, n);
  const std::vector<float> right = tree_sum(first + count / 2, count / 2, n);
  for (size_t i = 0; i < left.size(); ++i) left[i] += right[i];
  return left;
}

std::vector<float> sum_of_nodes(int64_t shards, int64_t n) {
  std::vector<float> sum(static_cast<size_t>(n));
  for (const TreeNode& node : nodes_of({0, shards})) {
    const std::vector<float> more = tree_sum(node.first, node.count, n);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
  }
  return sum;
}

std::vector<float> sum_on_ranks(int64_t shards, int ranks, int64_t n, std::vector<int64_t>* sent = nullptr) {
  std::vector<std::vector<float>> results(static_cast<size_t>(ranks));
  if (sent != nullptr) sent->resize(static_cast<size_t>(ranks));
  testing::on_ranks(ranks, [&](Communicator& me) {
    Tensor now = Tensor::zeros({n}, DType::f32), small = Tensor::zeros({7}, DType::f32);
    ShardSum sum(shards, {now, small}, me);
    for (int round = 0; round < 2; ++round) {  // the second uses the memory of the first
      const ShardRun mine = shards_of(shards, me.rank(), ranks);
      for (int64_t s = mine.first; s < mine.end; ++s) {
        now.copy(Tensor::of({n}, numbers(s, n)));
        small.copy(Tensor::of({7}, numbers(s, 7)));
        sum.add(s);
      }
      const int64_t before = me.bytes_sent();
      sum.finish({true, true});
      if (sent != nullptr) (*sent)[static_cast<size_t>(me.rank())] = me.bytes_sent() - before;
      const auto got = small.values<float>();
      EXPECT_EQ(std::vector<float>(got.begin(), got.end()), sum_of_nodes(shards, 7));
    }
    const auto got = now.values<float>();
    results[static_cast<size_t>(me.rank())].assign(got.begin(), got.end());
  });
  for (const auto& r : results) EXPECT_EQ(r, results[0]);
  return results[0];
}

TEST(ShardSum, HasTheSameBitsOnAnyNumberOfRanks) {
  for (const int64_t n : {int64_t{1}, int64_t{1000}, int64_t{1 << 17}, int64_t{200'001}}) {
    const std::vector<float> expected = tree_sum(0, 8, n);
    for (const int ranks : {1, 2, 3, 4, 5, 7, 8}) EXPECT_EQ(sum_on_ranks(8, ranks, n), expected) << ranks;
  }
  const std::vector<float> many = tree_sum(0, 64, 100);
  for (const int ranks : {1, 6, 64}) EXPECT_EQ(sum_on_ranks(64, ranks, 100), many) << ranks;
}

// The first rank reads the parts of all, whole and in order, in pieces that are smaller than a part.
TEST(ShardSum, CollectsPieces) {
  for (const int64_t n : {int64_t{0}, int64_t{5}, int64_t{200'001}, int64_t{3'000'001}}) {
    const std::vector<float> all = numbers(0, n);
    for (const int ranks : {1, 2, 3, 5})
      testing::on_ranks(ranks, [&](Communicator& me) {
        const Part part = part_of(n, me.rank(), ranks);
        const Tensor mine =
            Tensor::of({part.count()}, std::vector<float>(all.begin() + part.begin, all.begin() + part.end));
        std::vector<std::byte> got;
        int64_t largest = 0;
        collect_pieces(mine, n, me, [&](std::span<const std::byte> piece) {
          largest = std::max<int64_t>(largest, std::ssize(piece));
          got.insert(got.end(), piece.begin(), piece.end());
        });
        EXPECT_LE(largest, 1 << 22);
        const auto expected = std::as_bytes(std::span(all));
        EXPECT_TRUE(me.leads() ? std::ranges::equal(got, expected) : got.empty()) << n << " on " << ranks;
      });
  }
}

// Without a whole tree: what is left apart adds up in order.
TEST(ShardSum, AddsUpAnyNumberOfLeaves) {
  std::vector<float> expected = tree_sum(0, 4, 100);
  for (const auto& [first, count] : {std::pair(4, 2), std::pair(6, 1)}) {
    const std::vector<float> more = tree_sum(first, count, 100);
    for (size_t i = 0; i < more.size(); ++i) expected[i] += more[i];
  }
  EXPECT_EQ(expected, sum_of_nodes(7, 100));
  for (const int ranks : {1, 3, 7}) EXPECT_EQ(sum_on_ranks(7, ranks, 100), expected) << ranks;
}

TEST(ShardSum, IsNotTheSumInOrder) {
  std::vector<float> in_order = numbers(0, 1000);
  for (int64_t s = 1; s < 8; ++s)
    for (int64_t i = 0; i < 1000; ++i)
      in_order[static_cast<size_t>(i)] += numbers(s, 1000)[static_cast<size_t>(i)];
  EXPECT_NE(in_order, tree_sum(0, 8, 1000));
}

// A reduce-scatter and an all-gather: each rank sends 2 (R - 1) / R times the numbers that are added up.
TEST(ShardSum, SendsTheBytesOfTheory) {
  constexpr int64_t n = 1 << 18;
  for (const int ranks : {2, 4}) {
    std::vector<int64_t> sent;
    sum_on_ranks(4, ranks, n, &sent);
    const int64_t theory = 2 * 4 * n * (ranks - 1) / ranks;
    int64_t most = 0;
    for (const int64_t bytes : sent) most = std::max(most, bytes);
    EXPECT_GE(most, theory);
    EXPECT_LE(most, theory + 2 * 4 * 7 * ranks);  // and those of the seven numbers
  }
}

TEST(ShardSum, AddsUpNumbersInTheSameTree) {
  std::vector<double> values;
  for (int64_t s = 0; s < 16; ++s) values.push_back(std::pow(10, s % 5 * 4) / 3);
  const std::function<double(size_t, size_t)> tree = [&](size_t first, size_t count) {
    return count == 1 ? values[first] : tree(first, count / 2) + tree(first + count / 2, count / 2);
  };
  for (const int ranks : {1, 2, 3, 16})
    testing::on_ranks(ranks, [&](Communicator& me) {
      const ShardRun mine = shards_of(16, me.rank(), ranks);
      EXPECT_EQ(sum_of_shards(16, {values.begin() + mine.first, values.begin() + mine.end}, me), tree(0, 16));
    });
}

TEST(ShardSum, RejectsOtherNumbersOfShards) {
  const Tensor t = Tensor::zeros({4}, DType::f32);
  testing::on_ranks(3, [&](Communicator& me) {
    testing::expect_error([&] { ShardSum(2, {t}, me); }, {"2 shards", "3 ranks"});
  });
}

}  // namespace
}  // namespace qkv::shard_sum_test
