#include "qkv/models/clip.h"

#include <algorithm>
#include <cmath>

#include "qkv/ops/elementwise.h"
#include "qkv/ops/linear.h"
#include "qkv/ops/rows.h"

namespace qkv {
namespace {

Tensor embedded(const Tensor& pooled, const Tensor& projection) {
  return unit_rows(convert(linear(pooled, projection, {}), DType::f32));
}

}  // namespace

float ClipModel::logit_scale() const {
  return std::exp(log_scale);
}

int32_t ClipModel::place_of_text(std::span<const int32_t> ids) const {
  const auto it = end == 2 ? std::ranges::max_element(ids) : std::ranges::find(ids, end);
  return it == ids.end() ? 0 : static_cast<int32_t>(it - ids.begin());
}

Tensor ClipModel::pooled_texts(const Tensor& states, const Layout& layout,
                               std::span<const int32_t> ids) const {
  std::vector<int32_t> ends;
  for (size_t s = 0; s + 1 < layout.offsets.size(); ++s) {
    const int32_t begin = layout.offsets[s], end = layout.offsets[s + 1];
    check(begin < end, "input_ids: row {} has no token", s);
    ends.push_back(begin +
                   place_of_text(ids.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin))));
  }
  return select_rows(states, ends);
}

Tensor ClipModel::pooled_images(const Tensor& states, const Layout& layout) const {
  return select_rows(states, std::vector<int32_t>(layout.offsets.begin(), layout.offsets.end() - 1));
}

Tensor ClipModel::text_embeds(const Tensor& pooled) const {
  return embedded(pooled, text_projection);
}

Tensor ClipModel::image_embeds(const Tensor& pooled) const {
  return embedded(pooled, visual_projection);
}

Tensor ClipModel::logits(const Tensor& a, const Tensor& b) const {
  return scaled(linear(a, b, {}), logit_scale());
}

}  // namespace qkv
