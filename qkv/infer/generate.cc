#include "qkv/infer/generate.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace qkv {
namespace {

using Tokens = std::vector<int32_t>;

// The last `context` tokens of prompt and continuation.
Tokens window(const Tokens& prompt, const Tokens& continuation, size_t context) {
  Tokens all = prompt;
  all.insert(all.end(), continuation.begin(), continuation.end());
  if (all.size() > context) all.erase(all.begin(), all.end() - static_cast<int64_t>(context));
  return all;
}

// Computes each distinct prompt once, then gives every prompt its own state. Returns the logits [distinct,
// V], and in `rows` the row of each prompt.
Tensor prefill(EnsembleState& state, const Ensemble& model, const std::vector<Tokens>& prompts,
               const Sources& sources, Tokens& rows) {
  std::map<std::pair<Tokens, Tokens>, int32_t> places;
  std::vector<Tokens> distinct;
  Sources distinct_sources;
  distinct_sources.features = sources.features;
  for (size_t s = 0; s < prompts.size(); ++s) {
    const Tokens source = sources.ids.empty() ? Tokens{} : sources.ids[s];
    // Sources of features, or with global tokens, count as different.
    const bool apart = sources.features.defined() || !sources.globals.empty();
    const auto number = static_cast<int32_t>(s);
    const auto [it, is_new] =
        places.try_emplace({apart ? Tokens{number} : source, window(prompts[s], {}, model.spec().longest())},
                           static_cast<int32_t>(distinct.size()));
    if (is_new) {
      distinct_sources.ids.push_back(source);
      if (!sources.globals.empty()) distinct_sources.globals.push_back(sources.globals[s]);
      distinct.push_back(it->first.second);
    }
    rows.push_back(it->second);
  }
  state = sources.ids.empty() ? EnsembleState(model, static_cast<int64_t>(distinct.size()))
                              : EnsembleState(model, distinct_sources);
  Tensor logits = state.advance(distinct);
  if (distinct.size() < prompts.size()) state.reorder(rows);
  return logits;
}

// `begun`: tokens of the prompt that count as the output's.
int32_t next_token(std::span<const float> logits, const Tokens& prompt, const Tokens& written, int64_t begun,
                   const GenerateOptions& o, double uniform) {
  const int64_t length = std::ssize(written);
  if (const auto id = o.rules.forced(std::ssize(prompt), length, o.max_new_tokens - begun)) return *id;
  Tokens refused = o.rules.refused(std::ssize(prompt), length, o.eos, begun);
  const Tokens completing = o.rules.completing(prompt, written, o.eos);
  refused.insert(refused.end(), completing.begin(), completing.end());
  if (refused.empty()) return sample(logits, {prompt, written}, o.sampler, uniform);
  SamplerOptions sampler = o.sampler;
  sampler.excluded.insert(sampler.excluded.end(), refused.begin(), refused.end());
  return sample(logits, {prompt, written}, sampler, uniform);
}

}  // namespace

std::vector<Tokens> generate(const Ensemble& model, const std::vector<Tokens>& prompts,
                             const GenerateOptions& options, const TokenCallback& on_token,
                             const Sources& sources) {
  check_options(options.sampler);
  check(options.begun.empty() || options.begun.size() == prompts.size(),
        "generate: {} prompts, got {} numbers of begun tokens", prompts.size(), options.begun.size());
  const bool conditioned = model.spec().architecture == Architecture::encoder_decoder;
  check(sources.ids.size() == (conditioned ? prompts.size() : 0),
        "generate: {} prompts need {} sources, got {}", prompts.size(), conditioned ? prompts.size() : 0,
        sources.ids.size());
  for (size_t s = 0; s < prompts.size(); ++s)
    check(!prompts[s].empty(), "generate: prompt {} is empty: expected at least one token", s);
  // If a prompt or a source is read as a whole, an output ends at the context instead of moving the window.
  const bool prefix = model.spec().order == Order::prefix, bounded = conditioned || prefix;
  check(options.cached || !prefix, "generate: a prefix LM remembers its prompt");
  for (size_t s = 0; prefix && s < prompts.size(); ++s)
    check(std::ssize(prompts[s]) < model.spec().longest(),
          "generate: prompt {} has {} tokens, which leave no room in a context of {}", s, prompts[s].size(),
          model.spec().longest());
  std::vector<Tokens> out(prompts.size());
  if (prompts.empty() || options.max_new_tokens <= 0) return out;

  Tokens rows;                    // row of the logits of each active sequence
  Tokens active(prompts.size());  // its prompt
  std::iota(active.begin(), active.end(), 0);
  EnsembleState state(model, 0);
  Tensor logits = prefill(state, model, prompts, sources, rows);
  for (int64_t step = 0;; ++step) {
    Tokens kept;
    for (size_t r = 0; r < active.size(); ++r) {
      const int32_t s = active[r];
      const auto row = logits.row<float>(rows[r]);
      const RandomStream stream{options.seed + s, static_cast<uint64_t>(step), 0};
      const int64_t begun = options.begun.empty() ? 0 : options.begun[static_cast<size_t>(s)];
      const int32_t token = next_token(row, prompts[s], out[s], begun, options, stream.uniform(0));
      out[s].push_back(token);
      const bool go_on = !on_token || on_token(s, token, row);
      const bool ended =
          std::find(options.eos.begin(), options.eos.end(), token) != options.eos.end() ||
          (bounded && static_cast<int64_t>(prompts[s].size() + out[s].size()) >= model.spec().longest()) ||
          options.rules.full(std::ssize(prompts[s]), std::ssize(out[s])) ||
          begun + step + 1 >= options.max_new_tokens;
      if (go_on && !ended) kept.push_back(static_cast<int32_t>(r));
    }
    if (kept.empty() || step + 1 == options.max_new_tokens) return out;
    if (kept.size() < active.size()) state.reorder(kept);

    std::vector<Tokens> next;
    for (size_t r = 0; r < kept.size(); ++r) {
      const int32_t s = active[r] = active[kept[r]];
      const bool fits = options.cached && state.length(r) < model.spec().longest();
      if (!fits) state.truncate(r, 0);  // beyond the context all positions shift, so recompute
      next.push_back(fits ? Tokens{out[s].back()} : window(prompts[s], out[s], model.spec().longest()));
    }
    active.resize(kept.size());
    rows.resize(kept.size());
    std::iota(rows.begin(), rows.end(), 0);
    logits = state.advance(next);
  }
}

}  // namespace qkv
