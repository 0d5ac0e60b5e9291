// Memory of tensors that nobody needs for a while.
#pragma once

#include "qkv/tensor/tensor.h"

namespace qkv {

// Gives the memory of elements [begin, end) back to the system, in whole pages. They read as zeros, or as
// before, and take memory again when they are written. Throws Error for elements that the tensor lacks, and
// for borrowed memory.
void release_memory(Tensor& x, int64_t begin, int64_t end);

}  // namespace qkv
