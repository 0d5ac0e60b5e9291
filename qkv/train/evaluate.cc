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

Evaluation evaluate(const Decoder& model, const TokenStream& stream, int64_t batch, int64_t windows) {
  const NoGrad guard;
  const int64_t length = model.spec().context;
  const EveryWindow every(stream, length);
  const int64_t all = every.windows(), chosen = windows == 0 ? all : std::min(windows, all);
  Evaluation e;
  e.of_tokens = stream.size();
  e.characters = stream.characters;
  e.bytes = stream.bytes;
  for (int64_t first = 0; first < chosen; first += batch) {
    std::vector<int64_t> starts;
    for (int64_t w = first; w < std::min(first + batch, chosen); ++w)
      starts.push_back(w * all / chosen * length);
    const Batch b = cut_windows(stream, starts, length);
    Context context;
    context.layout = b.layout;
    const CrossEntropyResult r = model.loss(b.ids, b.targets, context, 1);
    e.total += r.total;
    e.tokens += r.count;
  }
  return e;
}

}  // namespace qkv
