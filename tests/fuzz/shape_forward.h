// `qkv forward` in this process.
#pragma once

#include <string>
#include <vector>

#include "tests/fuzz/shape_inputs.h"

namespace qkv::testing {

// Runs `qkv forward DIR` with further words of a command line: reads DIR/in.safetensors, which it writes
// first, and writes DIR/out.safetensors. Throws what the command throws.
void run_forward(const std::string& dir, const Named& in, const std::vector<std::string>& more);

}  // namespace qkv::testing
