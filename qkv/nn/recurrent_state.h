// The state of a recurrence while decoding: the current one, and a few previous ones.
#pragma once

#include <memory>
#include <vector>

#include "qkv/nn/layer_state.h"

namespace qkv {

// The current state of each sequence's recurrence. A recurrence cannot be run back. So the first states of
// sequences and those after the last kKept tokens are kept as snapshots, which sequences that were one
// share.
class RecurrentState : public LayerState {
 public:
  static constexpr int64_t kKept = 16;

  RecurrentState(int64_t sequences, int64_t width) : width_(width), kept_(sequences) {}

  // first f32 [sequences, width]: the first states of the sequences that have none yet. REQUIRES: !begun().
  void begin(const Tensor& first);
  bool begun() const;  // all have
  // states f32 [N, width] after each new token: sequence s appends rows [offsets[s], offsets[s + 1]).
  // REQUIRES: begun().
  void append(const Tensor& states, std::span<const int32_t> offsets);
  Tensor last() const;  // f32 [sequences, width]. REQUIRES: begun().

  int64_t sequences() const override { return std::ssize(kept_); }
  int64_t length(int64_t sequence) const override;
  std::unique_ptr<LayerState> fork() const override { return std::make_unique<RecurrentState>(*this); }
  void reorder(std::span<const int32_t> sources) override;
  void join(const LayerState& other, std::span<const int32_t> sequences) override;
  // Throws Error if there is no snapshot of that length: it must be 0, or one of the last kKept.
  void truncate(int64_t sequence, int64_t length) override;
  bool can_truncate(int64_t sequence, int64_t to) const override;
  int64_t bytes() const override;
  // The number of snapshots of each sequence, their lengths, and the snapshots, one per row.
  std::vector<Tensor> save() const override;
  void load(const std::vector<Tensor>& saved) override;

 private:
  struct Snapshot {
    int64_t length;
    std::shared_ptr<const std::vector<float>> state;
  };
  void keep(int64_t sequence, int64_t length, const Tensor& states, int64_t row);

  int64_t width_;
  std::vector<std::vector<Snapshot>> kept_;  // snapshots of each sequence, by length; none before begin()
};

}  // namespace qkv
