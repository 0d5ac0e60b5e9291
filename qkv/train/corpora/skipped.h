// Texts of a run's files that are not used for training.
#pragma once

#include <cstdint>
#include <string>

namespace qkv {

// Numbers of skipped texts.
struct Skipped {
  int64_t repeated = 0, unfit = 0;  // unfit: length or length ratio out of bounds
  int64_t empty = 0;                // rows without text

  // " (5 left out: 3 repeated, 2 of other lengths)", " (2 rows without text left out)", both, or "".
  std::string text() const;
};

// " (2 rows without text left out)", or "" if there are none.
std::string without_text(int64_t rows);

}  // namespace qkv
