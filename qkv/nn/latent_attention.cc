#include "qkv/nn/latent_attention.h"

#include "qkv/ops/latent.h"
#include "qkv/ops/linear.h"
#include "qkv/ops/parts.h"
#include "qkv/ops/rotary.h"

namespace qkv {
namespace {

// The norm of latents, whatever the model's norm is.
constexpr NormSpec kLatentNorm = {Normalization::rms, 1e-6F};

}  // namespace

LatentAttention::LatentAttention(Parameters& parameters, const std::string& name, int64_t width,
                                 const AttentionSpec& spec, Latents latents, Mask mask, int64_t layer,
                                 uint32_t site, InitStd std)
    : latents_(latents),
      q_latent_(latents.query > 0 ? std::make_unique<Linear>(parameters, name + ".q_latent", width,
                                                             latents.query, spec.bias, std.inner)
                                  : nullptr),
      q_norm_(latents.query > 0
                  ? std::make_unique<Norm>(parameters, name + ".q_norm", latents.query, kLatentNorm)
                  : nullptr),
      q_(parameters, name + ".q", latents.query > 0 ? latents.query : width, spec.heads * spec.d_qk, false,
         std.inner),
      kv_latent_(parameters, name + ".kv_latent", width, latents.kv + spec.rotary.width, spec.bias,
                 std.inner),
      kv_norm_(parameters, name + ".kv_norm", latents.kv, kLatentNorm),
      kv_(&parameters.add(name + ".kv.weight",
                          {spec.heads * (spec.d_qk - spec.rotary.width + spec.d_vo), latents.kv},
                          ParameterKind::matrix, {Initializer::Kind::normal, std.inner})),
      attention_(parameters, name, width, spec, mask, true, layer, site, std) {}

Tensor LatentAttention::queries(const Tensor& x, const Context& context) const {
  const AttentionSpec& a = attention_.spec();
  Tensor latents = x;
  if (q_latent_) {
    latents = q_norm_->forward(q_latent_->forward(x, context));
    context.visit(attention_.name(), ".query_latents", latents);
  }
  Tensor q = rotary(q_.forward(latents, context), a.heads, a.d_qk, a.rotary.layout, context.rotation);
  context.visit(attention_.name(), ".queries", q);
  return q;
}

Tensor LatentAttention::forward(const Tensor& x, const Context& context) const {
  const AttentionSpec& a = attention_.spec();
  const int64_t shared = a.rotary.width, own = a.d_qk - shared;
  const Tensor q = queries(x, context), both = kv_latent_.forward(x, context);
  Tensor c = kv_norm_.forward(columns_of(both, 0, latents_.kv));
  context.visit(attention_.name(), ".latents", c);
  const Tensor k_shared =
      rotary(columns_of(both, latents_.kv, both.width()), 1, shared, a.rotary.layout, context.rotation);
  KeyValueState* memory = state(context);
  if (memory == nullptr) {
    const Tensor kv = linear(c, kv_->value, {});
    Heads k{join_heads(k_shared, kv, a.heads, own), 0, a.heads, a.d_qk},
        v{kv, a.heads * own, a.heads, a.d_vo};
    attention_.visit(".keys", k, context);
    attention_.visit(".values", v, context);
    return attention_.forward({q, 0, a.heads, a.d_qk}, k, v, KeyLayout::contiguous(context.layout.offsets),
                              context);
  }
  memory->append({join_columns(c, k_shared), 0, 1, latents_.kv + shared},
                 {Tensor::empty({c.rows(), 0}, c.dtype()), 0, 1, 0}, context.layout.offsets);
  const Tensor moved = queries_for_latent(q, kv_->value, a.heads, own);
  const Tensor latents = attention_.heads({moved, 0, a.heads, latents_.kv + shared}, memory->keys(),
                                          {memory->keys().x, 0, 1, latents_.kv}, memory->layout(), context);
  return attention_.project(values_from_latent(latents, kv_->value, a.heads * own, a.heads), context);
}

std::unique_ptr<KeyValueState> LatentAttention::make_state(int64_t sequences) const {
  const AttentionSpec& a = attention_.spec();
  return std::make_unique<KeyValueState>(sequences, 1, latents_.kv + a.rotary.width, 0);
}

}  // namespace qkv
