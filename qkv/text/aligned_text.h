// A text under rewriting that remembers which bytes of the source each of its bytes comes from.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "qkv/text/regex.h"

namespace qkv::text {

// The text at one stage. Cheap until it is rewritten: it borrows the source and keeps no table.
class AlignedText {
 public:
  // Borrows `source`, which lies at byte `offset` of what the caller was given. At most 4 GiB.
  AlignedText(std::string_view source, size_t offset);

  std::string_view view() const { return owned_ ? std::string_view(storage_) : borrowed_; }

  // The bytes of the source that `range` of view() comes from.
  Range source_range(Range range) const;

  // Part of the text as a text of its own. The original must outlive it when it borrows.
  AlignedText slice(Range range) const;

 private:
  friend class Rewriter;
  struct Origin {
    uint32_t begin, end;
  };

  std::string_view borrowed_;
  std::string storage_;
  bool owned_ = false;
  size_t offset_ = 0;            // offset of the text in the source while origins_ is empty
  std::vector<Origin> origins_;  // per byte; empty while bytes correspond one to one
};

// Builds the next version of a text from left to right.
class Rewriter {
 public:
  explicit Rewriter(const AlignedText& from) : from_(from), text_(from.view()) {}

  // Copies `range` unchanged.
  void keep(Range range);
  // Replaces `range` (an empty one inserts) with `by`.
  void replace(Range range, std::string_view by);
  size_t size() const { return out_.size(); }
  // Removes `end` from the end of the output; returns false if the output does not end with it.
  bool drop_end(std::string_view end);

  AlignedText finish() &&;

 private:
  void record_origins();  // gives up the one-to-one correspondence

  const AlignedText& from_;
  std::string_view text_;
  std::string out_;
  bool one_to_one_ = true;
  std::vector<AlignedText::Origin> origins_;
};

}  // namespace qkv::text
