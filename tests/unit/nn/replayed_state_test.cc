#include "qkv/nn/replayed_state.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "tests/unit/expect_error.h"

namespace qkv::replayed_state_test {
namespace {

using Floats = std::vector<float>;
constexpr int64_t kWidth = 3, kInputs = 2;

// A recurrence that tells every order and number of tokens apart.
Floats step(Floats state, const float* row) {
  for (int64_t i = 0; i < kWidth; ++i)
    state[i] = 0.5F * state[i] + row[0] * static_cast<float>(i + 1) + row[1];
  return state;
}
Floats run(Floats state, std::span<const float> rows) {
  for (size_t t = 0; t < rows.size(); t += kInputs) state = step(std::move(state), rows.data() + t);
  return state;
}
// run() of tensors.
Tensor replay(const Tensor& from, const Tensor& rows) {
  const auto state = from.values<float>();
  return Tensor::of({1, kWidth}, run(Floats(state.begin(), state.end()), rows.values<float>()));
}

// A state beside the rows that each of its sequences has read.
struct Tracked {
  ReplayedState state;
  std::vector<Floats> read;
  std::vector<int64_t> fresh;  // tokens that each read since it last went back

  explicit Tracked(int64_t n) : state(n, kWidth, kInputs, replay), read(n), fresh(n) {}
  Floats after(int64_t s, int64_t tokens) const {
    return run(Floats(kWidth, 0.0F), std::span(read[s]).first(tokens * kInputs));
  }
  void append(const std::vector<int64_t>& counts, std::mt19937& random) {
    std::vector<int32_t> offsets = {0};
    Floats rows, marked, last;
    for (const int64_t n : counts) offsets.push_back(offsets.back() + static_cast<int32_t>(n));
    const std::vector<int32_t> marks = state.marks(offsets);
    for (size_t s = 0; s < counts.size(); ++s) {
      const int64_t before = std::ssize(read[s]) / kInputs;
      fresh[s] += counts[s];
      for (int64_t i = 0; i < counts[s] * kInputs; ++i)
        read[s].push_back(static_cast<float>(random() % 64) / 64);
      rows.insert(rows.end(), read[s].begin() + before * kInputs, read[s].end());
      const auto at = static_cast<int64_t>(s);
      for (const float x : after(at, before + marks[s])) marked.push_back(x);
      for (const float x : after(at, before + counts[s])) last.push_back(x);
    }
    const auto n = std::ssize(counts);
    state.append(Tensor::of({offsets.back(), kInputs}, rows), Tensor::of({n, kWidth}, marked),
                 Tensor::of({n, kWidth}, last), offsets);
  }
  void truncate(int64_t s, int64_t length) {
    state.truncate(s, length);
    read[s].resize(length * kInputs);
    fresh[s] = 0;
  }
  void expect() const {
    ASSERT_EQ(state.sequences(), std::ssize(read));
    const Tensor last = state.last();
    for (int64_t s = 0; s < state.sequences(); ++s) {
      const int64_t length = std::ssize(read[s]) / kInputs;
      ASSERT_EQ(state.length(s), length);
      EXPECT_TRUE(std::ranges::equal(last.row<float>(s), after(s, length))) << s;
      EXPECT_TRUE(state.can_truncate(s, 0));
      for (int64_t to = length - std::min(fresh[s], ReplayedState::kKept); to <= length; ++to)
        EXPECT_TRUE(state.can_truncate(s, to)) << length << " to " << to;
      EXPECT_FALSE(state.can_truncate(s, length + 1));
    }
  }
};

TEST(ReplayedState, IsThatOfWhatWasRead) {
  std::mt19937 random(5);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  Tracked t(2);
  for (int turn = 0; turn < 400; ++turn) {
    SCOPED_TRACE(turn);
    std::vector<int64_t> counts;
    for (int64_t s = 0; s < t.state.sequences(); ++s) counts.push_back(below(4) == 0 ? below(60) : below(3));
    if (std::accumulate(counts.begin(), counts.end(), int64_t{0}) > 0) t.append(counts, random);
    t.expect();
    const int64_t s = below(t.state.sequences()), length = t.state.length(s);
    switch (below(7)) {
      case 0:
        t.truncate(s, length - below(std::min(t.fresh[s], ReplayedState::kKept) + 1));
        break;
      case 1:
        if (below(4) == 0) t.truncate(s, 0);
        break;
      case 2: {
        const std::vector<int32_t> rows = {static_cast<int32_t>(s), 0};
        t.state.reorder(rows);
        t.read = {t.read[s], t.read[0]};
        t.fresh = {t.fresh[s], t.fresh[0]};
        break;
      }
      case 3: {
        const Tracked other = t;
        t.state.join(other.state, std::vector<int32_t>{static_cast<int32_t>(s)});
        t.read.push_back(other.read[s]);
        t.fresh.push_back(other.fresh[s]);
        break;
      }
      case 4: {
        const std::vector<Tensor> saved = t.state.save();
        t.state = ReplayedState(1, kWidth, kInputs, replay);
        t.state.load(saved);
        break;
      }
      default:
        break;
    }
    if (t.state.sequences() > 4) {
      t.state.reorder(std::vector<int32_t>{0, 1});
      t.read.resize(2);
      t.fresh.resize(2);
    }
    t.expect();
  }
}

TEST(ReplayedState, ForksAreIndependentAndSharedStatesCountOnce) {
  std::mt19937 random(6);
  Tracked t(1);
  t.append({40}, random);
  const int64_t alone = t.state.bytes();
  const auto fork = t.state.fork();
  t.state.reorder(std::vector<int32_t>{0, 0, 0});
  EXPECT_LT(t.state.bytes(), 3 * alone);
  t.read = {t.read[0], t.read[0], t.read[0]};
  t.fresh.resize(3);
  t.append({1, 0, 5}, random);
  t.expect();
  EXPECT_EQ(fork->length(0), 40);
}

TEST(ReplayedState, RefusesWhatDoesNotFit) {
  std::mt19937 random(7);
  Tracked t(1);
  t.append({50}, random);
  testing::expect_error([&] { t.state.truncate(0, 10); }, {"go back"});
  testing::expect_error(
      [&] {
        static_cast<void>(t.state.marks(std::vector<int32_t>{0, 1, 2}));
      },
      {"sequences"});
  testing::expect_error([&] { t.state.join(ReplayedState(1, 4, 2, replay), std::vector<int32_t>{0}); },
                        {"join"});
  std::vector<Tensor> saved = t.state.save();
  ReplayedState other(1, kWidth + 1, kInputs, replay);
  testing::expect_error([&] { other.load(saved); }, {"expected"});
  saved[1] = Tensor::of({1}, std::vector<int32_t>{20});
  testing::expect_error([&] { t.state.load(saved); }, {"states"});
}

}  // namespace
}  // namespace qkv::replayed_state_test
