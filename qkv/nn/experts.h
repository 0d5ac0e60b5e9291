// A feed-forward network that is a mixture of experts.
#pragma once

#include <memory>
#include <string>

#include "qkv/nn/experts_spec.h"
#include "qkv/nn/feed_forward.h"
#include "qkv/ops/experts.h"

namespace qkv {

// sum_e w_e(x) f_e(x) over the chosen experts (Shazeer et al. 2017, eq. 1), plus the shared expert's f(x).
class Experts : public Sublayer {
 public:
  Experts(Parameters& parameters, const std::string& name, int64_t width, const FeedForwardSpec& network,
          const ExpertsSpec& spec, InitStd std);
  // The router's logits are probed as name.router.
  Tensor forward(const Tensor& x, const Context& context) const override;
  void update_buffers() const override;

 private:
  Tensor inputs(const Tensor& x, const ExpertRows& rows, const Tensor& weights) const;
  Tensor shared(const Tensor& x, const Context& context) const;
  void note_loads(const ExpertRows& rows) const;
  void expect_capacity(const Indices& experts, const Context& context) const;

  std::string name_;
  FeedForwardSpec network_;
  ExpertsSpec spec_;
  Parameter* router_;                 // [E, D]
  Parameter* router_bias_ = nullptr;  // [E]
  Parameter* choice_bias_ = nullptr;  // [E]
  Parameter *up_, *down_;             // all experts' weights, stacked: [E (2) hidden, D], [E D, hidden]
  Parameter *up_bias_ = nullptr, *down_bias_ = nullptr;  // [E (2) hidden], [E D]
  std::unique_ptr<FeedForward> shared_;
  Parameter* shared_gate_ = nullptr;  // [1, D]
};

}  // namespace qkv
