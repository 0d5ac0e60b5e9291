// What turns embedded tokens into hidden rows: the encoder's stack or the decoder's.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "qkv/models/position_terms.h"

namespace qkv {

// A stack, whatever it is made of.
class Stack {
 public:
  static constexpr uint32_t kSitesALayer = 8;  // uses of randomness

  virtual ~Stack() = default;
  // x [N, D], embedded -> [N, D].
  virtual Tensor forward(const Tensor& x, const Context& context) const = 0;
  // Fresh memory for decoding so many sequences.
  virtual DecodingStates make_states(int64_t /*sequences*/) const { return {}; }
  // Fresh memory of the segments before, for training and measuring so many sequences (nn/segment_state.h).
  virtual SegmentStates make_segment_states(int64_t /*sequences*/) const { return {}; }
  // Of blocks alone: see Transformer.
  virtual void set_recompute(bool /*on*/) {}
  virtual void set_layer_drop(float /*p*/) {}
  virtual void update_buffers() const {}
};

// Blocks of self-attention, cross-attention where the stack has a source, and a feed-forward network; where
// sums are not normalised a norm at the end.
class BlockStack : public Stack {
 public:
  // What one stack has that others of the model have not.
  struct Shape {
    int64_t layers;
    Mask mask;       // of self-attention
    int64_t source;  // the width of what it also attends to; 0: nothing
    uint32_t site;   // the first of its uses of randomness; kSitesALayer a layer
  };
  // Parameters begin with `name` ("decoder").
  BlockStack(Parameters& parameters, const std::string& name, const ModelSpec& spec, const Shape& shape);

  void set_recompute(bool on) override { recompute_ = on; }
  void set_layer_drop(float p) override { layer_drop_ = p; }
  void update_buffers() const override;

  Tensor forward(const Tensor& x, const Context& context) const override;
  DecodingStates make_states(int64_t sequences) const override;
  SegmentStates make_segment_states(int64_t sequences) const override;

 private:
  // The sublayers of a block, in order.
  using Block = std::vector<Residual>;
  // Whether this step goes without the block; the same for all its micro-batches.
  bool dropped(size_t layer, const Context& context) const;

  // The sublayers of one layer, with norms where the spec places them.
  Block make_block(Parameters& parameters, const ModelSpec& spec, const Shape& shape, int64_t layer,
                   InitStd std) const;

  std::string name_;
  NormPlacement placement_;
  bool reversible_;
  uint32_t site_;
  std::vector<Block> blocks_;
  std::unique_ptr<Norm> norm_;        // of pre-LN
  std::vector<PositionTerms> terms_;  // of each kind of block
  std::vector<size_t> terms_of_;      // of each layer, in these
  int64_t memory_;
  bool recompute_ = false;
  float layer_drop_ = 0;
};

}  // namespace qkv
