#include "qkv/infer/generate.h"

#include <algorithm>

namespace qkv {

DecodeState::DecodeState(const Decoder& model, int64_t sequences)
    : model_(&model), lengths_(sequences, 0), states_(model.make_states(sequences)) {}

Tensor DecodeState::advance(const std::vector<std::vector<int32_t>>& tokens) {
  const NoGrad guard;
  check(static_cast<int64_t>(tokens.size()) == sequences(), "decode: {} sequences, got tokens of {}",
        sequences(), tokens.size());
  std::vector<int32_t> flat, counts;
  for (size_t s = 0; s < tokens.size(); ++s) {
    check(!tokens[s].empty(), "decode: sequence {} got no token", s);
    check(lengths_[s] + static_cast<int64_t>(tokens[s].size()) <= model_->spec().context,
          "decode: sequence {} would have {} tokens, the context is {}", s, lengths_[s] + tokens[s].size(),
          model_->spec().context);
    flat.insert(flat.end(), tokens[s].begin(), tokens[s].end());
    counts.push_back(static_cast<int32_t>(tokens[s].size()));
  }
  Context context;
  context.layout = Layout::of(counts, lengths_);
  const Tensor ids = Tensor::of({static_cast<int64_t>(flat.size())}, flat);
  const Tensor hidden = model_->hidden(ids, context, states_);
  for (size_t s = 0; s < counts.size(); ++s) lengths_[s] += counts[s];
  if (hidden.dim(0) == sequences()) return model_->logits(hidden);
  // Only the last token of each sequence needs logits.
  Tensor last = Tensor::empty({sequences(), hidden.width()}, hidden.dtype());
  const auto bytes = static_cast<size_t>(hidden.width() * size_of(hidden.dtype()));
  for (int64_t s = 0; s < sequences(); ++s)
    std::memcpy(static_cast<std::byte*>(last.raw()) + s * bytes,
                static_cast<const std::byte*>(hidden.raw()) + (context.layout.offsets[s + 1] - 1) * bytes,
                bytes);
  return model_->logits(last);
}

DecodeState DecodeState::fork() const {
  DecodeState copy(*model_, 0);
  copy.lengths_ = lengths_;
  copy.states_.clear();
  for (const auto& s : states_) copy.states_.push_back(s ? s->fork() : nullptr);
  return copy;
}

void DecodeState::reorder(std::span<const int32_t> sources) {
  std::vector<int32_t> lengths;
  for (const int32_t s : sources) {
    check(s >= 0 && s < sequences(), "reorder: no sequence {}", s);
    lengths.push_back(lengths_[s]);
  }
  for (const auto& s : states_)
    if (s) s->reorder(sources);
  lengths_ = std::move(lengths);
}

void DecodeState::truncate(int64_t sequence, int64_t length) {
  check(sequence >= 0 && sequence < sequences(), "truncate: no sequence {}", sequence);
  for (const auto& s : states_)
    if (s) s->truncate(sequence, length);
  lengths_[sequence] = static_cast<int32_t>(length);
}

std::vector<std::vector<int32_t>> generate(const Decoder& model,
                                           const std::vector<std::vector<int32_t>>& prompts,
                                           const GenerateOptions& options, const TokenCallback& on_token) {
  check_options(options.sampler);
  const auto context = static_cast<size_t>(model.spec().context);
  std::vector<std::vector<int32_t>> out(prompts.size());
  std::vector<int32_t> active;  // index of the prompt of each row of the state
  for (size_t s = 0; s < prompts.size(); ++s) {
    check(!prompts[s].empty(), "generate: prompt {} is empty: expected at least one token", s);
    active.push_back(static_cast<int32_t>(s));
  }
  // The last l_max tokens of prompt and continuation.
  const auto window = [&](int32_t s) {
    std::vector<int32_t> all = prompts[s];
    all.insert(all.end(), out[s].begin(), out[s].end());
    if (all.size() > context) all.erase(all.begin(), all.end() - static_cast<int64_t>(context));
    return all;
  };
  DecodeState state(model, static_cast<int64_t>(active.size()));
  for (int64_t step = 0; step < options.max_new_tokens && !active.empty(); ++step) {
    bool fits = options.cached && step > 0;
    for (int64_t r = 0; r < state.sequences() && fits; ++r) fits = state.length(r) < model.spec().context;
    std::vector<std::vector<int32_t>> next;
    if (!fits) state = DecodeState(model, static_cast<int64_t>(active.size()));
    for (const int32_t s : active) next.push_back(fits ? std::vector<int32_t>{out[s].back()} : window(s));
    const Tensor logits = state.advance(next);
    std::vector<int32_t> rows, still;
    for (size_t r = 0; r < active.size(); ++r) {
      const int32_t s = active[r];
      const RandomStream stream{options.seed, static_cast<uint64_t>(step), static_cast<uint32_t>(s)};
      const int64_t vocab = logits.width();
      const int32_t token =
          sample(logits.values<float>().subspan(r * vocab, vocab), options.sampler, stream.uniform(0));
      out[s].push_back(token);
      const bool go_on = !on_token || on_token(s, token);
      const bool ended = std::find(options.eos.begin(), options.eos.end(), token) != options.eos.end();
      if (!go_on || ended) continue;
      rows.push_back(static_cast<int32_t>(r));
      still.push_back(s);
    }
    if (still.size() < active.size()) state.reorder(rows);
    active = std::move(still);
  }
  return out;
}

}  // namespace qkv
