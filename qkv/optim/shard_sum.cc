#include "qkv/optim/shard_sum.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <string>

#include "qkv/base/error.h"
#include "qkv/base/parallel.h"
#include "qkv/kernels/kernels.h"
#include "qkv/optim/arenas.h"

namespace qkv {
namespace {

// Floats that a rank receives at a time from all others: many, as each exchange costs a round trip.
constexpr int64_t kReceived = 1 << 23;
constexpr size_t kCollected = 1 << 22;  // bytes of a piece that the first rank writes

void add_to(Span<float> sum, Span<const float> x) {
  parallel_for(std::ssize(sum), kGrain, [&](int64_t i, int64_t end) {
    kernels().axpy(end - i, 1, x.subspan(i, end - i).data(), sum.subspan(i, end - i).data());
  });
}

void add_to(std::vector<Tensor>& sum, const std::vector<Tensor>& x) {
  for (size_t t = 0; t < sum.size(); ++t) add_to(sum[t].mutable_values<float>(), x[t].values<float>());
}

// True if `right` follows `left` and both are children of one node.
bool are_siblings(const TreeNode& left, const TreeNode& right) {
  return left.count == right.count && left.end() == right.first && left.first % (2 * left.count) == 0;
}

TreeNode parent(const TreeNode& left) {
  return {left.first, 2 * left.count};
}

// Adds `x` to the end of a list of nodes, and joins siblings by join(left, right) until there are none.
template <typename Entry, typename Join>
void append(std::vector<Entry>& nodes, Entry x, const Join& join) {
  while (!nodes.empty() && are_siblings(nodes.back().place, x.place)) {
    Entry left = std::move(nodes.back());
    nodes.pop_back();
    left.place = parent(left.place);
    join(left, x);
    x = std::move(left);
  }
  nodes.push_back(std::move(x));
}

// Piece `piece` of `pieces` of a part: so much is exchanged at a time.
Part piece_of(Part part, int64_t piece, int64_t pieces) {
  const auto at = [&](int64_t i) { return part.begin + part.count() * i / pieces; };
  return {at(piece), at(piece + 1)};
}

std::vector<Part> parts_of(int64_t n, int ranks) {
  std::vector<Part> parts;
  for (int r = 0; r < ranks; ++r) parts.push_back(part_of(n, r, ranks));
  return parts;
}

int64_t pieces_of(const std::vector<Part>& parts) {
  int64_t largest = 0;
  for (const Part& part : parts) largest = std::max(largest, part.count());
  const int64_t piece = std::max<int64_t>(1, kReceived / std::ssize(parts));
  return (largest + piece - 1) / piece;
}

// Sends this rank's part of the bytes of a tensor to the ranks for which `wants` is true.
void send_part(Tensor& x, const std::vector<Part>& parts, Communicator& ranks, bool (*wants)(int rank)) {
  const auto bytes = x.mutable_value_bytes();
  const int64_t size = x.count() == 0 ? 1 : std::ssize(bytes) / x.count();
  const auto me = static_cast<size_t>(ranks.rank());
  const auto span_of = [&](const Part& p) {
    const auto part = bytes.subspan(p.begin * size, p.count() * size);
    return std::span(part.data(), part.size());
  };
  std::vector<std::span<const std::byte>> out(parts.size());
  std::vector<std::span<std::byte>> in(parts.size());
  for (size_t r = 0; r < parts.size(); ++r) {
    if (r == me || wants(static_cast<int>(r))) out[r] = span_of(parts[me]);
    if (r == me || wants(ranks.rank())) in[r] = span_of(parts[r]);
  }
  ranks.exchange(out, in);
}

void send_parts(Tensor& x, Communicator& ranks, bool (*wants)(int rank)) {
  const std::vector<Part> parts = parts_of(x.count(), ranks.size());
  const int64_t pieces = pieces_of(parts);
  for (int64_t piece = 0; piece < pieces; ++piece) {
    std::vector<Part> now;
    for (const Part& part : parts) now.push_back(piece_of(part, piece, pieces));
    send_part(x, now, ranks, wants);
  }
}

}  // namespace

ShardRun shards_of(int64_t shards, int rank, int ranks) {
  const int64_t each = shards / ranks, more = shards % ranks;
  const auto first = [&](int64_t r) { return r * each + std::min(r, more); };
  return {first(rank), first(rank + 1)};
}

std::vector<TreeNode> nodes_of(ShardRun run) {
  struct Entry {
    TreeNode place;
  };
  std::vector<Entry> entries;
  for (int64_t s = run.first; s < run.end; ++s)
    append(entries, Entry{{s, 1}}, [](const Entry&, const Entry&) {});
  std::vector<TreeNode> nodes;
  for (const Entry& e : entries) nodes.push_back(e.place);
  return nodes;
}

Part part_of(int64_t n, int rank, int ranks) {
  const int64_t blocks = (n + kGradientBlock - 1) / kGradientBlock;
  const auto at = [&](int64_t r) { return std::min(n, blocks * r / ranks * kGradientBlock); };
  return {at(rank), at(rank + 1)};
}

void gather_parts(Tensor& x, Communicator& ranks) {
  send_parts(x, ranks, [](int) { return true; });
}

void collect_parts(Tensor& x, Communicator& ranks) {
  send_parts(x, ranks, [](int rank) { return rank == 0; });
}

void collect_pieces(const Tensor& mine, int64_t n, Communicator& ranks,
                    const std::function<void(std::span<const std::byte>)>& take) {
  const auto bytes = mine.value_bytes();
  const auto count = static_cast<size_t>(ranks.size());
  std::vector<std::byte> received;
  for (int r = 0; r < ranks.size(); ++r) {
    const int64_t elements = part_of(n, r, ranks.size()).count();
    assert(r != ranks.rank() || elements == mine.count());
    const auto size = static_cast<size_t>(elements * size_of(mine.dtype()));
    for (size_t at = 0; at < size; at += kCollected) {
      const size_t length = std::min(kCollected, size - at);
      std::span<const std::byte> piece;
      if (r == ranks.rank()) piece = {bytes.data() + at, length};
      if (r > 0) {
        std::vector<std::span<const std::byte>> out(count);
        std::vector<std::span<std::byte>> in(count);
        out[0] = piece;
        if (ranks.leads()) {
          received.resize(length);
          in[static_cast<size_t>(r)] = received;
          piece = received;
        }
        ranks.exchange(out, in);
      }
      if (ranks.leads()) take(piece);
    }
  }
}

int64_t kept_gradients(ShardRun run) {
  size_t most = 0;
  for (int64_t end = run.first + 1; end < run.end; ++end)
    most = std::max(most, nodes_of({run.first, end}).size());
  return static_cast<int64_t>(most);
}

ShardSum::ShardSum(int64_t shards, std::vector<Tensor> now, Communicator& ranks)
    : shards_(shards), now_(std::move(now)), ranks_(ranks) {
  check(ranks.size() <= shards, "shards: {} shards are too few for {} ranks", shards, ranks.size());
}

void ShardSum::add(int64_t shard) {
  const ShardRun mine = shards_of(shards_, ranks_.rank(), ranks_.size());
  assert(shard == (nodes_.empty() ? mine.first : nodes_.back().place.end()));
  const bool last = shard + 1 == mine.end;
  append(nodes_, Node{{shard, 1}, {}}, [&](Node& left, Node& right) {
    std::vector<Tensor>& from = right.values.empty() ? now_ : right.values;
    if (last) {  // the sum of a rank's last shard stays where it is
      add_to(now_, left.values);
      spare_.push_back(std::move(left.values));
      left.values.clear();
      return;
    }
    add_to(left.values, from);
    if (!right.values.empty()) spare_.push_back(std::move(right.values));
  });
  Node& node = nodes_.back();
  if (last || !node.values.empty()) return;
  if (spare_.empty()) {
    for (const Tensor& t : now_) node.values.push_back(t.clone());
    return;
  }
  node.values = std::move(spare_.back());
  spare_.pop_back();
  for (size_t t = 0; t < now_.size(); ++t) node.values[t].copy(now_[t]);
}

void ShardSum::finish(const std::vector<bool>& whole) {
  assert(nodes_.back().place.end() == shards_of(shards_, ranks_.rank(), ranks_.size()).end);
  if (ranks_.alone()) {  // nodes that the tree leaves apart, in order
    for (size_t i = 1; i + 1 < nodes_.size(); ++i) add_to(nodes_[0].values, nodes_[i].values);
    if (nodes_.size() > 1) add_to(now_, nodes_[0].values);
  } else {
    for (size_t t = 0; t < now_.size(); ++t) reduce(now_[t], t, whole[t]);
  }
  for (Node& node : nodes_)
    if (!node.values.empty()) spare_.push_back(std::move(node.values));
  nodes_.clear();
}

// Each rank adds up one part of the tensor, in the order of the tree, and sends the sums to the others.
void ShardSum::reduce(Tensor& now, size_t tensor, bool whole) {
  const int ranks = ranks_.size();
  const auto all = static_cast<size_t>(ranks), me = static_cast<size_t>(ranks_.rank());
  const auto values = now.mutable_values<float>();
  const std::vector<Part> parts = parts_of(now.count(), ranks);
  std::vector<std::vector<TreeNode>> nodes;  // by rank
  size_t most_nodes = 0;
  for (int r = 0; r < ranks; ++r) {
    nodes.push_back(nodes_of(shards_of(shards_, r, ranks)));
    most_nodes = std::max(most_nodes, nodes.back().size());
  }
  const auto mine = [&](size_t node) -> Span<const float> {
    const std::vector<Tensor>& kept = nodes_[node].values;
    return kept.empty() ? Span<const float>(values) : kept[tensor].values<float>();
  };
  struct Entry {
    TreeNode place;
    Span<float> values;
  };
  const int64_t pieces = pieces_of(parts);
  for (int64_t piece = 0; piece < pieces; ++piece) {
    std::vector<Part> of;
    for (const Part& part : parts) of.push_back(piece_of(part, piece, pieces));
    std::vector<std::vector<std::vector<float>>> received(all);  // by rank and node
    for (size_t n = 0; n < most_nodes; ++n) {
      std::vector<std::span<const std::byte>> out(all);
      std::vector<std::span<std::byte>> in(all);
      for (size_t r = 0; r < all; ++r) {
        if (n < nodes_.size()) {
          const auto part = mine(n).subspan(of[r].begin, of[r].count());
          out[r] = std::as_bytes(std::span(part.data(), part.size()));
        }
        if (n < nodes[r].size())
          in[r] = std::as_writable_bytes(
              std::span(received[r].emplace_back(static_cast<size_t>(of[me].count()))));
      }
      ranks_.exchange(out, in);
    }
    std::vector<Entry> sums;
    for (size_t r = 0; r < all; ++r)
      for (size_t n = 0; n < nodes[r].size(); ++n)
        append(sums, Entry{nodes[r][n], {received[r][n].data(), received[r][n].size()}},
               [](Entry& left, Entry& right) { add_to(left.values, right.values); });
    const Span<float> sum = values.subspan(of[me].begin, of[me].count());
    sum.copy(sums.front().values);
    for (size_t i = 1; i < sums.size(); ++i) add_to(sum, sums[i].values);
    if (whole) send_part(now, of, ranks_, [](int) { return true; });
  }
}

double sum_of_shards(int64_t shards, const std::vector<double>& mine, Communicator& ranks) {
  std::string bytes(mine.size() * sizeof(double), ' ');
  std::memcpy(bytes.data(), mine.data(), bytes.size());
  struct Entry {
    TreeNode place;
    double value;
  };
  std::vector<Entry> sums;
  int64_t shard = 0;
  for (const std::string& rank : ranks.gather(bytes))
    for (size_t at = 0; at < rank.size(); at += sizeof(double), ++shard) {
      Entry leaf{{shard, 1}, 0};
      std::memcpy(&leaf.value, rank.data() + at, sizeof(double));
      append(sums, leaf, [](Entry& left, const Entry& right) { left.value += right.value; });
    }
  check(shard == shards && sums.size() == 1, "shards: expected {} numbers, got {}", shards, shard);
  return sums.front().value;
}

}  // namespace qkv
