// Layers of recurrent models. Each holds only weights, and finds its state in the context.
#pragma once

#include <memory>
#include <string>

#include "qkv/nn/linear.h"
#include "qkv/nn/recurrence_spec.h"
#include "qkv/nn/recurrent_state.h"
#include "qkv/nn/states.h"
#include "qkv/ops/recurrence.h"

namespace qkv {

// A recurrence with its weights: W and b for its input, U for its own state.
class Recurrence : public Remembering<RecurrentState> {
 public:
  // Names of parameters begin with `name`: input.weight [gates D, in], input.bias, state.weight
  // [gates D, D].
  Recurrence(Parameters& parameters, const std::string& name, Cell cell, int64_t in, int64_t width,
             float std);
  int64_t width() const { return width_; }                             // D
  int64_t state_width() const { return state_parts(cell_) * width_; }  // width of h; of [h, c] for an LSTM
  int64_t gates_width() const { return gates_of(cell_) * width_; }

  // W x + b, for all rows at once: [N, in] -> [N, gates D].
  Tensor input(const Tensor& x, const Context& context) const { return input_.forward(x, context); }
  // The result of input(), and `first` as in recurrence() -> [N, D] and states.
  RecurrenceResult forward(const Tensor& input, const Tensor& first, std::span<const int32_t> offsets,
                           bool backwards = false) const;
  using Remembering::state;

 private:
  std::unique_ptr<RecurrentState> make_state(int64_t sequences) const override {
    return std::make_unique<RecurrentState>(sequences, state_width());
  }

  Cell cell_;
  int64_t width_;
  Linear input_;
  Parameter* state_;  // U
};

// The context vectors of a recurrent decoder.
class SourceAttentionLayer : public Remembering<SourceState> {
 public:
  // The rows to look at: keys and values.
  struct Source {
    Tensor keys, values;
    KeyLayout layout;
  };

  // REQUIRES: kind is not none. `window`: of local attention.
  SourceAttentionLayer(Parameters& parameters, const std::string& name, SourceAttention kind, int64_t width,
                       int64_t window, float std);
  SourceAttention kind() const { return kind_; }
  // Keys and values of the context's source, or those stored in the layer's state.
  Source source(const Context& context) const;
  // h [N, D], the decoder's states -> [N, D].
  Tensor forward(const Tensor& h, std::span<const int32_t> offsets, const Source& source) const;

 private:
  std::unique_ptr<SourceState> make_state(int64_t sequences) const override;

  std::string name_;
  SourceAttention kind_;
  int64_t width_, window_;
  std::unique_ptr<Linear> q_, k_;             // W_a and U_a of additive scores
  Parameter* v_ = nullptr;                    // v_a, f32 [D]
  std::unique_ptr<Linear> place_, to_place_;  // W_p and v_p of local attention
};

}  // namespace qkv
