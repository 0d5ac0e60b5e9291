#include "qkv/train/tasks/denoising.h"

#include <algorithm>
#include <cmath>

#include "qkv/data/length_batches.h"
#include "qkv/train/corpora/corpus.h"

namespace qkv {
namespace {

constexpr uint32_t kSite = 0x636f7272;  // "corr"

}  // namespace

double Restoration::tokens_of_each() const {
  if (objective == Objective::prefix_lm) return 1;
  return objective == Objective::denoise ? 2 : 1 + 2 * spans.density / spans.mean_length;
}

Restoration restoration_for(const text::Tokenizer& tokenizer, Restoration r) {
  if (r.objective == Objective::span_corruption) {
    r.spans.sentinels = sentinels(tokenizer);
    return r;
  }
  if (r.objective == Objective::prefix_lm) return r;
  const auto mask = tokenizer.token_to_id("<mask>");
  check(mask.has_value(), "the tokenizer has no token <mask>: denoising puts it in place of spans");
  r.noise.mask = static_cast<int32_t>(*mask);
  for (size_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string token = tokenizer.id_to_token(static_cast<text::TokenId>(id)).value_or("");
    r.noise.ends.push_back(token == "." || token == "!" || token == "?");
  }
  return r;
}

int64_t restorable_tokens(const ModelSpec& spec, const Restoration& r) {
  const int64_t room = spec.context - 1;
  if (spec.architecture == Architecture::encoder_decoder) return room;
  return std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(room - 2) / r.tokens_of_each()));
}

std::vector<int64_t> lengths_of(const std::vector<Piece>& pieces, const Restoration& r) {
  std::vector<int64_t> out;
  for (const Piece& p : pieces)
    out.push_back(static_cast<int64_t>(std::ceil(static_cast<double>(p.end - p.begin) * r.tokens_of_each())) +
                  2);
  return out;
}

Corrupted corrupted(const TokenStream& stream, const Piece& p, const Restoration& r, uint64_t seed,
                    uint64_t draw) {
  const auto tokens = stream.tokens().subspan(p.begin, p.end - p.begin);
  // A stream of its own for each piece: its place takes part in the seed.
  const RandomStream random{seed ^ (static_cast<uint64_t>(p.begin) << 20), draw, kSite};
  if (r.objective == Objective::prefix_lm) return cut_in_two(tokens, random);
  return r.objective == Objective::span_corruption ? corrupt_spans(tokens, r.spans, random)
                                                   : add_noise(tokens, r.noise, random);
}

Batch restoration_batch(const TokenStream& stream, const std::vector<Piece>& pieces,
                        const std::vector<int64_t>& which, const Restoration& r, const SequenceEnds& ends,
                        const ModelSpec& spec, uint64_t seed, uint64_t draw) {
  std::vector<Corrupted> pairs;
  for (const int64_t i : which) pairs.push_back(corrupted(stream, pieces[i], r, seed, draw));
  return pair_batch(pairs, ends, spec.pair_layout());
}

Evaluation evaluate_restored(const Transformer& model, const TokenStream& stream,
                             const std::vector<Piece>& pieces, const Restoration& r, const SequenceEnds& ends,
                             int64_t tokens, uint64_t seed, Communicator& ranks) {
  const NoGrad guard;
  Evaluation e;
  const auto batches = batches_by_length(lengths_of(pieces, r), tokens);
  add_losses(ranks.share(std::ssize(batches),
                         [&](int64_t i) {
                           return losses_of(
                               model, restoration_batch(stream, pieces, batches[static_cast<size_t>(i)], r,
                                                        ends, model.spec(), seed, 0));
                         }),
             e);
  e.of_tokens = e.tokens;
  return e;
}

}  // namespace qkv
