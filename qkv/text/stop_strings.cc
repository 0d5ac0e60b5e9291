#include "qkv/text/stop_strings.h"

#include <algorithm>
#include <utility>

#include "qkv/base/error.h"
#include "qkv/text/unicode.h"

namespace qkv::text {

StopStrings::StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {
  for (const std::string& stop : stops_) {
    check(!stop.empty(), "stop string: is empty");
    check_utf8(stop, "stop string");
  }
  // Longest first: of the strings that end together, it begins earliest.
  std::sort(stops_.begin(), stops_.end(),
            [](const std::string& a, const std::string& b) { return a.size() > b.size(); });
}

// Bytes at the end of waiting_ that may be the beginning of a stop string.
size_t StopStrings::undecided() const {
  const std::string_view text = waiting_;
  for (size_t begin = 0; begin < text.size(); ++begin)
    for (const std::string& stop : stops_)
      if (std::string_view(stop).starts_with(text.substr(begin))) return text.size() - begin;
  return 0;
}

std::string StopStrings::add(std::string_view piece) {
  if (stopped_) return "";
  for (const char byte : piece) {
    waiting_ += byte;
    for (const std::string& stop : stops_) {
      if (!waiting_.ends_with(stop)) continue;
      stopped_ = true;
      waiting_.resize(waiting_.size() - stop.size());
      return std::exchange(waiting_, "");
    }
  }
  const size_t settled = waiting_.size() - undecided();
  std::string text = waiting_.substr(0, settled);
  waiting_.erase(0, settled);
  return text;
}

std::string StopStrings::finish() {
  stopped_ = false;
  return std::exchange(waiting_, "");
}

}  // namespace qkv::text
