// Cuts text that arrives in pieces at the first stop string.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace qkv::text {

// Lets text through up to a stop string, and holds back text that may be the beginning of one. The result
// does not depend on how the text is divided into pieces. The stop string that is complete first counts; if
// several end together, the longest.
class StopStrings {
 public:
  // Throws Error for an empty string or one that is not UTF-8.
  explicit StopStrings(std::vector<std::string> stops);

  // Returns the text that can no longer belong to a stop string. `piece`: whole characters.
  std::string add(std::string_view piece);

  // Ends the text and returns what was held back. The object is then ready for another text.
  std::string finish();

  // True once a stop string was found; it and all text after it are dropped.
  bool stopped() const { return stopped_; }

 private:
  size_t undecided() const;

  std::vector<std::string> stops_;
  std::string waiting_;
  bool stopped_ = false;
};

}  // namespace qkv::text
