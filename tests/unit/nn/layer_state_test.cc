#include "qkv/nn/layer_state.h"

#include <random>

#include "tests/unit/expect_error.h"

namespace qkv::layer_state_test {
namespace {

using testing::expect_error;
using Rows = std::vector<std::vector<float>>;

// A state next to a plain model of it, with a list of key rows and value rows for each sequence.
class KeyValueStateTest : public ::testing::Test {
 protected:
  static constexpr int64_t kHeads = 2, kQk = 3, kVo = 1;
  struct Mirror {
    std::vector<Rows> keys, values;
  };

  // Appends counts[s] rows to sequence s. Keys and values are in one wider tensor, as after a fused
  // projection.
  template <typename State>
  void append(State& state, Mirror& mirror, const std::vector<int32_t>& counts) {
    std::vector<int32_t> offsets = {0};
    for (const int32_t n : counts) offsets.push_back(offsets.back() + n);
    const int64_t k = kHeads * kQk, v = kHeads * kVo, width = 1 + k + v;
    Tensor x = Tensor::empty({offsets.back(), width}, DType::f32);
    for (int64_t i = 0; i < x.count(); ++i) x.mutable_data<float>()[i] = next_++;
    state.append({x, 1, kHeads, kQk}, {x, 1 + k, kHeads, kVo}, offsets);
    for (size_t s = 0; s < counts.size(); ++s)
      for (int64_t r = offsets[s]; r < offsets[s + 1]; ++r) {
        const float* row = x.data<float>() + r * width + 1;
        mirror.keys[s].emplace_back(row, row + k);
        mirror.values[s].emplace_back(row + k, row + k + v);
      }
  }

  template <typename State>
  static void expect_equal(const State& state, const Mirror& mirror) {
    ASSERT_EQ(state.sequences(), static_cast<int64_t>(mirror.keys.size()));
    const KeyLayout layout = state.layout();
    for (int64_t s = 0; s < state.sequences(); ++s) {
      ASSERT_EQ(state.length(s), static_cast<int64_t>(mirror.keys[s].size()));
      ASSERT_EQ(layout.lengths[s], state.length(s));
      for (int64_t j = 0; j < state.length(s); ++j) {
        const int64_t row =
            layout.blocks[layout.block_offsets[s] + j / layout.block_rows] + j % layout.block_rows;
        const auto read = [&](const Heads& h) {
          const float* x = h.x.data<float>() + row * h.x.width() + h.column;
          return std::vector<float>(x, x + h.heads * h.width);
        };
        EXPECT_EQ(read(state.keys()), mirror.keys[s][j]) << s << " " << j;
        EXPECT_EQ(read(state.values()), mirror.values[s][j]) << s << " " << j;
      }
    }
  }

  KeyValueState fresh(int64_t n) { return {n, kHeads, kQk, kVo}; }
  static Mirror empty(size_t n) { return {std::vector<Rows>(n), std::vector<Rows>(n)}; }
  float next_ = 1;
};

TEST_F(KeyValueStateTest, AppendsAndGrows) {
  KeyValueState state = fresh(3);
  Mirror mirror = empty(3);
  for (const std::vector<int32_t>& counts :
       {std::vector<int32_t>{1, 0, 3}, {15, 1, 0}, {1, 1, 1}, {0, 0, 100}, {0, 0, 0}, {1, 1, 1}}) {
    append(state, mirror, counts);
    expect_equal(state, mirror);
  }
}

TEST_F(KeyValueStateTest, AForkGoesItsOwnWay) {
  KeyValueState state = fresh(2);
  Mirror mirror = empty(2);
  append(state, mirror, {3, 5});
  const auto copy = state.fork();
  auto& fork = dynamic_cast<KeyValueState&>(*copy);
  Mirror fork_mirror = mirror;
  append(fork, fork_mirror, {2, 1});
  append(state, mirror, {1, 4});
  expect_equal(state, mirror);
  expect_equal(fork, fork_mirror);
  EXPECT_EQ(fresh(2).fork()->sequences(), 2);  // nothing remembered yet
}

TEST_F(KeyValueStateTest, ReordersAndTruncates) {
  KeyValueState state = fresh(3);
  Mirror mirror = empty(3);
  append(state, mirror, {3, 5, 17});
  const auto reorder = [&](const std::vector<int32_t>& sources) {
    state.reorder(sources);
    Mirror next;
    for (const int32_t s : sources) {
      next.keys.push_back(mirror.keys[s]);
      next.values.push_back(mirror.values[s]);
    }
    mirror = next;
  };
  reorder({2, 0, 2, 1});
  expect_equal(state, mirror);
  append(state, mirror, {1, 1, 1, 1});  // the copies diverge
  expect_equal(state, mirror);
  state.truncate(2, 4);
  mirror.keys[2].resize(4);
  mirror.values[2].resize(4);
  expect_equal(state, mirror);
  append(state, mirror, {2, 2, 2, 2});  // overwrites the truncated rows
  expect_equal(state, mirror);
  reorder({3});
  append(state, mirror, {40});
  expect_equal(state, mirror);
  state.truncate(0, 0);
  EXPECT_EQ(state.length(0), 0);
}

// The state frees the rows of sequences that are gone.
TEST_F(KeyValueStateTest, GivesUpWhatNobodyHas) {
  KeyValueState state = fresh(8);
  Mirror mirror = empty(8);
  append(state, mirror, {40, 40, 40, 40, 40, 40, 40, 40});
  const int64_t rows = state.keys().x.dim(0);
  state.reorder(std::vector<int32_t>{3, 3});
  mirror = {{mirror.keys[3], mirror.keys[3]}, {mirror.values[3], mirror.values[3]}};
  EXPECT_LE(state.keys().x.dim(0), rows / 4);
  expect_equal(state, mirror);
  append(state, mirror, {1, 9});
  expect_equal(state, mirror);
  const auto copy = state.fork();
  EXPECT_LT(dynamic_cast<KeyValueState&>(*copy).keys().x.dim(0), 8 * KeyValueState::kPageRows);
  expect_equal(dynamic_cast<KeyValueState&>(*copy), mirror);
  state.reorder(std::vector<int32_t>{});
  EXPECT_TRUE(state.filled());
}

TEST_F(KeyValueStateTest, SavesAndLoads) {
  KeyValueState state = fresh(2);
  Mirror mirror = empty(2);
  KeyValueState other = fresh(1);
  other.load(state.save());  // nothing remembered yet
  EXPECT_EQ(other.sequences(), 2);
  append(state, mirror, {3, 18});
  const auto saved = state.save();
  Mirror then = mirror;
  append(state, mirror, {1, 1});  // the saved state does not change
  other.load(saved);
  expect_equal(other, then);
  append(other, then, {20, 1});
  expect_equal(other, then);
  expect_equal(state, mirror);
}

// Random operations, against the plain model.
TEST_F(KeyValueStateTest, RandomOperations) {
  std::mt19937 rng(5);
  KeyValueState state = fresh(2);
  Mirror mirror = empty(2);
  for (int i = 0; i < 300; ++i) {
    const auto n = static_cast<int32_t>(state.sequences());
    switch (rng() % 5) {
      case 4: {  // sequences of itself as it was, or of another state
        const auto other = state.fork();
        std::vector<int32_t> more(rng() % 3);
        for (int32_t& s : more) s = static_cast<int32_t>(rng() % n);
        if (n + std::ssize(more) > 6) break;
        state.join(*other, more);
        for (const int32_t s : more) {
          mirror.keys.push_back(Rows(mirror.keys[s]));
          mirror.values.push_back(Rows(mirror.values[s]));
        }
        break;
      }
      case 0: {
        std::vector<int32_t> sources(1 + rng() % 4);
        Mirror next;
        for (int32_t& s : sources) {
          s = static_cast<int32_t>(rng() % n);
          next.keys.push_back(mirror.keys[s]);
          next.values.push_back(mirror.values[s]);
        }
        state.reorder(sources);
        mirror = next;
        break;
      }
      case 1: {
        const auto s = rng() % n;
        const size_t length = rng() % (mirror.keys[s].size() + 1);
        state.truncate(s, static_cast<int64_t>(length));
        mirror.keys[s].resize(length);
        mirror.values[s].resize(length);
        break;
      }
      case 2:
        state.load(state.save());
        break;
      default: {
        std::vector<int32_t> counts(n);
        for (int32_t& c : counts) c = static_cast<int32_t>(rng() % 6);
        append(state, mirror, counts);
      }
    }
    expect_equal(state, mirror);
    if (HasFailure()) return;
  }
}

TEST_F(KeyValueStateTest, RefusesWhatDoesNotFit) {
  KeyValueState state = fresh(2);
  Mirror mirror = empty(2);
  append(state, mirror, {3, 5});
  expect_error([&] { append(state, mirror, {1}); }, {"2 sequences", "got 1"});
  expect_error([&] { state.truncate(0, 4); }, {"truncate", "sequence 0 has 3", "got 4"});
  expect_error([&] { state.truncate(0, -1); }, {"truncate", "-1"});
  expect_error([&] { state.truncate(2, 0); }, {"truncate", "2"});
  expect_error([&] { state.reorder(std::vector<int32_t>{0, 2}); }, {"reorder", "2"});
  expect_error([&] { state.reorder(std::vector<int32_t>{-1}); }, {"reorder", "-1"});
  const auto saved = state.save();
  KeyValueState wider(2, kHeads, kQk + 1, kVo);
  expect_error([&] { wider.load(saved); }, {"key/value state"});
  expect_error([&] { state.load({saved[0], saved[1]}); }, {"key/value state"});
  expect_error(
      [&] {
        state.load({Tensor::of({2}, std::vector<int32_t>{3, 999}), saved[1], saved[2]});
      },
      {"999"});
  expect_error(
      [&] {
        state.load({Tensor::of({2}, std::vector<int32_t>{3, -1}), saved[1], saved[2]});
      },
      {"-1"});
  const KeyValueState same = fresh(1);
  expect_error([&] { state.join(same, std::vector<int32_t>{1}); }, {"join", "no sequence 1"});
  expect_error([&] { state.join(wider, std::vector<int32_t>{0}); }, {"join", "other heads"});
  expect_error([&] { state.join(SourceState(1, kHeads, kQk, kVo), std::vector<int32_t>{0}); },
               {"join", "another kind"});
  EXPECT_TRUE(state.can_truncate(1, 5));
  EXPECT_FALSE(state.can_truncate(1, 6));
  expect_equal(state, mirror);  // failed calls leave it unchanged
}

// Sequences that decode from the same source share its keys.
TEST_F(KeyValueStateTest, SourcesAreSharedAndNotCopied) {
  SourceState state(3, kHeads, kQk, kVo);
  Mirror mirror = empty(3);
  append(state, mirror, {4, 1, 20});
  const void* keys = state.keys().x.raw();
  const auto fork = state.fork();
  const std::vector<int32_t> sources = {2, 2, 0, 2};
  state.reorder(sources);
  Mirror after = empty(4);
  for (size_t i = 0; i < 4; ++i) {
    after.keys[i] = mirror.keys[sources[i]];
    after.values[i] = mirror.values[sources[i]];
  }
  EXPECT_EQ(state.keys().x.raw(), keys);
  expect_equal(state, after);
  expect_equal(dynamic_cast<SourceState&>(*fork), mirror);
  expect_error([&] { append(state, after, {1, 1, 1, 1}); }, {"share"});
  expect_error([&] { state.reorder(std::vector<int32_t>{4}); }, {"no sequence 4"});
  // Joined, each source in use is there once.
  SourceState joined(0, kHeads, kQk, kVo);
  joined.join(state, std::vector<int32_t>{0, 1});
  joined.join(*fork, std::vector<int32_t>{1, 0, 1});
  Mirror of_joined = empty(0);
  for (const int32_t s : {2, 2, 1, 0, 1}) {
    of_joined.keys.push_back(mirror.keys[s]);
    of_joined.values.push_back(mirror.values[s]);
  }
  expect_equal(joined, of_joined);
  EXPECT_EQ(joined.keys().x.dim(0), 20 + 1 + 4);
  SourceState loaded(0, kHeads, kQk, kVo);  // one run for each sequence
  loaded.load(state.save());
  expect_equal(loaded, after);
}

}  // namespace
}  // namespace qkv::layer_state_test
