// The memory of a recurrence: its state, and a few of the states before.
#pragma once

#include <memory>
#include <vector>

#include "qkv/nn/layer_state.h"

namespace qkv {

// The current state of each sequence's recurrence. A recurrence cannot be run back: the states that
// sequences begin with and those after the last kKept tokens are kept as snapshots, shared by sequences that
// were one.
class RecurrentState : public LayerState {
 public:
  static constexpr int64_t kKept = 16;

  RecurrentState(int64_t sequences, int64_t width) : width_(width), kept_(sequences) {}

  // first f32 [sequences, width]: what the sequences begin with. REQUIRES: !begun().
  void begin(const Tensor& first);
  bool begun() const;
  // states f32 [N, width], those after each new token: sequence s goes on by rows [offsets[s], offsets[s +
  // 1]). REQUIRES: begun().
  void append(const Tensor& states, std::span<const int32_t> offsets);
  Tensor last() const;  // f32 [sequences, width]. REQUIRES: begun().

  int64_t sequences() const override { return std::ssize(kept_); }
  int64_t length(int64_t sequence) const override;
  std::unique_ptr<LayerState> fork() const override { return std::make_unique<RecurrentState>(*this); }
  void reorder(std::span<const int32_t> sources) override;
  // Throws Error where no snapshot is kept of that length: it must be 0, or one of the last kKept.
  void truncate(int64_t sequence, int64_t length) override;
  // How many snapshots each sequence has, their lengths, and the snapshots, one a row.
  std::vector<Tensor> save() const override;
  void load(const std::vector<Tensor>& saved) override;

 private:
  struct Snapshot {
    int64_t length;
    std::shared_ptr<const std::vector<float>> state;
  };
  void keep(int64_t sequence, int64_t length, const Tensor& states, int64_t row);

  int64_t width_;
  std::vector<std::vector<Snapshot>> kept_;  // of each sequence, by length; none before begin()
};

}  // namespace qkv
