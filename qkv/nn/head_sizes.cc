#include "qkv/nn/head_sizes.h"

namespace qkv {

std::shared_ptr<const ColumnMap> spread_heads(const AttentionSpec& spec,
                                              std::initializer_list<HeadPart> parts) {
  if (spec.head_sizes.empty()) return nullptr;
  const int64_t widest = spec.d_qk;
  auto map = std::make_shared<ColumnMap>();
  for (const HeadPart part : parts)
    for (const int64_t size : spec.head_sizes) {
      const float factor = part == HeadPart::query ? spec.factor_of_size(size) : 1.0F;
      for (int64_t c = 0; c < widest; ++c) {
        map->source.push_back(c < size ? static_cast<int32_t>(map->from + c) : -1);
        map->factor.push_back(factor);
      }
      map->from += size;
    }
  return map;
}

std::shared_ptr<const ColumnMap> narrow_heads(const AttentionSpec& spec) {
  if (spec.head_sizes.empty()) return nullptr;
  auto map = std::make_shared<ColumnMap>();
  for (const int64_t size : spec.head_sizes) {
    for (int64_t c = 0; c < size; ++c) map->source.push_back(static_cast<int32_t>(map->from + c));
    map->from += spec.d_vo;
  }
  map->factor.assign(map->source.size(), 1.0F);
  return map;
}

}  // namespace qkv
