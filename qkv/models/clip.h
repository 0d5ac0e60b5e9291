// CLIP (Radford et al. 2021): a text model and an image model whose vectors are compared.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>

#include "qkv/models/transformer.h"

namespace qkv {

// Both models, and the projections that make their vectors comparable.
struct ClipModel {
  std::unique_ptr<Transformer> text, vision;
  Tensor text_projection, visual_projection;  // [projection, width of each]
  float log_scale = 0;                        // logarithm of the factor on cosines
  int32_t end = 0;                            // the token at which a text's vector is read
  std::map<std::string, DType> stored = {};   // types of these three tensors in the file, if not f32

  float logit_scale() const;
  // Index of the token at which a text's vector is read: its first end token. If `end` is 2, which some old
  // files say wrongly, the token with the largest id.
  int32_t place_of_text(std::span<const int32_t> ids) const;

  // Last states [N, D] of texts with ids i32 [N] -> [T, D], each text's at place_of_text(); for images the
  // class tokens' states [I, D]. Throws Error if a text has no token.
  Tensor pooled_texts(const Tensor& states, const Layout& layout, std::span<const int32_t> ids) const;
  Tensor pooled_images(const Tensor& states, const Layout& layout) const;
  // Projects those -> f32 [T or I, projection], each row of length 1.
  Tensor text_embeds(const Tensor& pooled) const;
  Tensor image_embeds(const Tensor& pooled) const;
  // Scaled similarity of each row of `a` to each row of `b`: f32 [rows of a, rows of b].
  Tensor logits(const Tensor& a, const Tensor& b) const;
};

}  // namespace qkv
