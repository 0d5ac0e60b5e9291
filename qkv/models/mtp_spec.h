// Multi-token prediction: modules behind the last block predict the tokens after the next one.
#pragma once

#include <cstdint>

namespace qkv {

// The input of module k, whose output is h^k. h^0 are the rows that the unembedding reads.
enum class MtpForm : uint8_t {
  chained,  // h^(k-1): as if more blocks followed
  // A projection of h^(k-1) and of the embedding of the token k places on (DeepSeek-AI 2024, DeepSeek-V3).
  joined,
  parallel,  // h^0 (Gloeckle et al. 2024)
};

// The modules of a decoder. Each is a block and a norm; module k predicts the token k places after the next.
struct MtpSpec {
  int64_t layers = 0;  // number of modules; 0: only the next token is predicted
  MtpForm form = MtpForm::chained;
  float weight = 0.3F;  // their mean loss counts so much in training, beside the next token's

  bool any() const { return layers > 0; }
  bool operator==(const MtpSpec&) const = default;
};

}  // namespace qkv
