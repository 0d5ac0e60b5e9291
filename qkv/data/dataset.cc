#include "qkv/data/dataset.h"

namespace qkv {

void TokenStream::append(const std::vector<int32_t>& document) {
  if (document.empty()) return;
  tokens.insert(tokens.end(), document.begin(), document.end());
  starts.push_back(size());
}

Batch cut_windows(const TokenStream& stream, const std::vector<int64_t>& starts, int64_t length) {
  std::vector<int32_t> ids, targets, lengths;
  Batch batch;
  for (const int64_t start : starts) {
    const int64_t end = std::min(start + length, stream.size());
    assert(start >= 0 && start < end);
    // The document that `start` lies in.
    auto next = std::upper_bound(stream.starts.begin(), stream.starts.end(), start);
    for (int64_t at = start; at < end;) {
      const int64_t document_end = next == stream.starts.end() ? stream.size() : *next++;
      const int64_t stop = std::min(end, document_end);
      for (int64_t i = at; i < stop; ++i) {
        const bool last = i + 1 == document_end;
        ids.push_back(stream.tokens[i]);
        targets.push_back(last ? kIgnored : stream.tokens[i + 1]);
        batch.target_count += !last;
      }
      lengths.push_back(static_cast<int32_t>(stop - at));
      at = stop;
    }
  }
  batch.layout = Layout::of(lengths);
  batch.ids = Tensor::of({static_cast<int64_t>(ids.size())}, ids);
  batch.targets = Tensor::of({static_cast<int64_t>(targets.size())}, targets);
  return batch;
}

RandomWindows::RandomWindows(const TokenStream& stream, int64_t length, uint64_t seed,
                             const std::string& source)
    : stream_(stream), length_(length), seed_(seed) {
  check(stream.size() > length,
        "{}: too short: {} training tokens for a context of {} (it takes at least {})", source, stream.size(),
        length, length + 1);
}

Batch RandomWindows::batch(uint64_t step, int64_t first, int64_t count) const {
  constexpr uint32_t kDataSite = 0x64617461;  // "data"
  const RandomStream random{seed_, step, kDataSite};
  std::vector<int64_t> starts;
  for (int64_t i = first; i < first + count; ++i)
    starts.push_back(static_cast<int64_t>(random.below(i, static_cast<uint64_t>(stream_.size() - length_))));
  return cut_windows(stream_, starts, length_);
}

EveryWindow::EveryWindow(const TokenStream& stream, int64_t length, int64_t limit)
    : stream_(stream),
      length_(length),
      all_(std::max<int64_t>(0, (stream.size() - 1 + length - 1) / length)),
      chosen_(limit == 0 ? all_ : std::min(limit, all_)) {}

Batch EveryWindow::batch(int64_t first, int64_t count) const {
  std::vector<int64_t> starts;
  for (int64_t w = first; w < std::min(first + count, windows()); ++w)
    starts.push_back(w * all_ / chosen_ * length_);
  return cut_windows(stream_, starts, length_);
}

}  // namespace qkv
