// A stack turns embedded tokens into hidden rows, as encoder or decoder.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "qkv/models/position_terms.h"
#include "qkv/nn/residual.h"
#include "qkv/nn/states.h"

namespace qkv {

// The interface of all stacks.
class Stack {
 public:
  static constexpr uint32_t kSitesALayer = 8;  // random sites per layer

  virtual ~Stack() = default;
  // x [N, D], embedded -> [N, D].
  virtual Tensor forward(const Tensor& x, const Context& context) const = 0;
  // The norm behind the last block, of rows [N, D] of the residual stream: [N, D]; they themselves if there
  // is none.
  virtual Tensor last_norm(const Tensor& stream, const Context& /*context*/) const { return stream; }
  // Empty states for decoding this many sequences.
  virtual DecodingStates make_states(int64_t /*sequences*/) const { return {}; }
  // Empty memory of previous segments, for training and evaluation of this many sequences
  // (nn/segment_state.h).
  virtual SegmentStates make_segment_states(int64_t /*sequences*/) const { return {}; }
  // For stacks of blocks only: see Transformer.
  virtual void set_recompute(bool /*on*/) {}
  virtual void set_layer_drop(float /*p*/) {}
  virtual void update_buffers() const {}
};

// The name, for probes, of the stream that leaves a layer's block in a stack ("decoder").
std::string block_output(const ModelSpec& spec, const std::string& stack, int64_t layer);

// Blocks of a mixer (self-attention), cross-attention if the stack has a source, and a feed-forward
// network. If sums are not normalised, a norm follows the last block.
class BlockStack : public Stack {
 public:
  // The properties of one stack that the model's other stack does not share.
  struct Shape {
    int64_t layers;
    Mask mask;          // mask of self-attention
    int64_t source;     // width of the source that it also attends to; 0: none
    uint32_t site;      // its first random site; kSitesALayer per layer
    int64_t first = 0;  // number of its first block
  };
  // Names of parameters begin with `name` ("decoder").
  BlockStack(Parameters& parameters, const std::string& name, const ModelSpec& spec, const Shape& shape);

  void set_recompute(bool on) override { recompute_ = on; }
  void set_layer_drop(float p) override { layer_drop_ = p; }
  void update_buffers() const override;

  Tensor forward(const Tensor& x, const Context& context) const override;
  Tensor last_norm(const Tensor& stream, const Context& context) const override {
    return norm_ ? norm_->forward(stream, context) : stream;
  }
  DecodingStates make_states(int64_t sequences) const override;
  SegmentStates make_segment_states(int64_t sequences) const override;

 private:
  // The sublayers of a block, in order.
  using Block = std::vector<Residual>;
  // True if this step skips the block; the same for all its micro-batches.
  bool dropped(size_t layer, const Context& context) const;

  // Adds the branches of a block to the stream, and scales what leaves it.
  void run_block(size_t layer, ResidualStream& stream, const Context& context) const;
  // True if the backward pass has what blocks read back from what the last one leaves.
  bool keeps_ends_alone(const Tensor& x, const std::vector<Context>& contexts) const;
  // forward() of two streams that begin alike, keeping their ends alone (Gomez et al. 2017).
  Tensor run_reversibly(const Tensor& x, const Context& context, const std::vector<Context>& contexts) const;
  // The name, for probes, of the stream that leaves a block.
  std::string name_after(size_t layer) const;

  // The sublayers of one layer, with norms where the spec places them.
  Block make_block(Parameters& parameters, const ModelSpec& spec, const Shape& shape, int64_t layer,
                   InitStd std) const;

  std::string name_;
  NormPlacement placement_;
  bool reversible_;
  uint32_t site_;
  int64_t first_;  // number of the first block
  std::vector<Block> blocks_;
  std::unique_ptr<Norm> norm_;        // after the last block; null: none
  std::vector<PositionTerms> terms_;  // position encodings of each kind of block
  std::vector<size_t> terms_of_;      // index in terms_ for each layer
  std::vector<int64_t> owners_;       // for each layer, the layer whose weights it uses
  std::vector<int64_t> keys_of_;      // for each layer, the layer whose keys and values it uses
  std::vector<char> keys_left_;       // for each layer, 1 if others use its keys and values
  std::vector<Parameter*> scales_;    // f32 [1] for each layer: factors on what leaves the blocks; or null
  int64_t input_width_;               // width of the blocks' own inputs; 0: none
  int64_t memory_;
  bool recompute_ = false;
  float layer_drop_ = 0;
};

}  // namespace qkv
