// Token streams and the batches cut from them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "qkv/batch/batch.h"

namespace qkv {

// A sequence of documents, in its own memory or in tensors of a mapped file.
class TokenStream {
 public:
  TokenStream() = default;
  // tokens i32 [N]; starts i64 [documents + 1] from 0 to N, not decreasing. Throws Error otherwise.
  TokenStream(Tensor tokens, Tensor starts);

  // REQUIRES: not built from tensors. Empty documents are ignored.
  void append(const std::vector<int32_t>& document);

  std::span<const int32_t> tokens() const {
    return mapped_tokens_ ? mapped_tokens_.values<int32_t>() : std::span<const int32_t>(tokens_);
  }
  // Document d has the tokens [starts()[d], starts()[d + 1]).
  std::span<const int64_t> starts() const {
    return mapped_starts_ ? mapped_starts_.values<int64_t>() : std::span<const int64_t>(starts_);
  }
  int64_t size() const { return static_cast<int64_t>(tokens().size()); }
  // The same as tensors, for files. They are copied unless the stream was built from tensors.
  Tensor token_tensor() const;
  Tensor start_tensor() const;

  int64_t characters = 0;  // Unicode characters, for losses per character; 0: not all of them have tokens
  int64_t bytes = 0;
  int64_t unknown = 0;     // tokens for text outside the vocabulary
  int64_t beginnings = 0;  // tokens before documents, which stand for no text and are never predicted

 private:
  std::vector<int32_t> tokens_;
  std::vector<int64_t> starts_ = {0};
  Tensor mapped_tokens_, mapped_starts_;
};

// Windows of `length` tokens at these starts. If a document ends inside a window, the rest becomes a
// separate sequence, because packed documents do not attend across their borders.
Batch cut_windows(const TokenStream& stream, const std::vector<int64_t>& starts, int64_t length);

// Turns windows into a batch for a prefix LM. In each sequence s a prefix is given and the rest is
// predicted; its length is drawn by (seed, draw, first + s).
void draw_prefixes(Batch& batch, uint64_t seed, uint64_t draw, int64_t first = 0);

// Training batches: windows drawn at random. The batch of a step is a function of (seed, step,
// micro-batch), so resuming needs only the step's number.
class RandomWindows {
 public:
  // Throws Error naming `source` if the stream is shorter than one window and its last target.
  RandomWindows(const TokenStream& stream, int64_t length, uint64_t seed,
                const std::string& source = "the text");
  // Windows [first, first + count) of the step.
  Batch batch(uint64_t step, int64_t first, int64_t count) const;

 private:
  const TokenStream& stream_;
  int64_t length_;
  uint64_t seed_;
};

// Validation batches: every token once, in order, in windows that do not overlap. With `limit` above 0, at
// most that many windows, spread evenly over the text.
class EveryWindow {
 public:
  EveryWindow(const TokenStream& stream, int64_t length, int64_t limit = 0);
  int64_t windows() const { return chosen_; }
  // Windows [first, first + count); fewer at the end.
  Batch batch(int64_t first, int64_t count) const;

 private:
  const TokenStream& stream_;
  int64_t length_, all_, chosen_;
};

// A text cut into `streams` parts that are read in parallel, window by window, to train and evaluate models
// with memory. The first parts may be a window longer.
class StreamWindows {
 public:
  // Throws Error naming `source` if there are fewer windows than streams.
  StreamWindows(const TokenStream& stream, int64_t length, int64_t streams,
                const std::string& source = "the text");
  int64_t steps() const { return (windows_ + streams_ - 1) / streams_; }  // steps of one pass
  // Windows of the streams [first, first + count) at a step, counted from 0. Streams that have reached
  // their end begin again.
  Batch batch(int64_t step, int64_t first, int64_t count) const;
  // The same of those among them that are still in their first pass at this step: none if all have ended.
  Batch batch_of_pass(int64_t step, int64_t first, int64_t count) const;

 private:
  int64_t first_window(int64_t s) const {
    return s * (windows_ / streams_) + std::min(s, windows_ % streams_);
  }

  const TokenStream& stream_;
  int64_t length_, streams_, windows_;
};

}  // namespace qkv
