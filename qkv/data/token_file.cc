#include "qkv/data/token_file.h"

namespace qkv {

TokenFile::TokenFile(const std::string& folder) : tokens_(folder), starts_(folder) {
  starts_.write(&start_, sizeof start_);
}

void TokenFile::append(std::span<const int32_t> tokens) {
  tokens_.write(tokens.data(), tokens.size_bytes());
  size_ += std::ssize(tokens);
}

void TokenFile::end_document() {
  if (size_ == start_) return;
  start_ = size_;
  ++documents_;
  starts_.write(&start_, sizeof start_);
}

TokenStream TokenFile::stream() {
  assert(start_ == size_);
  const auto tokens = tokens_.mapped(), starts = starts_.mapped();
  return {Tensor::borrow({size_}, DType::i32, tokens->data(), tokens),
          Tensor::borrow({documents_ + 1}, DType::i64, starts->data(), starts)};
}

}  // namespace qkv
