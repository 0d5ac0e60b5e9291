#include "qkv/data/dataset.h"

#include "qkv/base/rng.h"

namespace qkv {

TokenStream::TokenStream(Tensor tokens, Tensor starts)
    : mapped_tokens_(std::move(tokens)), mapped_starts_(std::move(starts)) {
  check(mapped_tokens_.dtype() == DType::i32 && mapped_starts_.dtype() == DType::i64 &&
            mapped_starts_.count() > 0,
        "token stream: expected tokens i32 and starts i64, got {} and {}", name_of(mapped_tokens_.dtype()),
        name_of(mapped_starts_.dtype()));
  const auto s = this->starts();
  check(s.front() == 0 && s.back() == size() && std::is_sorted(s.begin(), s.end()),
        "token stream: the documents' starts do not fit {} tokens", size());
}

Tensor TokenStream::token_tensor() const {
  return mapped_tokens_ ? mapped_tokens_ : Tensor::of({size()}, tokens_);
}

Tensor TokenStream::start_tensor() const {
  return mapped_starts_ ? mapped_starts_ : Tensor::of({std::ssize(starts_)}, starts_);
}

void TokenStream::append(const std::vector<int32_t>& document) {
  assert(!mapped_tokens_);
  if (document.empty()) return;
  tokens_.insert(tokens_.end(), document.begin(), document.end());
  starts_.push_back(size());
}

Batch cut_windows(const TokenStream& stream, const std::vector<int64_t>& starts, int64_t length) {
  std::vector<int32_t> ids, targets, lengths;
  const auto tokens = stream.tokens();
  const auto documents = stream.starts();
  Batch batch;
  for (size_t w = 0; w < starts.size(); ++w) {
    const int64_t start = starts[w];
    const int64_t end = std::min(start + length, stream.size());
    assert(start >= 0 && start < end);
    // The end of the document that contains `start`.
    auto next = std::upper_bound(documents.begin(), documents.end(), start);
    for (int64_t at = start; at < end;) {
      const int64_t document_end = next == documents.end() ? stream.size() : *next++;
      const int64_t stop = std::min(end, document_end);
      for (int64_t i = at; i < stop; ++i) {
        const bool last = i + 1 == document_end;
        ids.push_back(tokens[i]);
        targets.push_back(last ? kIgnored : tokens[i + 1]);
        batch.target_count += !last;
      }
      lengths.push_back(static_cast<int32_t>(stop - at));
      batch.windows.push_back(static_cast<int32_t>(w));
      at = stop;
    }
  }
  batch.layout = Layout::of(lengths);
  batch.ids = std::move(ids);
  batch.targets = std::move(targets);
  return batch;
}

void draw_prefixes(Batch& batch, uint64_t seed, uint64_t draw, int64_t first) {
  constexpr uint32_t kPrefixSite = 0x70726566;  // "pref"
  const RandomStream random{seed, draw, kPrefixSite};
  std::vector<int32_t> targets(batch.targets.values().begin(), batch.targets.values().end());
  std::vector<int32_t> prefixes;
  for (int64_t s = 0; s < batch.layout.sequences(); ++s) {
    const int32_t begin = batch.layout.offsets[s], length = batch.layout.offsets[s + 1] - begin;
    const auto most = static_cast<uint64_t>(std::max(length - 1, 1));
    prefixes.push_back(1 + static_cast<int32_t>(random.below(static_cast<uint64_t>(first + s), most)));
    for (int32_t& t : std::span(targets).subspan(begin, prefixes.back() - 1)) {
      batch.target_count -= t != kIgnored;
      t = kIgnored;
    }
  }
  batch.targets = std::move(targets);
  batch.visibility = prefix_ranks(batch.layout, prefixes);
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

StreamWindows::StreamWindows(const TokenStream& stream, int64_t length, int64_t streams,
                             const std::string& source)
    : stream_(stream),
      length_(length),
      streams_(streams),
      windows_(std::max<int64_t>(0, (stream.size() - 1 + length - 1) / length)) {
  check(windows_ >= streams,
        "{}: too short: {} tokens are {} windows of {}, for {} that are read side by side", source,
        stream.size(), windows_, length, streams);
}

Batch StreamWindows::batch(int64_t step, int64_t first, int64_t count) const {
  std::vector<int64_t> starts;
  for (int64_t s = first; s < first + count; ++s) {
    const int64_t begin = first_window(s), length = first_window(s + 1) - begin;
    starts.push_back((begin + step % length) * length_);
  }
  Batch b = cut_windows(stream_, starts, length_);
  const auto documents = stream_.starts();
  for (size_t i = 0; i < b.windows.size(); ++i) {
    const int32_t w = b.windows[i];
    const int64_t s = first + w, length = first_window(s + 1) - first_window(s);
    const bool opens = i == 0 || b.windows[i - 1] != w;  // first part of a window, which may continue
    b.continues.push_back(opens && step % length > 0 &&
                          !std::binary_search(documents.begin(), documents.end(), starts[w]));
  }
  return b;
}

Batch StreamWindows::batch_of_pass(int64_t step, int64_t first, int64_t count) const {
  int64_t left = 0;  // shorter streams follow longer ones
  while (left < count && first_window(first + left + 1) - first_window(first + left) > step) ++left;
  return batch(step, first, left);
}

Batch EveryWindow::batch(int64_t first, int64_t count) const {
  std::vector<int64_t> starts;
  for (int64_t w = first; w < std::min(first + count, windows()); ++w)
    starts.push_back(w * all_ / chosen_ * length_);
  return cut_windows(stream_, starts, length_);
}

}  // namespace qkv
