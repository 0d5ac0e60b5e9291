#include "qkv/io/family.h"

namespace qkv {
namespace {

const std::vector<const Family*>& registry() {
  static const std::vector<const Family*> families = {
      &gpt2_family(), &bert_family(), &roberta_family(), &distilbert_family(),
      &t5_family(),   &bart_family(), &marian_family(),  &native_family()};
  return families;
}

}  // namespace

const Family& family_of(const JsonField& config) {
  const JsonField type = config["model_type"];
  std::vector<std::string_view> known;
  for (const Family* f : registry()) {
    if (f->model_type == type.string()) return *f;
    known.push_back(f->model_type);
  }
  type.refuse_type(type.string(), known);
}

const Family& family_for(const ModelSpec& spec) {
  if (spec.recurrence.any() || spec.source_reversed) return native_family();
  for (const Family* f : registry())
    if (f->model_type == spec.family && f->expresses(spec)) return *f;
  for (const Family* f : registry())
    if (f->expresses(spec)) return *f;
  return native_family();
}

}  // namespace qkv
