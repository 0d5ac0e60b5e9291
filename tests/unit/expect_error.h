// Refusals: not only that something is thrown, but that the message tells where to look.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

#include "qkv/base/error.h"

namespace qkv::testing {

// Expects an Error of type E whose message holds all of `parts`, in one line.
template <typename E = Error, typename F>
void expect_error(F&& f, std::initializer_list<std::string> parts) {
  try {
    f();
    ADD_FAILURE() << "nothing was thrown, expected: " << (parts.size() ? *parts.begin() : "an error");
  } catch (const E& e) {
    const std::string message = e.what();
    for (const std::string& part : parts)
      EXPECT_NE(message.find(part), std::string::npos) << "'" << part << "' is not in: " << message;
  } catch (const std::exception& e) {
    ADD_FAILURE() << "another exception: " << e.what();
  }
}

}  // namespace qkv::testing
