// DeepSeek-V2: Hugging Face's DeepseekV2ForCausalLM.

#include "qkv/base/json_value.h"
#include "qkv/io/family/deepseek_parts.h"

namespace qkv {

const Family& deepseek_v2_family() {
  static const Family family = deepseek_like(
      "deepseek_v2", "DeepseekV2ForCausalLM", [](const JsonField& c) { return read_deepseek(c, false); },
      [](const ModelSpec& s) { return write_deepseek(s, "deepseek_v2", "DeepseekV2ForCausalLM"); });
  return family;
}

}  // namespace qkv
