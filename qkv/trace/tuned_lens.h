// The tuned lens (Belrose et al. 2023): a map for each layer that turns what leaves it into what the last
// layer would make of it, so that the model's own end can read it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "qkv/models/transformer.h"
#include "qkv/optim/optimizer.h"

namespace qkv {

// Affine maps x + W x + b of the input of the blocks and of each block but the last, which needs none.
class TunedLens {
 public:
  // Maps that change nothing: the logit lens. REQUIRES: has_lens(spec).
  explicit TunedLens(const ModelSpec& spec);

  // As logit_lens(): logits f32 [N, V] of the input of the blocks, then of each block.
  std::vector<Tensor> logits(const Transformer& model, const ModelInput& input) const;

  // One step of Adam towards the model's own answers, for up to `rows` rows of a pass spread evenly. Returns
  // the divergence KL(model | lens) before the step, in nats, the mean over rows and layers.
  double fit(const Transformer& model, const ModelInput& input, int64_t rows, double learning_rate);

  // The same mean, without a step.
  double divergence(const Transformer& model, const ModelInput& input, int64_t rows) const;

  // A safetensors file with "lens.0.weight" [D, D] and "lens.0.bias" [D] for each map. Throws Error if a file
  // does not fit the model.
  void save(const std::string& path) const;
  void load(const std::string& path);

 private:
  // The rows x that leave layer l as they would leave the last one: [N, D].
  Tensor mapped(size_t l, const Tensor& x) const;
  // The mean divergence over some rows of a pass; tells each map's logits and their gradient.
  using Answered = std::function<void(const Tensor& logits, const Tensor& gradient)>;
  double sum_of(const Transformer& model, const ModelInput& input, int64_t rows,
                const Answered& answered) const;

  Parameters parameters_;
  std::vector<std::pair<Parameter*, Parameter*>> maps_;  // weight and bias
  std::unique_ptr<Optimizer> optimizer_;
  int64_t steps_ = 0;
};

}  // namespace qkv
