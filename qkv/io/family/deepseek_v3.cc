// DeepSeek-V3: Hugging Face's DeepseekV3ForCausalLM.

#include "qkv/base/json_value.h"
#include "qkv/io/family/deepseek_parts.h"
#include "qkv/io/family/llama_parts.h"

namespace qkv {

const Family& deepseek_v3_family() {
  static const Family family = deepseek_like(
      "deepseek_v3", "DeepseekV3ForCausalLM",
      [](const JsonField& c) {
        ModelSpec s = read_deepseek(c, true);
        read_mtp(c, s);
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_deepseek(s, "deepseek_v3", "DeepseekV3ForCausalLM");
        write_mtp(s, c);
        return c;
      });
  return family;
}

}  // namespace qkv
