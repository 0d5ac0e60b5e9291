// What one layer remembers while decoding. Layers are const; the caller (infer/) owns the states.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "qkv/ops/attention.h"
#include "qkv/tensor/tensor.h"

namespace qkv {

// The operations that beams, speculation, prompt caches and a server need of every kind of memory.
class LayerState {
 public:
  virtual ~LayerState() = default;
  virtual int64_t sequences() const = 0;
  virtual int64_t length(int64_t sequence) const = 0;
  // A copy that goes its own way.
  virtual std::unique_ptr<LayerState> fork() const = 0;
  // Sequence i becomes what sequence sources[i] was; the number of sequences may change.
  virtual void reorder(std::span<const int32_t> sources) = 0;
  // Forgets everything from position `length` on. REQUIRES: length <= length(sequence).
  virtual void truncate(int64_t sequence, int64_t length) = 0;
  // The memory as plain tensors, and back.
  virtual std::vector<Tensor> save() const = 0;
  virtual void load(const std::vector<Tensor>& saved) = 0;
};

// Keys and values of self-attention: one buffer each, a run of `capacity` rows a sequence that grows as
// needed.
class KeyValueState : public LayerState {
 public:
  KeyValueState(int64_t sequences, int64_t kv_heads, int64_t d_qk, int64_t d_vo);

  // Takes the keys and values of new tokens: sequence s gets rows [offsets[s], offsets[s + 1]) of k and v.
  void append(const Heads& k, const Heads& v, std::span<const int32_t> offsets);
  Heads keys() const { return {keys_, 0, kv_heads_, d_qk_}; }
  Heads values() const { return {values_, 0, kv_heads_, d_vo_}; }
  KeyLayout layout() const;

  bool filled() const { return keys_.defined(); }
  int64_t sequences() const override { return static_cast<int64_t>(lengths_.size()); }
  int64_t length(int64_t sequence) const override { return lengths_[sequence]; }
  std::unique_ptr<LayerState> fork() const override;
  void reorder(std::span<const int32_t> sources) override;
  void truncate(int64_t sequence, int64_t length) override;
  std::vector<Tensor> save() const override;
  void load(const std::vector<Tensor>& saved) override;

 protected:
  void own();  // ends the sharing of memory with what this was copied from
  // Sequence i has the run that sequence sources[i] had: without a copy, so that several may share one.
  void share(std::span<const int32_t> sources);

 private:
  void grow(int64_t capacity, DType dtype);

  int64_t kv_heads_, d_qk_, d_vo_, capacity_ = 0;
  std::vector<int32_t> lengths_;
  std::vector<int32_t>
      runs_;              // which run of the buffers each sequence has: its own but where they are shared
  Tensor keys_, values_;  // [sequences capacity, kv_heads d_qk / d_vo]
};

// Keys and values of a source, appended once: what is decoded afterwards does not change them, and all that
// is decoded from a source shares them.
class SourceState : public KeyValueState {
 public:
  using KeyValueState::KeyValueState;
  std::unique_ptr<LayerState> fork() const override;
  void reorder(std::span<const int32_t> sources) override { share(sources); }
  void truncate(int64_t /*sequence*/, int64_t /*length*/) override {}
};

// The states of a recurrence: the one it began with and that after each token, so that it can go back.
class RecurrentState : public KeyValueState {
 public:
  RecurrentState(int64_t sequences, int64_t width) : KeyValueState(sequences, 1, width, 0) {}

  // states f32 [N, width]: sequence s goes on by rows [offsets[s], offsets[s + 1]); at first those it begins
  // with, one each.
  void append(const Tensor& states, std::span<const int32_t> offsets);
  Tensor last() const;  // f32 [sequences, width]. REQUIRES: filled().

  int64_t length(int64_t sequence) const override;
  std::unique_ptr<LayerState> fork() const override;
  void truncate(int64_t sequence, int64_t length) override;
};

}  // namespace qkv
