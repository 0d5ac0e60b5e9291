// Streams of text that batches go on with, and the states that layers have of them.
#pragma once

#include "qkv/batch/batch.h"
#include "qkv/nn/states.h"

namespace qkv {

// Before a forward pass: states, one of each window's stream, become those of the batch's sequences.
// REQUIRES: continues is filled.
void load_streams(const SegmentStates& states, const Batch& batch);
// After it: they become those of the streams again, which have read on.
void store_streams(const SegmentStates& states, const Batch& batch);

}  // namespace qkv
