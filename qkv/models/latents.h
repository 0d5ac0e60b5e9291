// The stack of a Perceiver: blocks of latents between a cross-attention in and one out.
#pragma once

#include <memory>
#include <string>

#include "qkv/models/stack.h"
#include "qkv/nn/attention.h"
#include "qkv/nn/feed_forward.h"
#include "qkv/nn/linear.h"
#include "qkv/nn/norm.h"

namespace qkv {

// Perceiver IO (Jaegle et al. 2022): z = latents; z <- read(z, x); the blocks, spec.latents.repeats times;
// y = read(queries, z). Norms precede each part, and none is at the end.
class LatentStack : public Stack {
 public:
  // Parameters begin with `name`: `latents` [count, width], the blocks' own, `queries` [context, width] or,
  // for classes of sequences, [1, latent width], and of both reads ("in" and "out") query_norm, source_norm,
  // attention, norm and feed_forward.
  LatentStack(Parameters& parameters, const std::string& name, const ModelSpec& spec, uint32_t site);

  // x [N, D] -> a row for each token, or each position of the context's query layout: what the query of its
  // position reads. For classes of sequences all rows of a sequence are that of its one query.
  Tensor forward(const Tensor& x, const Context& context) const override;
  void set_recompute(bool on) override { blocks_.set_recompute(on); }
  void set_layer_drop(float p) override { blocks_.set_layer_drop(p); }
  void update_buffers() const override { blocks_.update_buffers(); }

 private:
  // A cross-attention with its feed-forward network.
  struct Read {
    Read(Parameters& parameters, const std::string& name, const ModelSpec& spec, const LatentCross& cross,
         int64_t width, int64_t source, uint32_t site);
    // queries [M, width], source [N, ..] -> [M, width].
    Tensor forward(const Tensor& queries, const Layout& layout, const Tensor& source,
                   const Layout& source_layout, const Context& context) const;

    bool residual;
    float dropout;
    uint32_t site;
    Norm query_norm, source_norm;
    CrossAttention attention;
    Norm norm;
    FeedForward feed_forward;
  };

  LatentSpec spec_;
  bool one_query_;
  Parameter* latents_;
  Read in_;
  BlockStack blocks_;
  Parameter* queries_;
  Read out_;
};

}  // namespace qkv
