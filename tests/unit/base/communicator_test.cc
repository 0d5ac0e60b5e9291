// The ranks of one process: what each receives, and how all end when one does.
#include "qkv/base/communicator.h"

#include <gtest/gtest.h>

#include "tests/rank_threads.h"
#include "tests/unit/expect_error.h"

namespace qkv::communicator_test {
namespace {

std::span<const std::byte> bytes(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// Rank a sends rank b a text that only these two have, of a length that only they have.
TEST(Communicator, ExchangesTextsOfUnequalLengths) {
  const auto text = [](int from, int to) {
    return std::string(static_cast<size_t>(3 * from + to), 'a') + std::to_string(10 * from + to);
  };
  for (const int ranks : {1, 2, 3, 5}) {
    testing::on_ranks(ranks, [&](Communicator& me) {
      std::vector<std::string> sent, received;
      for (int r = 0; r < ranks; ++r) {
        sent.push_back(text(me.rank(), r));
        received.emplace_back(text(r, me.rank()).size(), '?');
      }
      std::vector<std::span<const std::byte>> out;
      std::vector<std::span<std::byte>> in;
      for (auto& s : sent) out.push_back(bytes(s));
      for (auto& r : received) in.push_back(std::as_writable_bytes(std::span(r.data(), r.size())));
      me.exchange(out, in);
      int64_t to_others = 0;
      for (int r = 0; r < ranks; ++r) {
        EXPECT_EQ(received[static_cast<size_t>(r)], text(r, me.rank()));
        if (r != me.rank()) to_others += std::ssize(sent[static_cast<size_t>(r)]);
      }
      EXPECT_EQ(me.bytes_sent(), me.alone() ? 0 : to_others);
    });
  }
}

TEST(Communicator, GathersCollectsAndBroadcasts) {
  testing::on_ranks(3, [](Communicator& me) {
    const std::string mine(static_cast<size_t>(me.rank()), static_cast<char>('x' + me.rank()));
    const std::vector<std::string> all = {"", "y", "zz"}, none = {"", "", ""};
    EXPECT_EQ(me.gather(mine), all);
    EXPECT_EQ(me.collect(mine), me.leads() ? all : none);
    EXPECT_EQ(me.broadcast(me.leads() ? "from the first" : "ignored"), "from the first");
    for (int who = 0; who < 3; ++who) EXPECT_TRUE(me.any(me.rank() == who));
    EXPECT_FALSE(me.any(false));
    me.barrier();
  });
  EXPECT_EQ(single_process().gather("alone"), std::vector<std::string>{"alone"});
  EXPECT_EQ(single_process().broadcast("alone"), "alone");
  EXPECT_TRUE(single_process().any(true));
  EXPECT_FALSE(single_process().any(false));
}

TEST(Communicator, AFailureEndsTheCallsOfAllRanks) {
  testing::on_ranks(3, [](Communicator& me) {
    me.barrier();
    if (me.rank() == 1) {
      me.fail_together("the disk is full");
      return;
    }
    for (int i = 0; i < 2; ++i)
      testing::expect_error([&] { me.barrier(); }, {"rank 1 of 3: the disk is full"});
  });
}

TEST(Communicator, NamesARankThatHangs) {
  testing::on_ranks(
      3,
      [](Communicator& me) {
        if (me.rank() != 2) testing::expect_error([&] { me.barrier(); }, {"rank 2 of 3", "has not answered"});
      },
      0.2);
}

TEST(Communicator, NamesAMessageOfAnotherLength) {
  testing::on_ranks(2, [](Communicator& me) {
    std::string mine(4, 'a'), other(me.leads() ? 4 : 5, '?');
    std::string own = mine;
    std::vector<std::span<const std::byte>> out(2, bytes(mine));
    std::vector<std::span<std::byte>> in(2);
    in[static_cast<size_t>(me.rank())] = std::as_writable_bytes(std::span(own.data(), own.size()));
    in[static_cast<size_t>(1 - me.rank())] = std::as_writable_bytes(std::span(other.data(), other.size()));
    try {
      me.exchange(out, in);
      EXPECT_TRUE(me.leads()) << "rank 1 expects 5 bytes";
    } catch (const Error& e) {
      me.fail_together(e.what());
      if (!me.leads()) {
        EXPECT_EQ(e.what(), std::string("exchange: rank 0 sends 4 bytes to rank 1, which expects 5"));
      }
    }
  });
}

}  // namespace
}  // namespace qkv::communicator_test
