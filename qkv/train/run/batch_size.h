// The size of a run's micro-batches, and the memory that they take.
#pragma once

#include <cstdint>

#include "qkv/train/config/config.h"
#include "qkv/train/tasks/task.h"

namespace qkv {

// Windows of a micro-batch: config.batch; or, where that is 0, `resumed`, that of the checkpoint; or, where
// there is none (0), as many as fit into memory and have no window twice. Throws Error with what would fit
// where the memory does not hold them (memory_limit()), and where the data do not fill one.
int64_t resolve_batch_size(const TrainConfig& config, const Task& task, int64_t resumed, int ranks = 1);

}  // namespace qkv
