// The part that mixers with a large state share: how they remember.
#pragma once

#include <memory>
#include <span>

#include "qkv/nn/replayed_state.h"
#include "qkv/nn/sublayer.h"

namespace qkv {

// A mixer whose state follows from the inputs of each token, linear maps done: `inputs` numbers a token,
// `width` numbers of state.
class ReplayedMixer : public Sublayer, private Remembering<ReplayedState> {
 public:
  // The result of a pass over tokens: y [N, ..], and f32 [sequences, width] the states after all tokens and
  // after those marked; undefined if nothing is marked.
  struct Pass {
    Tensor y, state, marked;
  };

  void add_states(DecodingStates& states, int64_t sequences) const override { add_state(states, sequences); }

 protected:
  struct Size {
    int64_t width, inputs;
  };
  virtual Size size() const = 0;
  // rows [N, inputs]; first f32 [sequences, width], undefined: zeros. The bits of all results must not
  // depend on how a sequence is cut into calls.
  virtual Pass pass(const Tensor& rows, const Tensor& first, std::span<const int32_t> offsets,
                    std::span<const int32_t> marks) const = 0;

  // The states that the tokens of the context go on from; undefined: zeros.
  Tensor first(const Context& context) const;
  // y of pass() over the tokens of the context, which are remembered where it asks for that.
  Tensor read(const Tensor& rows, const Context& context) const;

 private:
  std::unique_ptr<ReplayedState> make_state(int64_t sequences) const override;
};

}  // namespace qkv
