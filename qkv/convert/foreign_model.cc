#include "qkv/convert/foreign_model.h"

#include <filesystem>

#include "qkv/base/file.h"
#include "qkv/text/tokenizer.h"

namespace qkv {

void save_foreign(const ForeignModel& m, const std::string& dir) {
  check(!file_exists(dir), "{}: exists already", dir);
  write_directory_atomically(dir, [&](const std::string& to) {
    save_model(to, *m.model, m.ids);
    for (const auto& [name, content] : m.tokenizer_files) {
      const std::filesystem::path path = to + "/" + name;
      std::filesystem::create_directories(path.parent_path());
      write_file_atomically(path.string(), content);
    }
    const text::Tokenizer tokenizer = text::Tokenizer::load(to);
    check(static_cast<int64_t>(tokenizer.vocab_size()) <= m.model->spec().vocab_size,
          "{}: its tokenizer has {} tokens, the model {}", dir, tokenizer.vocab_size(),
          m.model->spec().vocab_size);
  });
}

}  // namespace qkv
