// Mamba: Hugging Face's MambaForCausalLM.

#include "qkv/base/json_value.h"
#include "qkv/io/family/mamba_parts.h"

namespace qkv {

const Family& mamba_family() {
  static const Family family = mamba_like(
      "mamba", "MambaForCausalLM", is_all<MambaMixer>,
      [](const JsonField& c) {
        ModelSpec s = read_mamba_like(c, true);
        MambaMixer m;
        m.inner = static_cast<int64_t>(c.number_or("expand", 2) * static_cast<double>(s.width));
        m.state = c.integer_or("state_size", 16, 1, kMost);
        m.rank = read_step_rank(c, "time_step_rank", s.width);
        m.kernel = c.integer_or("conv_kernel", 4, 2, kMost);
        m.bias = c.boolean_or("use_bias", true);
        m.convolution_bias = c.boolean_or("use_conv_bias", true);
        s.mixer = m;
        return s;
      },
      [](const ModelSpec& s) {
        const MambaMixer& m = *s.mixer.get_if<MambaMixer>();
        OrderedJson c = write_mamba_like(s, "mamba", "MambaForCausalLM");
        c["expand"] = static_cast<double>(m.inner) / static_cast<double>(s.width);
        c["intermediate_size"] = m.inner;
        c["state_size"] = m.state;
        c["time_step_rank"] = m.rank;
        c["conv_kernel"] = m.kernel;
        c["use_bias"] = m.bias;
        c["use_conv_bias"] = m.convolution_bias;
        return c;
      });
  return family;
}

}  // namespace qkv
