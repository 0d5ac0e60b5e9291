#include "qkv/models/mtp.h"

#include <fmt/format.h>

#include "qkv/ops/elementwise.h"
#include "qkv/ops/parts.h"

namespace qkv {
namespace {

// For each row the value k rows on, in its own sequence: `beyond` where that has none.
Indices shifted(const Indices& values, const Layout& layout, int64_t k, int32_t beyond) {
  std::vector<int32_t> out(static_cast<size_t>(layout.rows()), beyond);
  for (int64_t s = 0; s < layout.sequences(); ++s)
    for (int64_t row = layout.offsets[s]; row + k < layout.offsets[s + 1]; ++row)
      out[static_cast<size_t>(row)] = values[row + k];
  return out;
}

}  // namespace

MtpModules::MtpModules(Parameters& parameters, const ModelSpec& spec, const InputEmbedding& embedding,
                       const Unembedding& unembedding, uint32_t site)
    : spec_(spec), embedding_(embedding), unembedding_(unembedding) {
  for (int64_t k = 1; k <= spec.mtp.layers; ++k) {
    const std::string name = fmt::format("mtp.{}", k);
    Module m;
    if (spec.mtp.form == MtpForm::joined) {
      m.embedding_norm =
          std::make_unique<Norm>(parameters, name + ".embedding_norm", spec.width, spec.norm());
      m.hidden_norm = std::make_unique<Norm>(parameters, name + ".hidden_norm", spec.width, spec.norm());
      m.projection = std::make_unique<Linear>(parameters, name + ".projection", 2 * spec.width, spec.width,
                                              false, spec.init_std);
    }
    m.block = std::make_unique<BlockStack>(
        parameters, "decoder", spec.mtp_spec(k),
        BlockStack::Shape{
            .layers = 1, .mask = Mask::causal(), .source = 0, .site = site, .first = spec.layers + k - 1});
    if (spec.ends_with_norm())
      m.norm = std::make_unique<Norm>(parameters, name + ".norm", spec.width, spec.norm());
    modules_.push_back(std::move(m));
  }
}

const MtpModules::Module& MtpModules::module(int64_t k) const {
  check(k >= 1 && k <= count(), "model: there is no module {} of multi-token prediction, only 1 to {}", k,
        count());
  return modules_[static_cast<size_t>(k - 1)];
}

Tensor MtpModules::forward(int64_t k, const Tensor& h, const Indices& ids, const Context& context) const {
  const Module& m = module(k);
  if (!m.projection) return m.block->forward(h, context);
  const Tensor e = m.embedding_norm->forward(embedding_.tokens(ids), context);
  return m.block->forward(m.projection->forward(join_columns(e, m.hidden_norm->forward(h, context)), context),
                          context);
}

Tensor MtpModules::normalized(int64_t k, const Tensor& h) const {
  const Module& m = module(k);
  return m.norm ? m.norm->forward(h) : h;
}

void MtpModules::add_losses(CrossEntropyResult& result, const Tensor& hidden, const Indices& ids,
                            const Indices& targets, const Context& context, float scale,
                            const LossTerms& terms) const {
  const float share = spec_.mtp.weight / static_cast<float>(count());
  Context inner = context;
  inner.balance_scale *= share;
  Tensor h = hidden;
  for (int64_t k = 1; k <= count(); ++k) {
    // No row before them sees the rows that have no loss.
    h = forward(k, spec_.mtp.form == MtpForm::parallel ? hidden : h, shifted(ids, context.layout, k, 0),
                inner);
    const CrossEntropyResult its = unembedding_.loss(
        normalized(k, h), shifted(targets, context.layout, k, kIgnored), scale * share, terms);
    result.further.emplace_back(its.total, its.count);
    if (recording()) result.loss = add(result.loss, its.loss);
  }
}

void MtpModules::set_recompute(bool on) {
  for (Module& m : modules_) m.block->set_recompute(on);
}

void MtpModules::update_buffers() const {
  for (const Module& m : modules_) m.block->update_buffers();
}

}  // namespace qkv
