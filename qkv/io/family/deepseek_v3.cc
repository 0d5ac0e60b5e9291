// DeepSeek-V3: Hugging Face's DeepseekV3ForCausalLM.

#include "qkv/base/json_value.h"
#include "qkv/io/family/deepseek_parts.h"

namespace qkv {

const Family& deepseek_v3_family() {
  static const Family family = deepseek_like(
      "deepseek_v3", "DeepseekV3ForCausalLM", [](const JsonField& c) { return read_deepseek(c, true); },
      [](const ModelSpec& s) { return write_deepseek(s, "deepseek_v3", "DeepseekV3ForCausalLM"); });
  return family;
}

}  // namespace qkv
