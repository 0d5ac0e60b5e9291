// The sum of shards in a fixed binary tree: its bits do not depend on which rank holds which shards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "qkv/base/communicator.h"
#include "qkv/tensor/tensor.h"

namespace qkv {

// Shards [first, end) of a rank.
struct ShardRun {
  int64_t first, end;
  int64_t count() const { return end - first; }
};

// Divides `shards` among `ranks` as evenly as possible; the first ranks hold one more (8 among 3: 3, 3, 2).
ShardRun shards_of(int64_t shards, int rank, int ranks);

// A node of the tree: the sum of the shards [first, first + count), with count a power of two and first a
// multiple of it. Its children are the nodes of its two halves.
struct TreeNode {
  int64_t first, count;
  int64_t end() const { return first + count; }
  bool operator==(const TreeNode&) const = default;
};

// The nodes that a rank can sum by itself, in order: as few as there are for its run.
std::vector<TreeNode> nodes_of(ShardRun run);

// Elements [begin, end) of a tensor.
struct Part {
  int64_t begin, end;
  int64_t count() const { return end - begin; }
};

// The part of n numbers that a rank adds up, in whole blocks: gradient_norm() adds up these, too.
inline constexpr int64_t kGradientBlock = 1 << 16;
Part part_of(int64_t n, int rank, int ranks);

// Sends each rank's part of the tensor to all ranks. All have the whole tensor then.
void gather_parts(Tensor& x, Communicator& ranks);
// The same to the first rank alone.
void collect_parts(Tensor& x, Communicator& ranks);
// Gives the bytes of a tensor of n elements to `take` on the first rank, in order and piece by piece, so that
// no rank needs memory for all. `mine`: this rank's part. Others than the first may leave `take` empty.
void collect_pieces(const Tensor& mine, int64_t n, Communicator& ranks,
                    const std::function<void(std::span<const std::byte>)>& take);

// Copies of the gradients that a rank keeps at most while it adds up its run, besides the gradients.
int64_t kept_gradients(ShardRun run);

// Adds up vectors of floats, one of each shard, over all ranks. If the number of shards is no power of two,
// the tree lacks a root: the nodes that it leaves apart are added in order.
class ShardSum {
 public:
  // `now`: the f32 tensors of the current shard, the same on each rank; they hold the sum in the end.
  ShardSum(int64_t shards, std::vector<Tensor> now, Communicator& ranks);

  // The tensors hold the values of `shard`. To be called for each shard of this rank in order.
  void add(int64_t shard);
  // Exchanges the sums of ranks: the tensors then hold the sum of all shards, on every rank. `whole`: for
  // each tensor, false if a rank needs only its part of it (part_of()).
  void finish(const std::vector<bool>& whole);

 private:
  struct Node {
    TreeNode place;
    std::vector<Tensor> values;  // empty: they are in now_
  };

  void reduce(Tensor& now, size_t tensor, bool whole);

  int64_t shards_;
  std::vector<Tensor> now_;
  Communicator& ranks_;
  std::vector<Node> nodes_;
  std::vector<std::vector<Tensor>> spare_;  // copies to be used again
};

// The sum of one number of each shard, in the same tree. `mine`: those of this rank's shards, in order.
double sum_of_shards(int64_t shards, const std::vector<double>& mine, Communicator& ranks);

}  // namespace qkv
