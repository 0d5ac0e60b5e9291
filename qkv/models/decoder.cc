#include "qkv/models/decoder.h"

#include <cmath>

#include "qkv/ops/elementwise.h"
#include "qkv/ops/embedding.h"
#include "qkv/ops/linear.h"

namespace qkv {
namespace {

// The places that use randomness, apart from each other in every layer.
constexpr uint32_t kEmbeddingSite = 1;
uint32_t layer_site(int64_t layer, uint32_t use) {
  return 16 + static_cast<uint32_t>(layer) * 8 + use;
}

}  // namespace

Decoder::Decoder(const ModelSpec& spec) : spec_(spec) {
  check_spec(spec);
  const float std = spec.init_std;
  // Residual branches start smaller by the root of their number (GPT-2).
  const float out_std = std / std::sqrt(2 * static_cast<float>(spec.layers));
  token_ = &parameters_.add("embedding.token", {spec.vocab_size, spec.width}, ParameterKind::matrix,
                            {Initializer::Kind::normal, std});
  position_ = &parameters_.add("embedding.position", {spec.context, spec.width}, ParameterKind::matrix,
                               {Initializer::Kind::normal, std});
  for (int64_t l = 0; l < spec.layers; ++l) {
    const std::string name = fmt::format("decoder.block.{}", l);
    const std::string attention = name + ".attention", feed_forward = name + ".feed_forward";
    LayerNorm attention_norm(parameters_, attention + ".norm", spec.width, spec.norm_epsilon);
    auto mha = std::make_unique<MultiHeadAttention>(parameters_, attention, spec.width, spec.attention,
                                                    Mask::causal(), l, layer_site(l, 0), std, out_std);
    LayerNorm feed_forward_norm(parameters_, feed_forward + ".norm", spec.width, spec.norm_epsilon);
    auto ffn = std::make_unique<FeedForward>(parameters_, feed_forward, spec.width, spec.hidden,
                                             spec.activation, std, out_std);
    blocks_.push_back(
        {{attention_norm, std::move(mha), spec.residual_dropout, layer_site(l, 1), attention},
         {feed_forward_norm, std::move(ffn), spec.residual_dropout, layer_site(l, 2), feed_forward}});
  }
  norm_ = std::make_unique<LayerNorm>(parameters_, "decoder.norm", spec.width, spec.norm_epsilon);
  unembedding_ = spec.tied ? token_
                           : &parameters_.add("unembedding.weight", {spec.vocab_size, spec.width},
                                              ParameterKind::matrix, {Initializer::Kind::normal, std});
}

Tensor Decoder::hidden(const Tensor& ids, const Context& context,
                       std::span<const std::unique_ptr<LayerState>> states) const {
  check(ids.count() == context.layout.rows(), "decoder: {} ids do not fit a layout of {} rows", ids.count(),
        context.layout.rows());
  check(states.empty() || states.size() == blocks_.size(), "decoder: {} states for {} blocks", states.size(),
        blocks_.size());
  check(states.empty() || !recompute_ || !recording(),
        "decoder: decoding states cannot be appended to in recomputed blocks");
  const Tensor tokens = embedding(ids, token_->value, "token id");
  const Tensor positions = embedding(context.layout.positions, position_->value, "position");
  ResidualStream stream{
      dropout(add(tokens, positions), context.dropout(spec_.embedding_dropout, kEmbeddingSite)),
      {},
      {},
      "decoder.embedding"};
  for (size_t l = 0; l < blocks_.size(); ++l) {
    if (dropped(l, context)) continue;
    LayerState* state = states.empty() ? nullptr : states[l].get();
    const auto run = [&, l, state](ResidualStream& s) {
      blocks_[l].attention.forward(s, context, state);
      blocks_[l].feed_forward.forward(s, context, nullptr);
    };
    if (!recompute_ || !recording()) {
      run(stream);
      continue;
    }
    const Dropout pending = stream.dropout;
    const auto out =
        recompute({stream.x, stream.branch}, [this, l, context, pending](const std::vector<Tensor>& in) {
          ResidualStream s{in[0], in[1], pending, {}};
          blocks_[l].attention.forward(s, context, nullptr);
          blocks_[l].feed_forward.forward(s, context, nullptr);
          return std::vector<Tensor>{s.x, s.branch};
        });
    stream = {out[0], out[1], context.dropout(blocks_[l].feed_forward.dropout, blocks_[l].feed_forward.site),
              blocks_[l].feed_forward.name + ".sum"};
  }
  Tensor out = stream.add_and_norm(*norm_, context);
  context.visit("decoder.norm", out);
  return out;
}

bool Decoder::dropped(size_t layer, const Context& context) const {
  const RandomStream stream{context.seed, context.step, layer_site(static_cast<int64_t>(layer), 3)};
  return context.training && layer_drop_ > 0 && stream.uniform(0) < double{layer_drop_};
}

Tensor Decoder::logits(const Tensor& hidden) const {
  return linear(hidden, unembedding(), {}, DType::f32);
}

CrossEntropyResult Decoder::loss(const Tensor& ids, const Tensor& targets, const Context& context,
                                 float scale, const LossTerms& terms) const {
  return unembed_cross_entropy(hidden(ids, context), unembedding(), targets, scale, terms);
}

std::vector<std::unique_ptr<LayerState>> Decoder::make_states(int64_t sequences) const {
  std::vector<std::unique_ptr<LayerState>> states;
  for (const Block& b : blocks_) states.push_back(b.attention.sublayer->make_state(sequences));
  return states;
}

}  // namespace qkv
