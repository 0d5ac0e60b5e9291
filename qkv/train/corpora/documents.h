// Texts without labels: the documents of a run's files, and which texts of all kinds are learnt from.
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

// The way in which the files of [data] are read.
FileOptions file_options(const DataConfig& data);

// What [data] says of training texts: deduplicate, min_characters, max_characters, max_ratio.
class TextFilter {
 public:
  explicit TextFilter(const DataConfig& data) : data_(data) {}
  bool on() const;
  // Whether a text, or a pair, is learnt from; counts those that are not.
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

// A file's documents, or a part of them: a text larger than memory is read as it is needed.
struct Documents {
  std::string path;
  std::string_view text;
  std::string separator;              // between documents; empty: the text is one
  std::shared_ptr<const void> owner;  // of the text

  void for_each(const std::function<void(std::string_view document)>& f) const;
};

// The training and the validation part of a run's files. Files of rows (.jsonl, .tsv, .csv) have a document
// in each row's data.text_column. What is left out of training is left out before validation is split off.
struct TextFiles {
  std::vector<Documents> train, valid;
  Skipped skipped;
  Notes notes;
  std::string hint;  // of training rows that look as if they had labels: what to set to learn those

  explicit TextFiles(const DataConfig& data);
};

// All documents of one file. Throws Error where it is empty.
Documents read_documents(const std::string& path, const DataConfig& data, Notes* notes = nullptr);

// Whether a byte of UTF-8 goes on with the character before it.
inline bool continues_character(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}
// UTF-8 characters of a text.
int64_t count_characters(std::string_view text);

}  // namespace qkv
