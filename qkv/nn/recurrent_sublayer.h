// A recurrence as the function of a residual branch.
#pragma once

#include <memory>
#include <string>

#include "qkv/nn/recurrence.h"
#include "qkv/nn/sublayer.h"

namespace qkv {

// h of a recurrence that begins with zeros; read both ways, [forward, backward] of half the width each
// (Schuster & Paliwal 1997).
class RecurrentSublayer : public Sublayer {
 public:
  // Parameters begin with `name`. REQUIRES: both ways, that width is even.
  RecurrentSublayer(Parameters& parameters, const std::string& name, Cell cell, int64_t width, bool both_ways,
                    float std);
  Tensor forward(const Tensor& x, const Context& context) const override;
  void add_states(DecodingStates& states, int64_t sequences) const override {
    forward_.add_state(states, sequences);
  }

 private:
  // The input of one way's gates, W x + b.
  Tensor input(const Recurrence& way, const char* name, const Tensor& x, const Context& context) const;

  std::string name_;
  Recurrence forward_;
  std::unique_ptr<Recurrence> backward_;
};

}  // namespace qkv
