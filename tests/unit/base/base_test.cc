// Random numbers, parallel loops and files.
// Covers: qkv/base/base64.cc, qkv/base/error.cc, qkv/base/file.cc, qkv/base/parallel.cc
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <stdexcept>
#include <vector>

#include "qkv/base/base64.h"
#include "qkv/base/error.h"
#include "qkv/base/file.h"
#include "qkv/base/parallel.h"
#include "qkv/base/rng.h"

namespace qkv::base_test {
namespace {

namespace fs = std::filesystem;

// The vectors of Random123's kat_vectors, "philox4x32 10".
TEST(Philox, KnownAnswers) {
  using Words = std::array<uint32_t, 4>;
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomStream, EveryCoordinateMatters) {
  std::set<uint64_t> seen;
  for (uint64_t seed : {0ull, 1ull, 1ull << 40})
    for (uint64_t step : {0ull, 1ull, 1ull << 40})
      for (uint32_t site : {0u, 1u})
        for (uint64_t index : {0ull, 1ull, 1ull << 40})
          EXPECT_TRUE(seen.insert(RandomStream{seed, step, site}.bits(index)).second);
}

// Bounds of five standard deviations of the estimate; the numbers are fixed, so the test cannot flicker.
constexpr int kDraws = 100000;

TEST(RandomStream, UniformHasItsMoments) {
  const RandomStream stream{.seed = 3, .step = 1, .site = 2};
  double mean = 0, square = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double u = stream.uniform(i);
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    mean += u / kDraws;
    square += u * u / kDraws;
  }
  EXPECT_NEAR(mean, 1.0 / 2, 5 * std::sqrt(1.0 / 12 / kDraws));
  EXPECT_NEAR(square, 1.0 / 3, 5 * std::sqrt(4.0 / 45 / kDraws));
}

TEST(RandomStream, NormalHasItsMoments) {
  const RandomStream stream{.seed = 3, .step = 1, .site = 2};
  double moments[5] = {};
  int beyond_two = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double x = stream.normal(i);
    ASSERT_TRUE(std::isfinite(x));
    for (int k = 1; k <= 4; ++k) moments[k] += std::pow(x, k) / kDraws;
    beyond_two += std::abs(x) > 2;
  }
  // E x^(2k) = 1, 3, 15, 105: the variances of the averages of x, x^2, x^3, x^4 are 1, 2, 15 and 96 over n.
  EXPECT_NEAR(moments[1], 0, 5 * std::sqrt(1.0 / kDraws));
  EXPECT_NEAR(moments[2], 1, 5 * std::sqrt(2.0 / kDraws));
  EXPECT_NEAR(moments[3], 0, 5 * std::sqrt(15.0 / kDraws));
  EXPECT_NEAR(moments[4], 3, 5 * std::sqrt(96.0 / kDraws));
  const double p = std::erfc(std::sqrt(2.0));
  EXPECT_NEAR(beyond_two, kDraws * p, 5 * std::sqrt(kDraws * p * (1 - p)));
}

TEST(RandomStream, BelowIsUniform) {
  const RandomStream stream{.seed = 3, .step = 1, .site = 2};
  std::vector<int> counts(7);
  for (int i = 0; i < kDraws; ++i) ++counts.at(stream.below(i, 7));
  for (const int n : counts) EXPECT_NEAR(n, kDraws / 7.0, 5 * std::sqrt(kDraws / 7.0 * 6 / 7));
  for (int i = 0; i < 100; ++i) EXPECT_EQ(stream.below(i, 1), 0u);
  for (int i = 0; i < 100; ++i) EXPECT_LT(stream.below(i, uint64_t{3} << 62), uint64_t{3} << 62);
}

// The rate, per row and per column, and the independence of neighbours in both directions.
TEST(DropoutBits, DropAtTheirRate) {
  const DropoutKey key = DropoutKey::from({.seed = 1, .step = 2, .site = 3});
  for (const float p : {0.1f, 0.5f, 0.9f}) {
    const int rows = 500, columns = 200;
    std::vector<char> dropped(rows * columns);
    std::vector<int> by_row(rows), by_column(columns);
    for (int r = 0; r < rows; ++r) {
      const DropoutKey row = key.row(r);
      for (int c = 0; c < columns; ++c) {
        const bool drop = dropout_bits(row, c) < dropout_threshold(p);
        dropped[r * columns + c] = drop;
        by_row[r] += drop;
        by_column[c] += drop;
      }
    }
    int total = 0, beside = 0, beneath = 0;
    for (int i = 0; i < rows * columns; ++i) {
      total += dropped[i];
      if (i % columns) beside += dropped[i] && dropped[i - 1];
      if (i >= columns) beneath += dropped[i] && dropped[i - columns];
    }
    const auto expect_rate = [](int count, double n, double rate) {
      EXPECT_NEAR(count, n * rate, 5 * std::sqrt(n * rate * (1 - rate)));
    };
    expect_rate(total, rows * columns, p);
    expect_rate(beside, rows * (columns - 1), p * p);
    expect_rate(beneath, (rows - 1) * columns, p * p);
    for (const int n : by_row) expect_rate(n, columns, p);
    for (const int n : by_column) expect_rate(n, rows, p);
  }
}

TEST(DropoutBits, ThresholdAtTheEnds) {
  EXPECT_EQ(dropout_threshold(0), 0u);
  EXPECT_EQ(dropout_threshold(0.5f), 0x80000000u);
  EXPECT_EQ(dropout_threshold(1), 0xFFFFFFFFu);
}

class Parallel : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    before_ = num_threads();
    set_num_threads(GetParam());
  }
  void TearDown() override { set_num_threads(before_); }

 private:
  int before_ = 1;
};
INSTANTIATE_TEST_SUITE_P(Threads, Parallel, ::testing::Values(1, 2, 3, 8));

TEST_P(Parallel, ForCoversEveryIndexOnce) {
  for (const int64_t n : {0, 1, 2, 7, 8, 9, 1000})
    for (const int64_t grain : {0, 1, 3, 100, 5000}) {
      std::vector<std::atomic<int>> visits(n);
      parallel_for(n, grain, [&](int64_t begin, int64_t end) {
        EXPECT_LT(begin, end);
        EXPECT_GE(end - begin, std::min(n, grain));
        for (int64_t i = begin; i < end; ++i) ++visits[i];
      });
      for (const auto& v : visits) ASSERT_EQ(v, 1);
    }
}

TEST_P(Parallel, PiecesAreNumberedAndInOrder) {
  for (const int64_t n : {0, 1, 7, 64, 1001})
    for (const int64_t grain : {1, 16}) {
      const int64_t pieces = num_pieces(n, grain);
      ASSERT_LE(pieces, num_threads());
      EXPECT_EQ(pieces == 0, n == 0);
      std::vector<std::pair<int64_t, int64_t>> ranges(pieces, {-1, -1});
      parallel_pieces(n, grain, [&](int64_t piece, int64_t begin, int64_t end) {
        ranges.at(piece) = {begin, end};
      });
      int64_t next = 0;
      for (const auto& [begin, end] : ranges) {
        ASSERT_EQ(begin, next);
        next = end;
      }
      ASSERT_EQ(next, n);
    }
}

TEST_P(Parallel, TasksRunOnceByOneWorkerAtATime) {
  for (const int64_t n : {0, 1, 3, 100}) {
    std::vector<std::atomic<int>> visits(n), busy(num_threads());
    parallel_tasks(n, [&](int64_t task, int worker) {
      EXPECT_EQ(busy.at(worker)++, 0);  // no other task uses the worker's scratch memory
      ++visits[task];
      --busy[worker];
    });
    for (const auto& v : visits) ASSERT_EQ(v, 1);
  }
}

TEST_P(Parallel, NestedRegionsRunInPlace) {
  std::vector<std::atomic<int>> visits(6 * 50);
  parallel_tasks(6, [&](int64_t task, int) {
    parallel_for(50, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) ++visits[task * 50 + i];
    });
  });
  for (const auto& v : visits) ASSERT_EQ(v, 1);
}

TEST_P(Parallel, ExceptionsReachTheCaller) {
  const auto broken_for = [](int64_t begin, int64_t end) {
    if (begin <= 57 && 57 < end) fail("index {}", 57);
  };
  EXPECT_THROW(parallel_for(100, 1, broken_for), Error);
  EXPECT_THROW(parallel_tasks(100, [](int64_t task, int) { check(task != 57, "task"); }), Error);
  EXPECT_THROW(parallel_tasks(100, [](int64_t, int) { throw std::logic_error("all of them"); }),
               std::logic_error);
  EXPECT_THROW(parallel_tasks(2, [&](int64_t, int) { parallel_for(100, 1, broken_for); }), Error);
  int visits = 0;  // the team still works
  parallel_for(1, 1, [&](int64_t, int64_t) { ++visits; });
  EXPECT_EQ(visits, 1);
}

class Files : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string name = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    folder_ = ::testing::TempDir() + "qkv_files_" + name + "_" + std::to_string(::getpid());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  size_t entries() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  std::string folder_;
};

// The message names the file, which may be one of many.
template <typename F>
void expect_error_naming(const std::string& path, const F& f) {
  try {
    f();
    FAIL() << "expected an Error naming " << path;
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(path), std::string::npos) << e.what();
  }
}

TEST_F(Files, AreWrittenAndReplacedWhole) {
  const std::string bytes("a\0b\nc\xFF", 6);
  write_file_atomically(path("f"), bytes);
  EXPECT_EQ(read_file(path("f")), bytes);
  write_file_atomically(path("f"), "");
  EXPECT_EQ(read_file(path("f")), "");
  EXPECT_EQ(entries(), 1u);  // no temporary left
  EXPECT_TRUE(file_exists(path("f")));
  EXPECT_FALSE(file_exists(path("g")));
}

TEST_F(Files, OldMappingsSurviveAReplacement) {
  write_file_atomically(path("f"), "old contents");
  const auto old = MappedFile::open(path("f"));
  write_file_atomically(path("f"), "new");
  EXPECT_EQ(old->text(), "old contents");
  EXPECT_EQ(MappedFile::open(path("f"))->text(), "new");
}

TEST_F(Files, MapEmpty) {
  write_file_atomically(path("f"), "");
  const auto file = MappedFile::open(path("f"));
  EXPECT_EQ(file->size(), 0u);
  EXPECT_EQ(file->text(), "");
}

TEST_F(Files, ErrorsNameThePath) {
  expect_error_naming(path("none"), [&] { read_file(path("none")); });
  expect_error_naming(folder_, [&] { read_file(folder_); });
  expect_error_naming(path("none"), [&] { MappedFile::open(path("none")); });
  expect_error_naming(folder_, [&] { MappedFile::open(folder_); });
  expect_error_naming(path("none/f"), [&] { write_file_atomically(path("none/f"), "x"); });
  fs::create_directories(path("d/e"));
  expect_error_naming(path("d"), [&] { write_file_atomically(path("d"), "x"); });
  write_file_atomically(path("f"), "x");
  expect_error_naming(path("f/d"),
                      [&] { write_directory_atomically(path("f/d"), [](const std::string&) {}); });
  EXPECT_EQ(read_file(path("f")), "x");
}

TEST(Base64, Rfc4648) {
  const std::pair<std::string, std::string> vectors[] = {{"", ""},
                                                         {"f", "Zg=="},
                                                         {"fo", "Zm8="},
                                                         {"foo", "Zm9v"},
                                                         {"foob", "Zm9vYg=="},
                                                         {"fooba", "Zm9vYmE="},
                                                         {"foobar", "Zm9vYmFy"},
                                                         {"\xFB\xFF\xBF", "+/+/"}};
  for (const auto& [bytes, text] : vectors) {
    EXPECT_EQ(to_base64(bytes), text);
    EXPECT_EQ(from_base64(text), bytes);
  }
  for (const char* bad : {"Zg", "Zg=", "Zh==", "Z===", "====", "Zm9v\n", "Zm 9", "=Zg="})
    EXPECT_FALSE(from_base64(bad)) << bad;
}

TEST_F(Files, DirectoriesAreReplacedWhole) {
  const auto fill_with = [](const std::string& name, const std::string& text) {
    return [=](const std::string& at) { std::ofstream(at + "/" + name) << text; };
  };
  write_directory_atomically(path("d"), fill_with("one", "1"));
  EXPECT_EQ(read_file(path("d/one")), "1");
  write_directory_atomically(path("d"), fill_with("two", "2"));
  EXPECT_EQ(read_file(path("d/two")), "2");
  EXPECT_FALSE(file_exists(path("d/one")));
  EXPECT_EQ(entries(), 1u);
  write_directory_atomically(path("d") + "/", fill_with("three", "3"));  // as completed by shells
  EXPECT_EQ(read_file(path("d/three")), "3");
  EXPECT_FALSE(file_exists(path("d/two")));
  write_directory_atomically(path("new") + "/", fill_with("one", "1"));
  EXPECT_EQ(read_file(path("new/one")), "1");
  EXPECT_EQ(entries(), 2u);
}

TEST_F(Files, AFailedFillLeavesTheOldDirectory) {
  write_directory_atomically(path("d"), [](const std::string& at) { std::ofstream(at + "/f") << "old"; });
  const auto broken = [](const std::string& at) {
    std::ofstream(at + "/f") << "half";
    fail("the disk is full");
  };
  EXPECT_THROW(write_directory_atomically(path("d"), broken), Error);
  EXPECT_EQ(read_file(path("d/f")), "old");
  // Leftovers of the failure do not end up in the next directory.
  write_directory_atomically(path("d"), [](const std::string& at) { EXPECT_FALSE(file_exists(at + "/f")); });
  EXPECT_FALSE(file_exists(path("d/f")));
}

}  // namespace
}  // namespace qkv::base_test
