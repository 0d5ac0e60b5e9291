#include "qkv/nn/residual.h"

#include "qkv/ops/elementwise.h"
#include "qkv/ops/norm.h"

namespace qkv {

Tensor ResidualStream::add_and_norm(const Norm& norm, const Context& context) {
  ResidualNormResult r = norm.add_and_norm(x, branch, dropout, context);
  if (context.probed(name, "")) {  // the sum may be replaced: norm it again on its own
    context.visit(name, "", r.sum);
    r.normalized = norm.forward(r.sum, context);
  }
  x = r.sum;
  branch = Tensor();
  return r.normalized;
}

void ResidualStream::add_branch(const Context& context) {
  if (branch.defined()) x = add(x, qkv::dropout(branch, dropout));
  branch = Tensor();
  context.visit(name, "", x);
}

void Residual::forward(ResidualStream& stream, const Context& context) const {
  if (placement == NormPlacement::pre || placement == NormPlacement::stream) {
    Tensor normalized = stream.add_and_norm(*norm, context);
    context.visit(name, ".norm", normalized);
    if (placement == NormPlacement::stream) stream.x = normalized;
    stream.branch = sublayer->forward(normalized, context);
  } else {
    if (placement == NormPlacement::none) stream.add_branch(context);
    stream.branch = sublayer->forward(stream.x, context);
  }
  if (stream.other.defined()) std::swap(stream.x, stream.other);
  context.visit(name, ".branch", stream.branch);
  stream.dropout = context.dropout(dropout, site);
  stream.name = name + ".sum";
  if (placement == NormPlacement::post) {
    Tensor normalized = stream.add_and_norm(*norm, context);
    context.visit(name, ".norm", normalized);
    stream.x = normalized;
  }
}

}  // namespace qkv
