#include "qkv/io/family.h"

namespace qkv {
namespace {

const std::vector<const Family*>& registry() {
  static const std::vector<const Family*> families = {&gpt2_family(), &native_family()};
  return families;
}

}  // namespace

const Family& family_of(const std::string& model_type, const std::string& where) {
  std::string known;
  for (const Family* f : registry()) {
    if (f->model_type == model_type) return *f;
    known += (known.empty() ? "" : ", ") + f->model_type;
  }
  fail("{}: model_type: '{}' is not supported (supported: {})", where, model_type, known);
}

const Family& family_for(const ModelSpec& spec) {
  for (const Family* f : registry())
    if (f->expresses(spec)) return *f;
  return native_family();
}

}  // namespace qkv
