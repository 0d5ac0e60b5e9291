// The state of each sequence of a layer whose state is large, and how to go back by some tokens.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "qkv/nn/recurrent_state.h"

namespace qkv {

// The present state of each sequence, an earlier one, and the inputs of the tokens since then. A state is
// large and cannot be run back; so to go back, these tokens are run again. That gives the bits of the first
// time.
class ReplayedState : public LayerState {
 public:
  // Tokens that truncate() goes back by at least, if so many were read since it last did.
  static constexpr int64_t kKept = RecurrentState::kKept;
  using Floats = std::vector<float>;
  // The state f32 [1, width] after tokens with these inputs [tokens, inputs], from another.
  using Replay = std::function<Tensor(const Tensor& from, const Tensor& rows)>;

  // width: numbers of a state; inputs: those of a token. States begin with zeros.
  ReplayedState(int64_t sequences, int64_t width, int64_t inputs, Replay replay)
      : width_(width), inputs_(inputs), replay_(std::move(replay)), all_(sequences) {}

  Tensor last() const;  // f32 [sequences, width]
  // Sequence s is about to append rows [offsets[s], offsets[s + 1]): the number of them after which append()
  // wants its state.
  std::vector<int32_t> marks(std::span<const int32_t> offsets) const;
  // rows [N, inputs] of any floating type, always the same; marked and last f32 [sequences, width]: the
  // states after marks() and after all rows.
  void append(const Tensor& rows, const Tensor& marked, const Tensor& last, std::span<const int32_t> offsets);

  int64_t sequences() const override { return std::ssize(all_); }
  int64_t length(int64_t sequence) const override { return of(sequence).length; }
  std::unique_ptr<LayerState> fork() const override { return std::make_unique<ReplayedState>(*this); }
  void reorder(std::span<const int32_t> sources) override;
  void join(const LayerState& other, std::span<const int32_t> sequences) override;
  // Throws Error for a length that can_truncate() denies.
  void truncate(int64_t sequence, int64_t length) override;
  bool can_truncate(int64_t sequence, int64_t to) const override;
  int64_t bytes() const override;
  // Lengths of the earlier states, lengths, both states of each sequence, and the rows since the earlier
  // ones.
  std::vector<Tensor> save() const override;
  void load(const std::vector<Tensor>& saved) override;

 private:
  using State = std::shared_ptr<const Floats>;  // null: zeros
  struct Sequence {
    int64_t before = 0, length = 0;  // tokens of the earlier state and of the present one
    State earlier = {}, now = {};
    Floats rows = {};  // [length - before, inputs]
  };
  const Sequence& of(int64_t sequence) const;
  State replayed(const State& from, std::span<const float> rows) const;

  int64_t width_, inputs_;
  Replay replay_;
  DType type_ = DType::f32;  // the rows' type
  std::vector<Sequence> all_;
};

}  // namespace qkv
