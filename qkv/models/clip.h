// CLIP (Radford et al. 2021): a model of texts and one of images, whose vectors are compared.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>

#include "qkv/models/transformer.h"

namespace qkv {

// Both models, and what compares them.
struct ClipModel {
  std::unique_ptr<Transformer> text, vision;
  Tensor text_projection, visual_projection;  // [projection, width of each]
  float log_scale = 0;                        // the logarithm of what cosines are multiplied by
  int32_t end = 0;                            // the token at which a text's vector stands
  std::map<std::string, DType> stored = {};   // what the file had these three tensors in, where not f32

  float logit_scale() const;
  // The place of a text's vector: its first end token; of files that name it 2, as old ones do wrongly,
  // the largest id.
  int32_t place_of_text(std::span<const int32_t> ids) const;

  // The last states [N, D] of texts i32 ids [N] -> [T, D], each text's where place_of_text() says; of images
  // the class token's [I, D]. Throws Error where a text has no token.
  Tensor pooled_texts(const Tensor& states, const Layout& layout, std::span<const int32_t> ids) const;
  Tensor pooled_images(const Tensor& states, const Layout& layout) const;
  // Those -> f32 [T or I, projection] of length 1.
  Tensor text_embeds(const Tensor& pooled) const;
  Tensor image_embeds(const Tensor& pooled) const;
  // How well each row of `a` goes with each of `b`: f32 [rows of a, rows of b].
  Tensor logits(const Tensor& a, const Tensor& b) const;
};

}  // namespace qkv
