// Text that appears piece by piece and ends before the first of some strings.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace qkv::text {

// Lets text through up to a stop string; what might be the beginning of one waits until that is decided. How
// the text is divided into pieces changes nothing: the stop string that is complete first counts, of several
// that end together the longest.
class StopStrings {
 public:
  // Throws Error for an empty string or one that is not UTF-8.
  explicit StopStrings(std::vector<std::string> stops);

  // The text that `piece` (whole characters) settles.
  std::string add(std::string_view piece);

  // The end: what was waiting. Ready for another text afterwards.
  std::string finish();

  // True once a stop string has come; it and all that follows is dropped.
  bool stopped() const { return stopped_; }

 private:
  size_t undecided() const;

  std::vector<std::string> stops_;
  std::string waiting_;
  bool stopped_ = false;
};

}  // namespace qkv::text
