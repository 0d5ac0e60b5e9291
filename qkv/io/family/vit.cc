// ViT: Hugging Face's ViTForImageClassification and ViTModel.

#include "qkv/base/json_value.h"
#include "qkv/io/family/vit_parts.h"

namespace qkv {
namespace {

constexpr ImageFamily kVit = {"vit", "ViT", "vit", 1};

}  // namespace

const Family& vit_family() {
  static const Family family = {kVit.type,
                                [](const JsonField& c) { return read_image_config(c, kVit); },
                                [](const ModelSpec& s) { return write_image_config(s, kVit); },
                                [](const ModelSpec& s) { return reads_patches(s, kVit); },
                                [](const ModelSpec& s) { return image_weights(s, kVit); },
                                "vit.",
                                is_extra_in_vit};
  return family;
}

}  // namespace qkv
