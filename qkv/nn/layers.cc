#include "qkv/nn/layers.h"

#include <cmath>

#include "qkv/ops/elementwise.h"
#include "qkv/ops/linear.h"
#include "qkv/ops/norm.h"

namespace qkv {

Linear::Linear(Parameters& parameters, const std::string& name, int64_t in, int64_t out, bool bias, float std)
    : weight_(&parameters.add(name + ".weight", {out, in}, ParameterKind::matrix,
                              {Initializer::Kind::normal, std})) {
  if (bias) bias_ = &parameters.add(name + ".bias", {out}, ParameterKind::vector, {Initializer::Kind::zeros});
}

Tensor Linear::forward(const Tensor& x) const {
  return linear(x, weight_->value, bias_ ? bias_->value : Tensor());
}

LayerNorm::LayerNorm(Parameters& parameters, const std::string& name, int64_t width, float epsilon)
    : gamma_(&parameters.add(name + ".gamma", {width}, ParameterKind::vector, {Initializer::Kind::ones})),
      beta_(&parameters.add(name + ".beta", {width}, ParameterKind::vector, {Initializer::Kind::zeros})),
      epsilon_(epsilon) {}

MultiHeadAttention::MultiHeadAttention(Parameters& parameters, const std::string& name, int64_t width,
                                       const AttentionSpec& spec, Mask mask, int64_t layer, uint32_t site,
                                       float std, float out_std)
    : name_(name),
      spec_(spec),
      mask_(mask),
      scale_((spec.scaled ? 1 / std::sqrt(static_cast<float>(spec.d_qk)) : 1.0f) /
             (spec.scaled_by_layer ? static_cast<float>(layer + 1) : 1.0f)),
      site_(site),
      qkv_(parameters, name + ".qkv", width,
           (spec.heads + spec.kv_heads) * spec.d_qk + spec.kv_heads * spec.d_vo, spec.bias, std),
      out_(parameters, name + ".out", spec.heads * spec.d_vo, width, spec.bias, out_std) {}

Tensor MultiHeadAttention::forward(const Tensor& x, const Context& context, LayerState* state) const {
  const Tensor qkv = qkv_.forward(x);
  const int64_t k_column = spec_.heads * spec_.d_qk, v_column = k_column + spec_.kv_heads * spec_.d_qk;
  const Heads q{qkv, 0, spec_.heads, spec_.d_qk};
  Heads k{qkv, k_column, spec_.kv_heads, spec_.d_qk};
  Heads v{qkv, v_column, spec_.kv_heads, spec_.d_vo};
  KeyLayout keys = KeyLayout::contiguous(context.layout.offsets);
  if (state != nullptr) {
    auto& memory = dynamic_cast<KeyValueState&>(*state);
    memory.append(k, v, context.layout.offsets);
    k = memory.keys();
    v = memory.values();
    keys = memory.layout();
  }
  const AttentionOptions options{mask_, {}, scale_, context.dropout(spec_.dropout, site_)};
  const std::string scores_name = name_ + ".scores", probabilities_name = name_ + ".probabilities";
  Tensor heads;
  if (context.probed(scores_name) || context.probed(probabilities_name)) {
    heads = attention_unfused(q, k, v, context.layout.offsets, keys, options,
                              [&](int64_t s, int64_t h, const Tensor& scores, Tensor& probabilities) {
                                Tensor copy = scores;
                                if (context.probed(scores_name))
                                  context.probe->visit_head(scores_name, s, h, copy);
                                if (context.probed(probabilities_name))
                                  context.probe->visit_head(probabilities_name, s, h, probabilities);
                              });
  } else {
    heads = attention(q, k, v, context.layout.offsets, keys, options);
  }
  context.visit(name_ + ".heads", heads);
  return out_.forward(heads);
}

std::unique_ptr<LayerState> MultiHeadAttention::make_state(int64_t sequences) const {
  return std::make_unique<KeyValueState>(sequences, spec_.kv_heads, spec_.d_qk, spec_.d_vo);
}

FeedForward::FeedForward(Parameters& parameters, const std::string& name, int64_t width, int64_t hidden,
                         Activation activation, float std, float out_std)
    : name_(name),
      activation_(activation),
      up_(parameters, name + ".up", width, hidden, true, std),
      down_(parameters, name + ".down", hidden, width, true, out_std) {}

Tensor FeedForward::forward(const Tensor& x, const Context& context, LayerState*) const {
  Tensor hidden = activation(activation_, up_.forward(x));
  context.visit(name_ + ".hidden", hidden);
  return down_.forward(hidden);
}

Tensor ResidualStream::add_and_norm(const LayerNorm& norm, const Context& context) {
  ResidualNormResult r = residual_norm(x, branch, dropout, norm.gamma(), norm.beta(), norm.epsilon());
  if (context.probed(name)) {  // the sum may be replaced: norm it again on its own
    context.visit(name, r.sum);
    r.normalized = residual_norm(r.sum, {}, {}, norm.gamma(), norm.beta(), norm.epsilon()).normalized;
  }
  x = r.sum;
  branch = Tensor();
  return r.normalized;
}

void Residual::forward(ResidualStream& stream, const Context& context, LayerState* state) const {
  Tensor normalized = stream.add_and_norm(norm, context);
  context.visit(name + ".norm", normalized);
  stream.branch = sublayer->forward(normalized, context, state);
  context.visit(name + ".branch", stream.branch);
  stream.dropout = context.dropout(dropout, site);
  stream.name = name + ".sum";
}

}  // namespace qkv
