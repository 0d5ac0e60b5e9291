// Tokenized texts kept between runs: ~/.cache/qkv, or $XDG_CACHE_HOME/qkv, or $QKV_CACHE_DIR. Any of it can
// be deleted at any time.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "qkv/data/dataset.h"
#include "qkv/data/text_file.h"
#include "qkv/train/corpora/skipped.h"

namespace qkv {

// The two parts of a tokenized text, and what tells their tokens from others'.
struct TokenizedText {
  TokenStream train, valid;
  std::string train_hash, valid_hash;
  Skipped skipped = {};  // documents of the training files
  Notes notes = {};      // what else is to be told of the files
};

// Names the contents of files without reading them: path, size, time of change, inode. Files that change get
// another signature. Throws Error for a file that is not there.
std::string signature_of(const std::vector<std::string>& paths);

// The folder of kept texts, as one run uses it.
class CorpusCache {
 public:
  // Looks nothing up and keeps nothing where `on` is false or no folder can be found.
  explicit CorpusCache(bool on);

  // Entries under names derived from `key`. What cannot be read counts as absent; what cannot be written is
  // left out: a cache never stops a run.
  std::optional<std::string> load_tokenizer(const std::string& key) const;
  void save_tokenizer(const std::string& key, const std::string& json) const;
  std::optional<TokenizedText> load_text(const std::string& key) const;
  void save_text(const std::string& key, const TokenizedText& text) const;

  // Where what lasts as long as a process may be written: the cache's folder, or, where it is off or cannot
  // be written, the system's for temporary files.
  std::string scratch_folder() const;
  // Where entries are kept; empty: nowhere.
  const std::string& folder() const { return folder_; }

 private:
  std::string path_of(const char* kind, const std::string& key, const char* suffix) const;
  std::string folder_;  // empty: off
};

}  // namespace qkv
