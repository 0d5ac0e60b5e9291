// The state of one layer while decoding. Layers are const; the caller (infer/) owns the states.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "qkv/ops/attention.h"
#include "qkv/tensor/tensor.h"

namespace qkv {

// The operations on a state that beam search, speculative decoding, prompt caches and a server need.
class LayerState {
 public:
  virtual ~LayerState() = default;
  virtual int64_t sequences() const = 0;
  virtual int64_t length(int64_t sequence) const = 0;
  // Returns an independent copy.
  virtual std::unique_ptr<LayerState> fork() const = 0;
  // Sequence i becomes what sequence sources[i] was; the number of sequences may change.
  virtual void reorder(std::span<const int32_t> sources) = 0;
  // Adds these sequences of another state of the same layer behind its own, as copies. Throws Error if the
  // other is of another kind or type.
  virtual void join(const LayerState& other, std::span<const int32_t> sequences) = 0;
  // Forgets everything from position `length` on. REQUIRES: length <= length(sequence).
  virtual void truncate(int64_t sequence, int64_t length) = 0;
  // True if truncate() can go back to this length.
  virtual bool can_truncate(int64_t sequence, int64_t to) const { return to <= length(sequence); }
  // Memory of all that is remembered; parts that sequences share count once.
  virtual int64_t bytes() const = 0;
  // Save the state as plain tensors, and load it.
  virtual std::vector<Tensor> save() const = 0;
  virtual void load(const std::vector<Tensor>& saved) = 0;
};

// The other state of a join, as the class that it must have.
template <typename State>
const State& joined_state(const LayerState& other) {
  const auto* same = dynamic_cast<const State*>(&other);
  check(same != nullptr, "join: a state of another kind of layer");
  return *same;
}

// KV cache of self-attention, in pages of kPageRows rows. Sequences that were one share pages until one of
// them appends to a page that is not full. So beams that diverge copy no more than that page, and pages
// that a sequence gives up are reused (Kwon et al., PagedAttention, 2023).
class KeyValueState : public LayerState {
 public:
  static constexpr int64_t kPageRows = 16;

  KeyValueState(int64_t sequences, int64_t kv_heads, int64_t d_qk, int64_t d_vo);

  // Appends keys and values of new tokens: sequence s gets rows [offsets[s], offsets[s + 1]) of k and v.
  void append(const Heads& k, const Heads& v, std::span<const int32_t> offsets);
  Heads keys() const { return {keys_, 0, kv_heads_, d_qk_}; }
  Heads values() const { return {values_, 0, kv_heads_, d_vo_}; }
  KeyLayout layout() const;

  bool filled() const { return keys_.defined(); }
  int64_t sequences() const override { return static_cast<int64_t>(lengths_.size()); }
  int64_t length(int64_t sequence) const override { return lengths_[sequence]; }
  std::unique_ptr<LayerState> fork() const override;
  void reorder(std::span<const int32_t> sources) override;
  // Pages that the other's sequences share stay shared.
  void join(const LayerState& other, std::span<const int32_t> sequences) override;
  void truncate(int64_t sequence, int64_t length) override;
  // Counts pages in use. The buffers may be larger by half.
  int64_t bytes() const override;
  // Lengths, and the rows of all sequences one after another.
  std::vector<Tensor> save() const override;
  void load(const std::vector<Tensor>& saved) override;

 private:
  void own();  // moves to its own buffers, with only the pages in use
  // The row of keys() and values() that holds a position.
  int64_t row_of(int64_t sequence, int64_t position) const {
    return pages_[sequence][position / kPageRows] * kPageRows + position % kPageRows;
  }
  // Free pages that it takes to append counts[s] rows to each sequence s.
  int64_t pages_for(std::span<const int32_t> counts) const;
  bool parts(int64_t sequence) const;  // true if an append must copy its last page: shared and not full
  void grow(int64_t pages, DType dtype);
  int32_t take_page();
  void leave_page(int32_t page);

  int64_t kv_heads_, d_qk_, d_vo_;
  std::vector<int32_t> lengths_;
  std::vector<std::vector<int32_t>> pages_;  // pages of each sequence
  std::vector<int32_t> users_;               // number of sequences that use each page
  std::vector<int32_t> free_;                // pages that no sequence uses
  Tensor keys_, values_;                     // [pages kPageRows, kv_heads d_qk / d_vo]
};

// Keys and values of a source, appended once. Decoding does not change them, and everything decoded from a
// source shares them.
class SourceState : public LayerState {
 public:
  SourceState(int64_t sequences, int64_t kv_heads, int64_t d_qk, int64_t d_vo);

  // Sequence s gets rows [offsets[s], offsets[s + 1]) of k and v, which are not copied.
  void append(const Heads& k, const Heads& v, std::span<const int32_t> offsets);
  const Heads& keys() const { return keys_; }
  const Heads& values() const { return values_; }
  KeyLayout layout() const;

  bool filled() const { return keys_.x.defined(); }
  int64_t sequences() const override { return static_cast<int64_t>(lengths_.size()); }
  int64_t length(int64_t sequence) const override { return lengths_[sequence]; }
  std::unique_ptr<LayerState> fork() const override { return std::make_unique<SourceState>(*this); }
  void reorder(std::span<const int32_t> sources) override;
  void join(const LayerState& other, std::span<const int32_t> sequences) override;
  void truncate(int64_t /*sequence*/, int64_t /*length*/) override {}
  bool can_truncate(int64_t /*sequence*/, int64_t /*to*/) const override { return true; }
  int64_t bytes() const override;
  std::vector<Tensor> save() const override;
  void load(const std::vector<Tensor>& saved) override;

 private:
  Heads keys_, values_;
  std::vector<int32_t> lengths_, begins_;  // each sequence's rows
};

}  // namespace qkv
