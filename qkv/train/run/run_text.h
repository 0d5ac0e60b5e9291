// Sentences about a whole run, for people.
#pragma once

#include <string>

#include "qkv/train/run/run_setup.h"

namespace qkv {

// The first line: model, data, batch, steps, type of the products, threads, memory.
std::string summary_text(const RunSetup& run);

// A resumed run that has nothing to do, and how it is trained on. `out_of_patience`: it stopped early.
std::string finished_text(const RunSetup& run, bool out_of_patience);

// The last line: time in seconds, where model and report are, and the command that uses the model.
std::string done_text(const RunSetup& run, double seconds);

// A warning where the model of this spec predicts tokens or classes far worse than one that gives all of them
// the same probability; empty elsewhere. `loss`: in nats.
std::string divergence_text(const ModelSpec& spec, double loss);

}  // namespace qkv
