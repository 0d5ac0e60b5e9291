#!/usr/bin/env python3
"""Tests of the documentation's filter of comments.

usage: doxygen_filter_test.py REPOSITORY [unittest arguments]
"""
import sys
import unittest

REPOSITORY = ""

HEADER = """\
// Adds numbers.
#pragma once

namespace qkv {

// x + y <= 9. REQUIRES: `x < 9`. Throws Error when too large.
int add(int x, int y);
template <typename T>
T add(T x, T y);

struct Forward;  // elsewhere

// A pair
// of numbers.
struct Pair {
  int x;  // the first,
          // from 0
  int y;
  // Their sum.
  int sum() const {
    // not a declaration
    return x + y;  // nor this
  }
  // nothing follows
};

}  // namespace qkv"""

FILTERED = """\
// Adds numbers.
#pragma once

namespace qkv {

/// x + y \\<= 9. @pre `x < 9`. @throws Error  when too large.
int add(int x, int y);
/** x + y \\<= 9. @pre `x < 9`. @throws Error  when too large. */ template <typename T>
T add(T x, T y);

struct Forward;  // elsewhere

/// A pair
/// of numbers.
struct Pair {
  int x;  ///< the first,
          ///< from 0
  int y;
  /// Their sum.
  int sum() const {
    // not a declaration
    return x + y;  // nor this
  }
  // nothing follows
};

}  // namespace qkv
/// @file
/// Adds numbers."""


class Filter(unittest.TestCase):
    def test_header(self):
        sys.path.insert(0, f"{REPOSITORY}/tools")
        import doxygen_filter
        self.assertEqual("\n".join(doxygen_filter.convert(HEADER.split("\n"))), FILTERED)


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    REPOSITORY = sys.argv[1]
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
