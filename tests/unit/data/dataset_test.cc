#include "qkv/data/dataset.h"

#include <map>
#include <numeric>

#include "qkv/kernels/kernels.h"
#include "tests/unit/expect_error.h"

namespace qkv::dataset_test {
namespace {

// Documents of these lengths; tokens count up, so that a token names its place.
TokenStream stream_of(const std::vector<int>& lengths) {
  TokenStream s;
  int32_t next = 0;
  for (const int n : lengths) {
    std::vector<int32_t> document(n);
    std::iota(document.begin(), document.end(), next);
    next += n;
    s.append(document);
  }
  return s;
}

std::vector<int32_t> ints(const Indices& x) {
  return {x.values().begin(), x.values().end()};
}
using Ints = std::vector<int32_t>;

void expect_same(const Batch& a, const Batch& b) {
  EXPECT_EQ(ints(a.ids), ints(b.ids));
  EXPECT_EQ(ints(a.targets), ints(b.targets));
  EXPECT_EQ(a.layout.offsets, b.layout.offsets);
  EXPECT_EQ(ints(a.layout.positions), ints(b.layout.positions));
  EXPECT_EQ(a.target_count, b.target_count);
}

TEST(TokenStream, DocumentsAreAppended) {
  const TokenStream s = stream_of({3, 0, 2});
  EXPECT_TRUE(std::ranges::equal(s.tokens(), Ints{0, 1, 2, 3, 4}));
  EXPECT_TRUE(std::ranges::equal(s.starts(), std::vector<int64_t>{0, 3, 5}));  // an empty document is none
}

TEST(CutWindows, InsideADocument) {
  const Batch b = cut_windows(stream_of({20}), {2, 11}, 4);
  EXPECT_EQ(ints(b.ids), (Ints{2, 3, 4, 5, 11, 12, 13, 14}));
  EXPECT_EQ(ints(b.targets), (Ints{3, 4, 5, 6, 12, 13, 14, 15}));
  EXPECT_EQ(b.layout.offsets, (Ints{0, 4, 8}));
  EXPECT_EQ(ints(b.layout.positions), (Ints{0, 1, 2, 3, 0, 1, 2, 3}));
  EXPECT_EQ(b.target_count, 8);
}

TEST(CutWindows, ADocumentsEndHasNoTargetAndTheNextStartsAnew) {
  const Batch b = cut_windows(stream_of({3, 1, 4}), {1}, 6);
  EXPECT_EQ(ints(b.ids), (Ints{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(ints(b.targets), (Ints{2, kIgnored, kIgnored, 5, 6, 7}));
  EXPECT_EQ(b.layout.offsets, (Ints{0, 2, 3, 6}));
  EXPECT_EQ(ints(b.layout.positions), (Ints{0, 1, 0, 0, 1, 2}));
  EXPECT_EQ(b.target_count, 4);
}

TEST(CutWindows, AWindowThatEndsOrStartsAtABorder) {
  const TokenStream s = stream_of({3, 3});
  const Batch ends = cut_windows(s, {0}, 3), starts = cut_windows(s, {3}, 3);
  EXPECT_EQ(ints(ends.targets), (Ints{1, 2, kIgnored}));
  EXPECT_EQ(ends.layout.offsets, (Ints{0, 3}));
  EXPECT_EQ(ints(starts.ids), (Ints{3, 4, 5}));
  EXPECT_EQ(ints(starts.targets), (Ints{4, 5, kIgnored}));
}

TEST(CutWindows, IsCutAtTheStreamsEnd) {
  const Batch b = cut_windows(stream_of({5}), {3}, 4);
  EXPECT_EQ(ints(b.ids), (Ints{3, 4}));
  EXPECT_EQ(ints(b.targets), (Ints{4, kIgnored}));
}

// Over any batches, each token that has a follower in its document is predicted once.
TEST(EveryWindow, CoversEachTokenOnce) {
  for (const std::vector<int>& lengths :
       {std::vector<int>{17}, {1, 1, 1}, {5, 1, 9, 2}, {16}, {1}, {2}, {65, 3}})
    for (const int64_t length : {1, 3, 4, 16, 100}) {
      const TokenStream s = stream_of(lengths);
      const EveryWindow windows(s, length);
      for (const int64_t count : {1, 2, 100}) {
        std::map<int32_t, int> inputs, predicted;
        for (int64_t first = 0; first < windows.windows(); first += count) {
          const Batch b = windows.batch(first, count);
          for (const int32_t t : ints(b.ids)) ++inputs[t];
          for (const int32_t t : ints(b.targets))
            if (t != kIgnored) ++predicted[t];
        }
        for (const auto& [token, n] : inputs) EXPECT_EQ(n, 1) << token;
        size_t expected = 0;
        for (const int n : lengths) expected += static_cast<size_t>(n - 1);
        EXPECT_EQ(predicted.size(), expected);
        for (const auto& [token, n] : predicted) EXPECT_EQ(n, 1) << token;
      }
    }
}

TEST(EveryWindow, OfAnEmptyStreamHasNone) {
  const TokenStream none;
  EXPECT_EQ(EveryWindow(none, 1).windows(), 0);
  EXPECT_EQ(EveryWindow(none, 8).windows(), 0);
}

TEST(RandomWindows, AreAFunctionOfSeedAndStep) {
  const TokenStream s = stream_of({50, 7, 200});
  const RandomWindows a(s, 16, 3), b(s, 16, 3), other(s, 16, 4);
  const Batch later = a.batch(9, 0, 4);
  a.batch(1, 0, 4);
  expect_same(a.batch(9, 0, 4), later);  // whatever was asked before
  expect_same(b.batch(9, 0, 4), later);
  EXPECT_NE(ints(a.batch(10, 0, 4).ids), ints(later.ids));
  EXPECT_NE(ints(other.batch(9, 0, 4).ids), ints(later.ids));
  // Micro-batches are cuts of the step's windows.
  Ints pieces = ints(a.batch(9, 0, 1).ids);
  const Ints rest = ints(a.batch(9, 1, 3).ids);
  pieces.insert(pieces.end(), rest.begin(), rest.end());
  EXPECT_EQ(pieces, ints(later.ids));
}

TEST(RandomWindows, StartEverywhereAlike) {
  const TokenStream s = stream_of({20});
  const RandomWindows w(s, 4, 1);
  std::map<int32_t, int> starts;
  const Batch b = w.batch(1, 0, 16000);
  for (int64_t i = 0; i < b.layout.sequences(); ++i) ++starts[b.ids[b.layout.offsets[i]]];
  ASSERT_EQ(starts.size(), 16U);  // 0 to 15: the last window's last target is the last token
  EXPECT_EQ(starts.begin()->first, 0);
  EXPECT_EQ(b.target_count, b.ids.count());
  double chi = 0;
  for (const auto& [start, n] : starts) chi += (n - 1000.0) * (n - 1000.0) / 1000;
  EXPECT_LT(chi, 50);  // 15 degrees of freedom: once in 10^5 times
}

TEST(RandomWindows, RefusesAStreamThatIsTooShort) {
  const TokenStream s = stream_of({16});
  EXPECT_NO_THROW(RandomWindows(s, 15, 1).batch(1, 0, 1));
  testing::expect_error([&] { RandomWindows(s, 16, 1); }, {"16 training tokens", "context of 16", "17"});
}

TEST(Layout, CountsPositionsInEachSequence) {
  const Layout l = Layout::of({2, 0, 3}, {5, 1, 0});
  EXPECT_EQ(l.offsets, (Ints{0, 2, 2, 5}));
  EXPECT_EQ(ints(l.positions), (Ints{5, 6, 0, 1, 2}));
  EXPECT_EQ(l.rows(), 5);
  EXPECT_EQ(l.sequences(), 3);
  testing::expect_error([] { Layout::of({1, -1}); }, {"layout", "sequence 1"});
}

// Every token once, each window going on where its stream stood but where a document begins.
TEST(StreamWindows, APassReadsEverythingInOrder) {
  const TokenStream s = stream_of({21, 8, 14});  // 42 targets: 11 windows of 4, the last one of 2
  const StreamWindows streams(s, 4, 3);
  EXPECT_EQ(streams.steps(), 4);
  std::vector<Ints> read(3);
  Ints fresh;
  for (int64_t step = 0; step < streams.steps(); ++step) {
    const Batch b = streams.batch_of_pass(step, 0, 3);
    ASSERT_EQ(std::ssize(b.windows), b.layout.sequences());
    ASSERT_EQ(b.continues.size(), b.windows.size());
    EXPECT_EQ(b.windows.back(), step < 3 ? 2 : 1);  // the last part is a window shorter
    for (size_t q = 0; q < b.windows.size(); ++q) {
      const int32_t first = b.layout.offsets[q];
      if (!b.continues[q]) fresh.push_back(ints(b.ids)[first]);
      for (int32_t r = first; r < b.layout.offsets[q + 1]; ++r) {
        Ints& of = read[b.windows[q]];
        of.push_back(ints(b.ids)[r]);
        EXPECT_EQ(of.back(), of.front() + static_cast<int32_t>(of.size()) - 1);
      }
    }
  }
  EXPECT_EQ(read[0].front(), 0);
  EXPECT_EQ(read[1].front(), 16);
  EXPECT_EQ(read[2].front(), 32);
  EXPECT_EQ(read[0].size() + read[1].size() + read[2].size(), 43);
  std::sort(fresh.begin(), fresh.end());
  EXPECT_EQ(fresh, (Ints{0, 16, 21, 29, 32}));  // the parts' begins, the documents'
  // Some of the streams.
  expect_same(streams.batch_of_pass(2, 1, 2), streams.batch(2, 1, 2));
  expect_same(streams.batch_of_pass(3, 1, 2), streams.batch(3, 1, 1));
  EXPECT_TRUE(streams.batch_of_pass(3, 2, 1).windows.empty());
  // Training begins its parts again.
  expect_same(streams.batch(7, 1, 1), streams.batch(3, 1, 1));
  EXPECT_EQ(streams.batch(4, 0, 2).continues, (std::vector<bool>{false, false}));
  testing::expect_error([&] { StreamWindows(s, 4, 12, "book.txt"); }, {"book.txt", "11 windows", "12"});
}

}  // namespace
}  // namespace qkv::dataset_test
