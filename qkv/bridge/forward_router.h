// qkv forward for mixtures of experts: router outputs as in Hugging Face's models.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "qkv/bridge/collector.h"

namespace qkv {

// A language model has router_logits.LAYER [B T, E] and aux_loss: Fedus et al. 2021, eq. 4 without its
// factor, over the real tokens of all layers together. An encoder-decoder has the following for `encoder`
// and `decoder`:
// - encoder_router_logits.LAYER.0 [B, T, E] and .1, the expert of each token, i64 [B, T] (in a layer
//   without experts, .0 is a single 0);
// - encoder_aux_loss, over all tokens, the mean of the sequences' values;
// - encoder_z_loss, the mean of log^2 sum_e exp(logit_e) (Zoph et al. 2022, ST-MoE, eq. 5).
// As in Hugging Face's models, padding goes through the model, too. Padding sees the tokens that its
// stack's mask allows, and no token sees padding. If patterns are narrower than the batch, the logits of
// padding are 0.
std::vector<std::pair<std::string, Tensor>> router_outputs(const Transformer& model, const TensorFile& in,
                                                           const std::string& path, const Inputs& inputs);

}  // namespace qkv
