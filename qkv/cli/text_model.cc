#include "qkv/cli/text_model.h"

#include "qkv/train/trainer.h"

namespace qkv {

TextModel load_text_model(const std::string& path, const std::string& dtype) {
  const std::string dir = resolve_model_dir(path);
  TextModel m{load_model(dir, dtype == "bf16" ? DType::bf16 : DType::f32), text::Tokenizer::load(dir),
              load_special_ids(dir)};
  check(static_cast<int64_t>(m.tokenizer.vocab_size()) <= m.model->spec().vocab_size,
        "{}: the tokenizer has {} tokens, the model {}", dir, m.tokenizer.vocab_size(),
        m.model->spec().vocab_size);
  return m;
}

}  // namespace qkv
