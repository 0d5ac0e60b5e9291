// Models whose configuration no longer fits: whatever it says, `qkv forward` computes something or names the
// error.
#pragma once

#include <functional>
#include <string>

#include "tests/fuzz/shape_cases.h"

namespace qkv::testing {

// Runs the model in `dir`, with inputs that fit it.
void run_model(const std::string& dir, Draw& draw);

// Changes one to three values of the config.json or generation_config.json in `dir` (numbers, words, lists,
// types; anywhere in it) and calls `run`; `count` times. The files say in the end what they said before; one
// with which `run` crashes stays. Throws Error with the changed file where `run` throws something else.
void check_mutations(const std::string& dir, int64_t count, Draw& draw, const std::function<void()>& run);

}  // namespace qkv::testing
