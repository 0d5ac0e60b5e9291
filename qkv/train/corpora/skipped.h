// What a run's files have and the run does not learn from.
#pragma once

#include <cstdint>
#include <string>

namespace qkv {

// Texts that were not learnt from.
struct Skipped {
  int64_t repeated = 0, unfit = 0;  // of another length, or pairs of another ratio, than is wanted
  int64_t empty = 0;                // rows without text

  // " (5 left out: 3 repeated, 2 of other lengths)", " (2 rows without text left out)", both, or nothing.
  std::string text() const;
};

// " (2 rows without text left out)", or nothing.
std::string without_text(int64_t rows);

}  // namespace qkv
