#include "qkv/models/part.h"

namespace qkv {

namespace {

// A model of `spec` that shares the values of `model`. find(p): the model's parameter for p; null: none.
template <typename Find>
std::unique_ptr<Transformer> sharing(const ModelSpec& spec, Transformer& model, const char* what,
                                     const Find& find) {
  auto part = std::make_unique<Transformer>(spec);
  part->parameters().compute = model.parameters().compute;
  for (Parameter& p : part->parameters().all()) {
    const Parameter* q = find(p);
    check(q != nullptr && q->shape == p.shape, "model: the {} has no '{}' of its own", what, p.name);
    p.value = q->value;
    p.packed = q->packed;
  }
  return part;
}

}  // namespace

std::unique_ptr<Transformer> part_of(Transformer& model, Architecture stack) {
  check(!model.spec().lora.any(), "model: adapters are of the whole model: merge them first");
  Parameters& whole = model.parameters();
  const std::string name = name_of(stack);
  return sharing(model.spec().part(stack), model, name.c_str(), [&](const Parameter& p) {
    // Two stacks share an embedding, or each has its own.
    const Parameter* own = p.name.starts_with("embedding.") ? whole.find(name + "." + p.name) : nullptr;
    return own != nullptr ? own : whole.find(p.name);
  });
}

std::unique_ptr<Transformer> without_mtp(Transformer& model) {
  ModelSpec spec = model.spec();
  spec.mtp = {};
  auto part =
      sharing(spec, model, "model", [&](const Parameter& p) { return model.parameters().find(p.name); });
  part->parameters().stored = model.parameters().stored;
  return part;
}

}  // namespace qkv
