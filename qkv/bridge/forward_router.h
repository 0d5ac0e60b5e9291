// qkv forward of mixtures of experts: what Hugging Face's models report of their routers.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "qkv/bridge/collector.h"

namespace qkv {

// Of a language model router_logits.LAYER [B T, E] and aux_loss: Fedus et al. 2021, eq. 4 without its factor,
// of the real tokens, over all layers as one. Of an encoder-decoder, for `encoder` and `decoder`,
// encoder_router_logits.LAYER.0 [B, T, E] and .1, the expert of each token i64 [B, T] (of a layer without
// experts .0 is one 0); encoder_aux_loss, of all tokens, for each sequence and then their mean; and
// encoder_z_loss, the mean of log^2 sum_e exp(logit_e) (Zoph et al. 2022, ST-MoE, eq. 5). As there, padding
// goes through the model, too: a place of padding sees the tokens that its stack lets it see, and no token
// sees it; but where patterns are narrower than the batch its logits are 0.
std::vector<std::pair<std::string, Tensor>> router_outputs(const Transformer& model, const Safetensors& in,
                                                           const std::string& path, const Inputs& inputs);

}  // namespace qkv
