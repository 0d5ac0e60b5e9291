// Mamba-2: Hugging Face's Mamba2ForCausalLM.

#include "qkv/base/json_value.h"
#include "qkv/io/family/mamba_parts.h"

namespace qkv {

const Family& mamba2_family() {
  static const Family family = mamba_like(
      "mamba2", "Mamba2ForCausalLM", is_all<Mamba2Mixer>,
      [](const JsonField& c) {
        ModelSpec s = read_mamba_like(c, false);
        Mamba2Mixer m;
        m.heads = c.integer_or("num_heads", 128, 1, kMost);
        m.head_width = c.integer_or("head_dim", 64, 1, kMost);
        m.state = c.integer_or("state_size", 128, 1, kMost);
        m.groups = c.integer_or("n_groups", 8, 1, kMost);
        m.kernel = c.integer_or("conv_kernel", 4, 2, kMost);
        m.bias = c.boolean_or("use_bias", false);
        m.convolution_bias = c.boolean_or("use_conv_bias", true);
        const auto inner = static_cast<int64_t>(c.number_or("expand", 2) * static_cast<double>(s.width));
        check(m.heads * m.head_width == inner,
              "{}: num_heads: {} heads of {} are not expand {} times hidden_size", c.place(), m.heads,
              m.head_width, c.number_or("expand", 2));
        read_step_limits(c, "time_step_limit", m);
        s.mixer = m;
        return s;
      },
      [](const ModelSpec& s) {
        const Mamba2Mixer& m = *s.mixer.get_if<Mamba2Mixer>();
        OrderedJson c = write_mamba_like(s, "mamba2", "Mamba2ForCausalLM");
        c["expand"] = static_cast<double>(m.heads * m.head_width) / static_cast<double>(s.width);
        c["num_heads"] = m.heads;
        c["head_dim"] = m.head_width;
        c["state_size"] = m.state;
        c["n_groups"] = m.groups;
        c["conv_kernel"] = m.kernel;
        c["use_bias"] = m.bias;
        c["use_conv_bias"] = m.convolution_bias;
        c["rms_norm"] = true;
        // Infinity is no JSON: what no step reaches stands for it.
        c["time_step_limit"] = {decimal(m.step_low), decimal(m.step_high > 0 ? m.step_high : kNoStep)};
        return c;
      });
  return family;
}

}  // namespace qkv
