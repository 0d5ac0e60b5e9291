// Several ranks as threads of a test.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <vector>

#include "qkv/base/communicator.h"

namespace qkv::testing {

// Calls f with a communicator on each of `ranks` threads. An exception of one ends all, and fails the test.
inline void on_ranks(int ranks, const std::function<void(Communicator&)>& f, double timeout_s = 600) {
  const auto communicators = thread_communicators(ranks, timeout_s);
  std::vector<std::thread> threads;
  for (const auto& me : communicators)
    threads.emplace_back([&f, &me] {
      try {
        f(*me);
      } catch (const std::exception& e) {
        me->fail_together(e.what());
        ADD_FAILURE() << "rank " << me->rank() << ": " << e.what();
      }
    });
  for (std::thread& t : threads) t.join();
}

}  // namespace qkv::testing
