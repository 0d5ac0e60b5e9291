// Recurrent stacks, the encoders and decoders before the transformer. Each may also be combined with a
// transformer stack.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "qkv/models/stack.h"
#include "qkv/nn/linear.h"
#include "qkv/nn/recurrence.h"

namespace qkv {

// Layers of recurrences, each reading the one below. A bidirectional layer gives [forward, backward], each
// of half the width. Dropout between layers (Zaremba et al. 2014).
class RecurrentEncoder : public Stack {
 public:
  // Names of parameters begin with `name`. `site`: its first random site.
  RecurrentEncoder(Parameters& parameters, const std::string& name, const ModelSpec& spec, uint32_t site);
  Tensor forward(const Tensor& x, const Context& context) const override;

 private:
  struct Layer {
    std::string name;
    Recurrence forward;
    std::unique_ptr<Recurrence> backward;
  };
  std::string name_;
  float dropout_;
  uint32_t site_;
  std::vector<Layer> layers_;
};

// Layers of recurrences that look at a source. Their first states are tanh(W v), where v summarises the
// source. For a recurrent encoder v is the row that it computed last (Bahdanau et al. 2015, A.2.2; W = 1
// without tanh in Sutskever et al. 2014), for blocks the mean of the rows. Additive attention is in the
// first layer: its context enters the gates. The output is the last layer's h or, with attention,
// tanh(W_c [c; h]) (Luong et al. 2015, eq. 5).
class RecurrentDecoder : public Stack {
 public:
  RecurrentDecoder(Parameters& parameters, const std::string& name, const ModelSpec& spec, uint32_t site);
  Tensor forward(const Tensor& x, const Context& context) const override;
  DecodingStates make_states(int64_t sequences) const override;

 private:
  using Source = SourceAttentionLayer::Source;
  // The summary v of the source: [S, D].
  Tensor summary(const Context& context) const;
  // The first states of all layers, f32 [S, parts D] each.
  std::vector<Tensor> first_states(const Context& context) const;
  // Runs the first layer if it looks at the source before each step; `looked` becomes its contexts [N, D].
  RecurrenceResult search(const Tensor& x, const Tensor& first, const Context& context, const Source& source,
                          Tensor& looked) const;

  std::string name_;
  float dropout_;
  uint32_t site_;
  RecurrenceSpec spec_;
  Linear begin_;
  std::vector<Recurrence> layers_;
  std::unique_ptr<SourceAttentionLayer> attention_;
  std::unique_ptr<Linear> context_;  // C: projects an additive context to the gates
  std::unique_ptr<Linear> readout_;  // W_c
};

}  // namespace qkv
