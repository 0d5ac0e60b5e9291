// The modules of multi-token prediction.
#pragma once

#include <memory>
#include <vector>

#include "qkv/models/embedding.h"
#include "qkv/models/stack.h"
#include "qkv/models/unembedding.h"
#include "qkv/nn/states.h"

namespace qkv {

// Modules k = 1, ..., K behind the L blocks of a decoder: h^k = Block_k(x^k), and P^k = softmax(W_u
// norm(h^k)) predicts x[t+1+k] from the row of x[t]. MtpForm says what x^k is; joined is
//     x^k_t = M_k [norm(W_e[:, x[t+k]]); norm(h^(k-1)_t)]
// (DeepSeek-AI 2024, DeepSeek-V3, eqs. 21-23, with the columns of M_k as published files have them).
// Blocks are numbered on from the decoder's last one. They are as that is, and their attention is causal.
class MtpModules {
 public:
  // `embedding` and `unembedding`: the model's. They and the spec must outlive this. REQUIRES:
  // spec.mtp.any().
  MtpModules(Parameters& parameters, const ModelSpec& spec, const InputEmbedding& embedding,
             const Unembedding& unembedding, uint32_t site);

  int64_t count() const { return std::ssize(modules_); }
  // h^k [N, D] of module k, from 1. h: h^(k-1), or h^0 for parallel modules. ids [N]: for joined modules, the
  // tokens k places after each row's; else unused. The layout, and states of the module, are the context's.
  Tensor forward(int64_t k, const Tensor& h, const Indices& ids, const Context& context) const;
  // The rows [N, D] that the unembedding reads, of h^k.
  Tensor normalized(int64_t k, const Tensor& h) const;

  // Adds the modules' losses to `result`: their sums and counts, and while gradients are recorded their loss,
  // times weight / K. hidden: h^0 [N, D]. ids, targets [N]: as of the next token. `scale` as in
  // unembed_cross_entropy(). The last k rows of a sequence have no loss of module k.
  void add_losses(CrossEntropyResult& result, const Tensor& hidden, const Indices& ids,
                  const Indices& targets, const Context& context, float scale, const LossTerms& terms) const;

  DecodingStates make_states(int64_t k, int64_t sequences) const {
    return module(k).block->make_states(sequences);
  }
  void set_recompute(bool on);
  void update_buffers() const;

 private:
  struct Module {
    std::unique_ptr<BlockStack> block;
    std::unique_ptr<Norm> norm;  // null if no norm follows the decoder's blocks
    // For joined modules; else null.
    std::unique_ptr<Norm> embedding_norm, hidden_norm;
    std::unique_ptr<Linear> projection;  // M_k [D, 2 D]
  };
  const Module& module(int64_t k) const;

  const ModelSpec& spec_;
  const InputEmbedding& embedding_;
  const Unembedding& unembedding_;
  std::vector<Module> modules_;
};

}  // namespace qkv
