// The attention of heads and the answers of layers while a model trains: OUT/traces/step-00000100.json.
#pragma once

#include "qkv/train/run/run_setup.h"

namespace qkv {

// Writes the attention and the logit lens of the first validation tokens, and the roles of all heads in
// random tokens that come twice, where the run stands. Throws Error if the task has no running text.
void write_run_trace(const RunSetup& run, const Transformer& model);

}  // namespace qkv
