// Texts without labels: the documents of a run's files, and the filter for training texts of all kinds.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "qkv/data/text_file.h"
#include "qkv/train/config/config.h"
#include "qkv/train/corpora/skipped.h"

namespace qkv {

// Options for reading the files of [data].
FileOptions file_options(const DataConfig& data);

// Filter of training texts, by [data]: deduplicate, min_characters, max_characters, max_ratio.
class TextFilter {
 public:
  explicit TextFilter(const DataConfig& data) : data_(data) {}
  bool on() const;
  // True if a text, or a pair, is kept for training. Counts those that are not.
  bool keeps(std::string_view text);
  bool keeps(std::string_view source, std::string_view target);
  const Skipped& skipped() const { return skipped_; }

 private:
  bool is_fit(int64_t characters) const;
  bool is_new(const std::string& hash);

  const DataConfig& data_;
  Skipped skipped_;
  std::unordered_set<std::string> seen_;
};

// A file's documents, or a part of them. A text larger than memory is read on demand.
struct Documents {
  std::string path;
  std::string_view text;
  std::string separator;              // separator of documents; empty: the text is one document
  std::shared_ptr<const void> owner;  // owner of the text

  void for_each(const std::function<void(std::string_view document)>& f) const;
};

// The training and the validation part of a run's files. Files of rows (.jsonl, .tsv, .csv) have a document
// in each row's data.text_column. Filters drop training documents before validation is split off.
struct TextFiles {
  std::vector<Documents> train, valid;
  Skipped skipped;
  Notes notes;
  std::string hint;  // if training rows seem to have labels, which keys to set to train on them

  explicit TextFiles(const DataConfig& data);
};

// All documents of one file. Throws Error if it is empty.
Documents read_documents(const std::string& path, const DataConfig& data, Notes* notes = nullptr);

// True if the byte continues a UTF-8 character.
inline bool continues_character(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}
// Number of UTF-8 characters.
int64_t count_characters(std::string_view text);

}  // namespace qkv
