#include "qkv/text/aligned_text.h"

#include "qkv/base/error.h"

namespace qkv::text {

AlignedText::AlignedText(std::string_view source, size_t offset) : borrowed_(source), offset_(offset) {
  check(source.size() + offset < UINT32_MAX, "text: {} bytes, at most 4 GiB are taken at once",
        source.size());
}

Range AlignedText::source_range(Range range) const {
  if (origins_.empty()) return {range.begin + offset_, range.end + offset_};
  if (range.size() > 0) return {origins_[range.begin].begin, origins_[range.end - 1].end};
  const size_t at = range.begin < origins_.size() ? origins_[range.begin].begin : origins_.back().end;
  return {at, at};
}

AlignedText AlignedText::slice(Range range) const {
  AlignedText part(view().substr(range.begin, range.size()), origins_.empty() ? offset_ + range.begin : 0);
  if (!origins_.empty()) {
    part.origins_.assign(origins_.begin() + static_cast<std::ptrdiff_t>(range.begin),
                         origins_.begin() + static_cast<std::ptrdiff_t>(range.end));
  }
  return part;
}

void Rewriter::keep(Range range) {
  if (one_to_one_ && (range.begin != out_.size() || !from_.origins_.empty())) record_origins();
  out_.append(text_.substr(range.begin, range.size()));
  if (one_to_one_) return;
  for (size_t i = range.begin; i < range.end; ++i) {
    const Range source = from_.source_range({i, i + 1});
    origins_.push_back({static_cast<uint32_t>(source.begin), static_cast<uint32_t>(source.end)});
  }
}

void Rewriter::replace(Range range, std::string_view by) {
  if (one_to_one_ && (range.begin != out_.size() || range.size() != by.size() || !from_.origins_.empty())) {
    record_origins();
  }
  out_.append(by);
  if (one_to_one_) return;
  const Range source = from_.source_range(range);
  origins_.insert(origins_.end(), by.size(),
                  {static_cast<uint32_t>(source.begin), static_cast<uint32_t>(source.end)});
}

bool Rewriter::drop_end(std::string_view end) {
  if (!out_.ends_with(end)) return false;
  if (one_to_one_) record_origins();
  out_.resize(out_.size() - end.size());
  origins_.resize(out_.size());
  return true;
}

void Rewriter::record_origins() {
  one_to_one_ = false;
  origins_.reserve(text_.size() + 16);
  for (size_t i = 0; i < out_.size(); ++i) {
    const Range source = from_.source_range({i, i + 1});
    origins_.push_back({static_cast<uint32_t>(source.begin), static_cast<uint32_t>(source.end)});
  }
}

AlignedText Rewriter::finish() && {
  AlignedText result({}, from_.offset_);
  result.storage_ = std::move(out_);
  result.owned_ = true;
  result.origins_ = std::move(origins_);
  return result;
}

}  // namespace qkv::text
