// Commands that write GGUF files.
#pragma once

#include <string>

namespace qkv {

struct GgufOutput {
  std::string from, out;
  std::string type = {};  // name of a file type; empty: tensors keep theirs
  bool requantize = false, overwrite = false;
  std::string calibrate = {};      // text that tells which columns count; empty: all alike
  int64_t calibration_tokens = 0;  // at most, from its beginning
};

// Throws Error unless it names a file type, or is empty.
void expect_type(const std::string& type);

// Writes the file with progress on stderr, and prints its size at the end.
void write_gguf_file(const GgufOutput& output);

}  // namespace qkv
