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

// The two parts of a tokenized text, with hashes of their tokens.
struct TokenizedText {
  TokenStream train, valid;
  std::string train_hash, valid_hash;
  Skipped skipped = {};  // skipped documents of the training files
  Notes notes = {};      // further notes on the files
};

// Identifies the contents of files without reading them: path, size, time of change, inode. A file that
// changes gets a new signature. Throws Error for a missing file.
std::string signature_of(const std::vector<std::string>& paths);

// The cache folder, as one run uses it.
class CorpusCache {
 public:
  // Does nothing if `on` is false or there is no folder.
  explicit CorpusCache(bool on);

  // Entries under names derived from `key`. An unreadable entry counts as absent, and failed writes are
  // ignored: the cache never stops a run.
  std::optional<std::string> load_tokenizer(const std::string& key) const;
  void save_tokenizer(const std::string& key, const std::string& json) const;
  std::optional<TokenizedText> load_text(const std::string& key) const;
  void save_text(const std::string& key, const TokenizedText& text) const;

  // Folder for files that live as long as the process. It is the cache folder or, if that is off or not
  // writable, the system's temporary folder.
  std::string scratch_folder() const;
  // Folder of the entries; empty: the cache is off.
  const std::string& folder() const { return folder_; }

 private:
  std::string path_of(const char* kind, const std::string& key, const char* suffix) const;
  std::string folder_;  // empty: off
};

}  // namespace qkv
