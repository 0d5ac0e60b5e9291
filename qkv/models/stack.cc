#include "qkv/models/stack.h"

#include <algorithm>
#include <cmath>

namespace qkv {

BlockStack::BlockStack(Parameters& parameters, const std::string& name, const ModelSpec& spec,
                       const Shape& shape)
    : name_(name), placement_(spec.norm_placement), site_(shape.site), attentions_(shape.cross ? 2 : 1) {
  // Residual branches that are summed up to the end start smaller by the root of their number (GPT-2).
  const auto branches = static_cast<float>((attentions_ + 1) * shape.layers);
  const InitStd std{spec.init_std,
                    placement_ == NormPlacement::pre ? spec.init_std / std::sqrt(branches) : spec.init_std};
  for (int64_t l = 0; l < shape.layers; ++l) {
    const std::string block_name = fmt::format("{}.block.{}", name, l);
    const uint32_t site = site_ + static_cast<uint32_t>(l) * kSitesALayer;
    Block block;
    const auto add = [&](const char* sublayer_name, uint32_t use, const auto& make) {
      const std::string full = fmt::format("{}.{}", block_name, sublayer_name);
      const Norm norm(parameters, full + ".norm", spec.width, spec.norm());
      block.push_back({placement_, norm, make(full), spec.residual_dropout, site + use, full});
    };
    add("attention", 1, [&](const std::string& full) {
      return std::make_unique<SelfAttention>(parameters, full, spec.width, spec.attention, shape.mask, l,
                                             site, std);
    });
    if (shape.cross)
      add("cross_attention", 4, [&](const std::string& full) {
        return std::make_unique<CrossAttention>(parameters, full, spec.width, spec.attention, l, site + 5,
                                                std);
      });
    add("feed_forward", 2, [&](const std::string& full) {
      return std::make_unique<FeedForward>(parameters, full, spec.width, spec.feed_forward(), std);
    });
    blocks_.push_back(std::move(block));
  }
  if (spec.positions == Positions::relative) {
    buckets_ = {spec.relative_buckets, spec.relative_distance,
                shape.mask.kind == Mask::Kind::full || spec.order == Order::prefix};
    distance_ = &parameters.add(name + ".distance", {spec.relative_buckets, spec.attention.heads},
                                ParameterKind::vector, {Initializer::Kind::normal, spec.init_std});
  }
  if (placement_ == NormPlacement::pre)
    norm_ = std::make_unique<Norm>(parameters, name + ".norm", spec.width, spec.norm());
}

Tensor BlockStack::forward(const Tensor& x, const Context& given,
                           std::span<const std::unique_ptr<LayerState>> states) const {
  check(states.empty() ||
            static_cast<int64_t>(states.size()) == attentions_ * static_cast<int64_t>(blocks_.size()),
        "{}: {} states for {} blocks", name_, states.size(), blocks_.size());
  check(states.empty() || !recompute_ || !recording(),
        "{}: decoding states cannot be appended to in recomputed blocks", name_);
  Context context = given;
  if (distance_ != nullptr) {  // one for all blocks
    const auto positions = context.layout.positions.values<int32_t>();
    const int32_t reach = positions.empty() ? 0 : *std::max_element(positions.begin(), positions.end());
    context.distance_bias = relative_bias(distance_->value, buckets_, reach);
  }
  ResidualStream stream{x, {}, {}, name_ + ".embedding"};
  if (placement_ == NormPlacement::post) context.visit(stream.name, stream.x);
  for (size_t l = 0; l < blocks_.size(); ++l) {
    if (dropped(l, context)) continue;
    const Block& block = blocks_[l];
    if (!recompute_ || !recording()) {
      for (size_t i = 0; i < block.size(); ++i) {
        const size_t state = l * static_cast<size_t>(attentions_) + i;
        block[i].forward(
            stream, context,
            states.empty() || i >= static_cast<size_t>(attentions_) ? nullptr : states[state].get());
      }
      continue;
    }
    const Dropout pending = stream.dropout;
    const auto out =
        recompute({stream.x, stream.branch, context.source, context.distance_bias},
                  [&block, context, pending](const std::vector<Tensor>& in) {
                    ResidualStream s{in[0], in[1], pending, {}};
                    Context inner = context;
                    inner.source = in[2];
                    inner.distance_bias = in[3];
                    for (const Residual& r : block) r.forward(s, inner, nullptr);
                    return s.branch.defined() ? std::vector<Tensor>{s.x, s.branch} : std::vector<Tensor>{s.x};
                  });
    const Residual& last = block.back();
    stream = {out[0], out.size() > 1 ? out[1] : Tensor(), context.dropout(last.dropout, last.site),
              last.name + ".sum"};
  }
  if (placement_ == NormPlacement::post) return stream.x;
  Tensor out = stream.add_and_norm(*norm_, context);
  context.visit(name_ + ".norm", out);
  return out;
}

bool BlockStack::dropped(size_t layer, const Context& context) const {
  const RandomStream stream{context.seed, context.step,
                            site_ + static_cast<uint32_t>(layer) * kSitesALayer + 3};
  return context.training && layer_drop_ > 0 && stream.uniform(0) < double{layer_drop_};
}

std::vector<std::unique_ptr<LayerState>> BlockStack::make_states(int64_t sequences) const {
  std::vector<std::unique_ptr<LayerState>> states;
  for (const Block& block : blocks_)
    for (int64_t i = 0; i < attentions_; ++i) states.push_back(block[i].sublayer->make_state(sequences));
  return states;
}

}  // namespace qkv
