// Words in columns: the CoNLL formats of tagged sentences.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "qkv/data/text_file.h"

namespace qkv {

// A sentence's words with their tags, and the lines of the file where they stand, from 1.
struct TaggedSentence {
  std::vector<std::string> words, tags;
  std::vector<int64_t> lines;
};
inline constexpr int64_t kNoTags = -1;  // in place of a column: only words are read

// One word a line, in columns divided by tabs or spaces; an empty line ends a sentence, a line that begins
// with '#' is a comment where it stands before a sentence's first word. Columns count from 1; 0: words
// stand in the first and tags in the last, of .conllu in 2 and 4. A .conllu file is divided by tabs, and its
// lines of several words ("3-4") or of none ("3.1") are left out; spaces around a tag are no part of it.
// Throws Error naming file and line where a column is missing or empty.
std::vector<TaggedSentence> read_conll(const std::string& path, int64_t word_column, int64_t tag_column,
                                       const FileOptions& options = {}, Notes* notes = nullptr);

// Takes the white space around a label away; whether there was any.
bool trim_label(std::string& label);
// Says so of `count` of them.
void note_trimmed(const std::string& path, int64_t count, Notes* notes);

}  // namespace qkv
