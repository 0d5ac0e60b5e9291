// The latents of a Perceiver.
#pragma once

#include <cstdint>

namespace qkv {

// A layer of cross-attention and a feed-forward network.
struct LatentCross {
  int64_t heads = 0;
  int64_t d_qk = 0, d_vo = 0;  // widths of a head
  int64_t hidden = 0;          // d_mlp
  bool residual = true;        // queries are added to what they attend to

  bool operator==(const LatentCross&) const = default;
};

// Vectors that read the tokens by cross-attention and then see each other, in the tokens' place (Jaegle et
// al. 2021, Perceiver). Queries of positions, or one of the whole sequence, read the output (Jaegle et al.
// 2022, Perceiver IO).
struct LatentSpec {
  int64_t count = 0;        // 0: tokens see each other
  int64_t width = 0;        // the blocks' width
  int64_t repeats = 1;      // the blocks run so often, with the same weights
  bool read_again = false;  // before each time they read the tokens again, with the same weights
  LatentCross in = {}, out = {.residual = false};

  bool any() const { return count > 0; }
  bool operator==(const LatentSpec&) const = default;
};

}  // namespace qkv
