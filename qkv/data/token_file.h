// Token streams larger than memory: written to a file as they come, then mapped.
#pragma once

#include <span>
#include <string>

#include "qkv/base/file.h"
#include "qkv/data/dataset.h"

namespace qkv {

// Collects documents in a file that has no name and ends with its last owner. Throws Error where it cannot be
// written.
class TokenFile {
 public:
  // The file lies in this folder.
  explicit TokenFile(const std::string& folder);

  // Goes on with the document; it may come in parts.
  void append(std::span<const int32_t> tokens);
  // An empty document is none.
  void end_document();
  // All of it, mapped. REQUIRES: the last document has ended; nothing is appended any more.
  TokenStream stream();

 private:
  ScratchFile tokens_, starts_;
  int64_t size_ = 0, documents_ = 0;  // tokens; documents that have ended
  int64_t start_ = 0;                 // of the one that has not
};

}  // namespace qkv
