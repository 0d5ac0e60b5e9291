// Token streams larger than memory: written to a file, then mapped.
#pragma once

#include <span>
#include <string>

#include "qkv/base/file.h"
#include "qkv/data/dataset.h"

namespace qkv {

// Collects documents in an unnamed file that is deleted with its last owner. Throws Error if it cannot be
// written.
class TokenFile {
 public:
  // Creates the file in this folder.
  explicit TokenFile(const std::string& folder);

  // Appends to the current document, which may come in parts.
  void append(std::span<const int32_t> tokens);
  // Ends the current document; an empty one is ignored.
  void end_document();
  // The whole stream, mapped. REQUIRES: the last document has ended, and nothing is appended afterwards.
  TokenStream stream();

 private:
  ScratchFile tokens_, starts_;
  int64_t size_ = 0, documents_ = 0;  // tokens; documents that have ended
  int64_t start_ = 0;                 // start of the current document
};

}  // namespace qkv
