#include "qkv/train/evaluate.h"

#include <cmath>
#include <numbers>

namespace qkv {

double Evaluation::perplexity() const {
  return std::exp(loss());
}
// The text's characters are shared out over its tokens, predicted or not.
double Evaluation::nats_per_character() const {
  return characters ? loss() * static_cast<double>(of_tokens) / static_cast<double>(characters) : 0;
}
double Evaluation::bits_per_byte() const {
  return bytes ? loss() * static_cast<double>(of_tokens) / static_cast<double>(bytes) / std::numbers::ln2 : 0;
}

Evaluation evaluate(const Transformer& model, const TokenStream& stream, int64_t batch, int64_t windows) {
  const NoGrad guard;
  const EveryWindow every(stream, model.spec().context, windows);
  Evaluation e;
  e.of_tokens = stream.size();
  e.characters = stream.characters;
  e.bytes = stream.bytes;
  for (int64_t first = 0; first < every.windows(); first += batch) {
    const Batch b = every.batch(first, batch);
    Context context;
    const CrossEntropyResult r = model.loss(b, b.targets, context, 1);
    e.total += r.total;
    e.tokens += r.count;
  }
  return e;
}

Evaluation evaluate(const Transformer& model, const PairStream& pairs, SequenceEnds ends, int64_t tokens) {
  const NoGrad guard;
  Evaluation e;
  e.characters = pairs.target.characters;
  e.bytes = pairs.target.bytes;
  for (const std::vector<int64_t>& which : pairs_by_length(pairs, tokens, model.spec().context)) {
    const Batch b = pair_batch(pairs, which, ends, model.spec().context);
    const CrossEntropyResult r = model.loss(b, b.targets, {}, 1);
    e.total += r.total;
    e.tokens += r.count;
  }
  e.of_tokens = e.tokens;
  return e;
}

}  // namespace qkv
