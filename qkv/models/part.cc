#include "qkv/models/part.h"

namespace qkv {

std::unique_ptr<Transformer> part_of(Transformer& model, Architecture stack) {
  check(!model.spec().lora.any(), "model: adapters are of the whole model: merge them first");
  auto part = std::make_unique<Transformer>(model.spec().part(stack));
  Parameters& whole = model.parameters();
  part->parameters().compute = whole.compute;
  for (Parameter& p : part->parameters().all()) {
    // Two stacks share an embedding, or each has its own.
    const Parameter* own =
        p.name.starts_with("embedding.") ? whole.find(name_of(stack) + "." + p.name) : nullptr;
    const Parameter* q = own != nullptr ? own : whole.find(p.name);
    check(q != nullptr && q->shape == p.shape, "model: the {} has no '{}' of its own", name_of(stack),
          p.name);
    p.value = q->value;
    p.packed = q->packed;
  }
  return part;
}

std::unique_ptr<Transformer> without_mtp(Transformer& model) {
  ModelSpec spec = model.spec();
  spec.mtp = {};
  auto part = std::make_unique<Transformer>(spec);
  Parameters& whole = model.parameters();
  part->parameters().compute = whole.compute;
  part->parameters().stored = whole.stored;
  for (Parameter& p : part->parameters().all()) {
    const Parameter* q = whole.find(p.name);
    p.value = q->value;
    p.packed = q->packed;
  }
  return part;
}

}  // namespace qkv
