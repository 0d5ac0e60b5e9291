// Heads: how a model learns what it says of its hidden rows.
#pragma once

#include <memory>

#include "qkv/models/classifier.h"
#include "qkv/models/unembedding.h"

namespace qkv {

// A head's input.
struct HeadInput {
  const Tensor& hidden;  // [N, D], of the last stack
  const ModelInput& input;
  const Indices& targets;  // as Transformer::loss() takes them
  const Context& context;
};

// The loss of one kind of output.
class Head {
 public:
  virtual ~Head() = default;
  // How many predictions a batch asks for.
  virtual int64_t predictions(const ModelInput& input, const Indices& targets) const;
  // Their loss; `scale` as in unembed_cross_entropy().
  virtual CrossEntropyResult loss(const HeadInput& x, float scale, const LossTerms& terms) const = 0;
};

// The head of a spec's output. `unembedding`, `classifier`: null where the spec has none; all must outlive
// it.
std::unique_ptr<Head> make_head(const ModelSpec& spec, const Unembedding* unembedding, const Pooler& pooler,
                                const Classifier* classifier);

}  // namespace qkv
