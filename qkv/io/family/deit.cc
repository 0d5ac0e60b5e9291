// DeiT: Hugging Face's DeiTForImageClassification, DeiTForImageClassificationWithTeacher and DeiTModel.

#include "qkv/base/json_value.h"
#include "qkv/io/family/vit_parts.h"

namespace qkv {
namespace {

constexpr ImageFamily kDeit = {"deit", "DeiT", "deit", 2};

}  // namespace

const Family& deit_family() {
  static const Family family = {kDeit.type,
                                [](const JsonField& c) { return read_image_config(c, kDeit); },
                                [](const ModelSpec& s) { return write_image_config(s, kDeit); },
                                [](const ModelSpec& s) { return reads_patches(s, kDeit); },
                                [](const ModelSpec& s) { return image_weights(s, kDeit); },
                                "deit.",
                                is_extra_in_vit};
  return family;
}

}  // namespace qkv
