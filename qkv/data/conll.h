// The CoNLL formats of tagged sentences: words in columns.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "qkv/data/text_file.h"

namespace qkv {

// A sentence's words with their tags, and their lines in the file, from 1.
struct TaggedSentence {
  std::vector<std::string> words, tags;
  std::vector<int64_t> lines;
};
inline constexpr int64_t kNoTags = -1;  // tag column that reads words only

// Reads one word a line, in columns separated by tabs or spaces. An empty line ends a sentence. A line that
// begins with '#' is a comment if it stands before a sentence's first word. Columns count from 1. With 0,
// words are in the first column and tags in the last; in a .conllu file, in 2 and 4. A .conllu file is
// separated by tabs, and its lines of several words ("3-4") or of none ("3.1") are skipped. Spaces around a
// tag are removed. Throws Error naming file and line if a column is missing or empty.
std::vector<TaggedSentence> read_conll(const std::string& path, int64_t word_column, int64_t tag_column,
                                       const FileOptions& options = {}, Notes* notes = nullptr);

// Removes the white space around a label. Returns true if there was any.
bool trim_label(std::string& label);
// Adds a note that `count` labels were trimmed.
void note_trimmed(const std::string& path, int64_t count, Notes* notes);

}  // namespace qkv
