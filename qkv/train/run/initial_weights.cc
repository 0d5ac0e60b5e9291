#include "qkv/train/run/initial_weights.h"

#include "qkv/io/binding.h"
#include "qkv/train/corpora/origin.h"
#include "qkv/train/run/new_tokens.h"

namespace qkv {
namespace {

void copy_pretrained(Transformer& model, const TrainConfig& config, const text::Tokenizer& tokenizer) {
  const std::string dir = resolve_model_dir(config.from);
  const std::unique_ptr<Transformer> other =
      config.part.empty() ? load_model(dir, DType::f32)
                          : load_part(dir, from_name<Architecture>(config.part), DType::f32);
  const ModelSpec &a = model.spec(), &b = other->spec();
  const bool same_classes = a.output == b.output && same_labels(a, b);
  if (same_classes && family_for(a).model_type == family_for(b).model_type) {
    model.parameters().kept = other->parameters().kept;
    model.parameters().kept_rows = other->parameters().kept_rows;
  }
  const bool adds = !config.tokenizer.add_special.empty();
  const NewTokens added{
      .known = adds ? static_cast<int64_t>(unchanged_origin(config).tokenizer.vocab_size()) : b.vocab_size,
      .all = static_cast<int64_t>(tokenizer.vocab_size()),
      .seed = config.seed};
  for (Parameter& p : model.parameters().all()) {
    const Parameter* q = other->parameters().find(p.name);
    if (q == nullptr) continue;
    if (adds && is_of_vocabulary(p, *q)) {
      p.value = added.rows(trained_value(*q), p.shape);
    } else if (q->shape == p.shape && (same_classes || !p.name.starts_with("classifier."))) {
      // A frozen one may stay in the mapped file.
      p.frozen = a.lora.any();
      p.value = p.frozen || !q->value.defined() ? q->value : q->value.clone();
      p.packed = q->packed;
    }
  }
}

}  // namespace

std::unique_ptr<Transformer> initial_model(const TrainConfig& config, const text::Tokenizer& tokenizer) {
  auto model = std::make_unique<Transformer>(config.model);
  if (!config.from.empty()) copy_pretrained(*model, config, tokenizer);
  return model;
}

}  // namespace qkv
