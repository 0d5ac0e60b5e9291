// A layer's memory of the text before a window: the segment recurrence of Transformer-XL.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "qkv/nn/context.h"
#include "qkv/nn/layer_state.h"

namespace qkv {

// The last rows of each sequence that a layer's attention read. It reads them again beside the next
// segment, without gradients: Z = [SG(M) X] in Algorithm 5 (Dai et al. 2019, section 3.2). A forward pass
// only notes what it reads, so that it may be repeated; advance() remembers it.
class SegmentState : public LayerState {
 public:
  // `longest`: maximum number of rows that are kept of a sequence.
  SegmentState(int64_t sequences, int64_t longest) : longest_(longest), lengths_(sequences, 0) {}

  // The layout of Z, and the indices of X's rows in it: [N].
  struct Place {
    Layout layout;
    Indices own;
  };
  Place place(const Layout& x) const;
  // x [N, D] -> Z [N + remembered, D]: for each sequence its remembered rows, then its rows of x.
  Tensor extended(const Tensor& x, const Layout& layout);
  void advance();

  int64_t sequences() const override { return static_cast<int64_t>(lengths_.size()); }
  int64_t length(int64_t sequence) const override { return lengths_[sequence]; }
  std::unique_ptr<LayerState> fork() const override { return std::make_unique<SegmentState>(*this); }
  void reorder(std::span<const int32_t> sources) override;
  void join(const LayerState& other, std::span<const int32_t> sequences) override;
  void truncate(int64_t sequence, int64_t length) override;
  int64_t bytes() const override { return rows_.defined() ? static_cast<int64_t>(rows_.bytes()) : 0; }
  std::vector<Tensor> save() const override;
  void load(const std::vector<Tensor>& saved) override;

 private:
  // The first remembered row of each sequence, and the end of the last.
  std::vector<int32_t> offsets() const;

  int64_t longest_;
  std::vector<int32_t> lengths_;
  Tensor rows_;  // [sum of lengths, D]; undefined while there are none
  Tensor read_;  // Z of the last forward pass
  std::vector<int32_t> read_offsets_;
};

}  // namespace qkv
