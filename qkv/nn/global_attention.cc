#include "qkv/nn/global_attention.h"

#include "qkv/ops/rows.h"

namespace qkv {

GlobalAttention::GlobalAttention(Parameters& parameters, const std::string& name, int64_t width,
                                 const AttentionSpec& spec, InitStd std)
    : name_(name),
      spec_(spec),
      q_(parameters, name + ".q", width, spec.heads * spec.d_qk, spec.bias, std.inner),
      kv_(parameters, name + ".kv", width, spec.kv_heads * (spec.d_qk + spec.d_vo), spec.bias, std.inner,
          IdleBias{0, spec.kv_heads * spec.d_qk}) {}

Tensor GlobalAttention::replace(const Tensor& heads, const Tensor& x, int64_t first, float scale,
                                uint32_t site, const Context& context) const {
  const std::vector<int32_t>& offsets = context.layout.offsets;
  std::vector<int32_t> rows, of_sequences = {0};
  const bool told = context.globals.defined();
  const auto counts = context.globals.values();
  for (size_t s = 0; s + 1 < offsets.size(); ++s) {
    for (int32_t r = offsets[s]; r < offsets[s + 1]; ++r)
      if (told ? counts[r + 1] > counts[r] : r - offsets[s] < first) rows.push_back(r);
    of_sequences.push_back(static_cast<int32_t>(rows.size()));
  }
  if (rows.empty()) return heads;
  const Indices which = std::move(rows);
  const Tensor kv = kv_.forward(x, context);
  const Heads q{q_.forward(select_rows(x, which), context), 0, spec_.heads, spec_.d_qk},
      k{kv, 0, spec_.kv_heads, spec_.d_qk}, v{kv, spec_.kv_heads * spec_.d_qk, spec_.kv_heads, spec_.d_vo};
  AttentionOptions options;
  options.scale = scale;
  options.dropout = context.dropout(spec_.dropout, site);
  const KeyLayout keys = KeyLayout::contiguous(offsets);
  const Tensor y = !context.probed(name_, ".probabilities")
                       ? attention(q, k, v, of_sequences, keys, options)
                       : attention_unfused(q, k, v, of_sequences, keys, options,
                                           {.probabilities = context.head_visitor(name_, ".probabilities")});
  return replace_rows(heads, which, y);
}

}  // namespace qkv
