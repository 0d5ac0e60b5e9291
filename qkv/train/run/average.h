// Averages of models: checkpoints of one run lie around a better model than each of them is.
#pragma once

#include <string>
#include <vector>

namespace qkv {

// Writes the model whose every parameter is the mean of these models' (Vaswani et al. 2017, section 6.1) as
// the model directory `out`, in f32. One model at a time is in memory, beside the sums in double. Throws
// Error, with nothing written, where `out` exists, where there are fewer than two models, and naming the
// directory of a model that is not of the first one's spec or has another tokenizer.
void average_models(const std::vector<std::string>& dirs, const std::string& out);

}  // namespace qkv
