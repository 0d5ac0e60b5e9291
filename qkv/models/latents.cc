#include "qkv/models/latents.h"

#include <numeric>
#include <vector>

#include "qkv/ops/elementwise.h"
#include "qkv/ops/rows.h"

namespace qkv {
namespace {

constexpr uint32_t kReadSites = 8;  // random sites of a read

// The blocks of latents, as a model of their width.
ModelSpec blocks_of(const ModelSpec& spec) {
  ModelSpec out = spec;
  out.width = spec.latents.width;
  out.latents = {};
  out.positions = Positions::none;
  out.grid = out.axial_width = 0;
  out.final_norm = false;
  return out;
}

AttentionSpec cross_of(const ModelSpec& spec, const LatentCross& cross) {
  AttentionSpec a;
  a.heads = a.kv_heads = cross.heads;
  a.d_qk = cross.d_qk;
  a.d_vo = cross.d_vo;
  a.bias = spec.attention.bias;
  a.key_bias = spec.attention.key_bias;
  a.out_bias = spec.attention.out_bias;
  a.dropout = spec.attention.dropout;
  return a;
}

// The rows of a parameter that are the ones of each sequence, one after another.
Tensor for_each_sequence(const Parameter& rows, int64_t sequences) {
  std::vector<int32_t> indices;
  for (int64_t s = 0; s < sequences; ++s)
    for (int32_t i = 0; i < rows.shape[0]; ++i) indices.push_back(i);
  return select_rows(rows.value, indices);
}

Layout alike(int64_t sequences, int64_t length) {
  return Layout::of(std::vector<int32_t>(static_cast<size_t>(sequences), static_cast<int32_t>(length)));
}

// Shows a probe what a later run of the same blocks does, under names of its own.
class OfRepeat : public Probe {
 public:
  OfRepeat(Probe& inner, int64_t repeat) : inner_(inner), before_(fmt::format("repeat.{}.", repeat)) {}
  bool wants(std::string_view name) const override { return inner_.wants(before_ + std::string(name)); }
  void visit(std::string_view name, Tensor& value) override {
    inner_.visit(before_ + std::string(name), value);
  }
  void visit_head(std::string_view name, int64_t sequence, int64_t head, Tensor& value) override {
    inner_.visit_head(before_ + std::string(name), sequence, head, value);
  }

 private:
  Probe& inner_;
  std::string before_;
};

}  // namespace

LatentStack::Read::Read(Parameters& parameters, const std::string& name, const ModelSpec& spec,
                        const LatentCross& cross, int64_t width, int64_t source, uint32_t site)
    : residual(cross.residual),
      dropout(spec.residual_dropout),
      site(site),
      query_norm(parameters, name + ".query_norm", width, spec.norm()),
      source_norm(parameters, name + ".source_norm", source, spec.norm()),
      attention(parameters, name + ".attention", width, source, cross_of(spec, cross), 0, site,
                {spec.init_std, spec.init_std}),
      norm(parameters, name + ".norm", width, spec.norm()),
      feed_forward(parameters, name + ".feed_forward", width,
                   {.hidden = cross.hidden, .activation = spec.activation, .bias = spec.feed_forward_bias},
                   {spec.init_std, spec.init_std}) {}

Tensor LatentStack::Read::forward(const Tensor& queries, const Layout& layout, const Tensor& source,
                                  const Layout& source_layout, const Context& context) const {
  Context inner = context;
  inner.layout = layout;
  inner.source = source_norm.forward(source, context);
  inner.source_layout = source_layout;
  Tensor x = qkv::dropout(attention.forward(query_norm.forward(queries, inner), inner),
                          context.dropout(dropout, site + 1));
  if (residual) x = add(queries, x);
  return add(x, qkv::dropout(feed_forward.forward(norm.forward(x, inner), inner),
                             context.dropout(dropout, site + 2)));
}

LatentStack::LatentStack(Parameters& parameters, const std::string& name, const ModelSpec& spec,
                         uint32_t site)
    : spec_(spec.latents),
      one_query_(spec.output == Output::sequence_classes),
      latents_(&parameters.add(name + ".latents", {spec_.count, spec_.width}, ParameterKind::matrix,
                               {Initializer::Kind::normal, spec.init_std})),
      in_(parameters, name + ".in", spec, spec_.in, spec_.width, spec.width, site),
      blocks_(parameters, name, blocks_of(spec),
              BlockStack::Shape{spec.layers, Mask::full(), 0, site + 2 * kReadSites}),
      queries_(&parameters.add(name + ".queries",
                               one_query_ ? Shape({1, spec_.width}) : Shape({spec.context, spec.width}),
                               ParameterKind::matrix, {Initializer::Kind::normal, spec.init_std})),
      out_(parameters, name + ".out", spec, spec_.out, one_query_ ? spec_.width : spec.width, spec_.width,
           site + kReadSites) {}

Tensor LatentStack::forward(const Tensor& x, const Context& context) const {
  check(!context.visibility.defined(), "latents: they read all tokens, whatever these see of each other");
  const int64_t sequences = context.layout.sequences();
  const Layout of_latents = alike(sequences, spec_.count);
  Context inner = context;
  inner.layout = of_latents;
  inner.segments = {};
  Tensor z = for_each_sequence(*latents_, sequences);
  for (int64_t r = 0; r < spec_.repeats; ++r) {
    std::optional<OfRepeat> renamed;
    if (r > 0 && context.probe != nullptr) inner.probe = &renamed.emplace(*context.probe, r);
    if (r == 0 || spec_.read_again) z = in_.forward(z, of_latents, x, context.layout, inner);
    z = blocks_.forward(z, inner);
  }
  inner.probe = context.probe;
  const bool asked = context.query_layout.rows() > 0 && !one_query_;
  const Layout& places = asked ? context.query_layout : context.layout;
  if (!one_query_) {
    const Tensor queries = select_rows(queries_->value, places.positions);
    return out_.forward(queries, places, z, of_latents, inner);
  }
  const Tensor y =
      out_.forward(for_each_sequence(*queries_, sequences), alike(sequences, 1), z, of_latents, inner);
  std::vector<int32_t> of_rows;
  for (int64_t s = 0; s < sequences; ++s)
    of_rows.insert(of_rows.end(), static_cast<size_t>(places.offsets[s + 1] - places.offsets[s]),
                   static_cast<int32_t>(s));
  return select_rows(y, of_rows);
}

}  // namespace qkv
