// Token shift: a layer that also reads the row before each token's, and remembers it.
#pragma once

#include <memory>
#include <string>

#include "qkv/nn/parameter.h"
#include "qkv/nn/replayed_state.h"
#include "qkv/nn/states.h"

namespace qkv {

// The rows before those that a layer reads. A state is the last row.
class TokenShift : private Remembering<ReplayedState> {
 public:
  explicit TokenShift(int64_t width) : width_(width) {}
  void add_states(DecodingStates& states, int64_t sequences) const { add_state(states, sequences); }
  // The row before each row of x [N, width], zeros before a sequence. The context's states are appended to.
  Tensor before(const Tensor& x, const Context& context) const;

 private:
  std::unique_ptr<ReplayedState> make_state(int64_t sequences) const override;

  int64_t width_;
};

// NAME [width]: how much of one row stands in the other's place, channel by channel. Begins with
// 1 - (c / width)^power in channel c, so that some channels see one row alone and others both.
Parameter& add_shift(Parameters& parameters, const std::string& name, int64_t width, float power);

}  // namespace qkv
