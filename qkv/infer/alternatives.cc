#include "qkv/infer/alternatives.h"

#include <cmath>
#include <optional>

#include "qkv/infer/attention_rows.h"
#include "qkv/infer/beam_step.h"

namespace qkv {
namespace {

using Tokens = std::vector<int32_t>;

// The possible first tokens after each prompt.
struct Firsts {
  std::vector<Search> searches;
  std::vector<std::vector<Continuation>> tokens;           // for each prompt, most likely first
  std::vector<std::vector<std::vector<float>>> attention;  // for each prompt, if requested
};

Firsts first_tokens(const Ensemble& model, const std::vector<Tokens>& prompts, const BeamOptions& given,
                    const Sources& sources) {
  BeamOptions o = given;
  o.beams = o.alternatives;
  o.excluded.insert(o.excluded.end(), o.eos.begin(), o.eos.end());
  o.rules.end.reset();
  std::optional<AttentionRows> looks;
  if (o.attention || o.coverage_penalty > 0) looks.emplace(model.spec());
  EnsembleState state =
      sources.ids.empty() ? EnsembleState(model, std::ssize(prompts)) : EnsembleState(model, sources);
  const Tensor logits = state.advance(prompts, {.prefixes = o.prefixes, .probe = looks ? &*looks : nullptr});
  Firsts out;
  for (size_t p = 0; p < prompts.size(); ++p)
    out.searches.push_back(begin_search(model.spec(), prompts[p], o.begun.empty() ? 0 : o.begun[p],
                                        o.wished.empty() ? Tokens() : o.wished[p], o));
  for (int64_t p = 0; p < std::ssize(prompts); ++p) {
    std::vector<Continuation> best = best_candidates(out.searches[static_cast<size_t>(p)], logits,
                                                     std::vector{static_cast<int32_t>(p)}, o);
    if (std::ssize(best) > o.alternatives) best.resize(static_cast<size_t>(o.alternatives));
    // The most likely one is always kept.
    while (best.size() > 1 && std::exp(best.back().log_probability) < o.least_alternative) best.pop_back();
    out.tokens.push_back(std::move(best));
    out.attention.push_back(looks ? looks->of(p) : AttentionRows::Rows());
  }
  return out;
}

}  // namespace

std::vector<std::vector<Hypothesis>> alternatives(const Ensemble& model, const std::vector<Tokens>& given,
                                                  const BeamOptions& options, const Sources& sources) {
  check(!sources.features.defined(), "alternatives: sources of features have none");
  // Alternatives come after the tokens that outputs must begin with.
  const Tokens& forced = options.rules.begin;
  std::vector<Tokens> prompts = given;
  BeamOptions o = options;
  o.rules.begin.clear();
  o.begun.resize(prompts.size());
  for (size_t p = 0; p < prompts.size(); ++p) {
    if (model.spec().order == Order::prefix && options.prefixes.empty())
      o.prefixes.push_back(static_cast<int32_t>(prompts[p].size()));
    prompts[p].insert(prompts[p].end(), forced.begin(), forced.end());
    o.begun[p] += static_cast<int32_t>(forced.size());
  }
  const Firsts firsts = first_tokens(model, prompts, o, sources);
  BeamOptions further = o;
  further.alternatives = 0;
  further.rules.not_first.clear();
  further.prefixes.clear();
  further.begun.clear();
  further.wished.clear();
  // The outputs that may be longer than their first token.
  std::vector<Tokens> begun;
  Sources their_sources;
  for (size_t p = 0; p < prompts.size(); ++p)
    for (const Continuation& first : firsts.tokens[p]) {
      const Search& s = firsts.searches[p];
      if (s.most == 1) continue;
      begun.push_back(prompts[p]);
      begun.back().push_back(first.token);
      further.begun.push_back(o.begun[p] + 1);
      if (!o.prefixes.empty()) further.prefixes.push_back(o.prefixes[p]);
      if (!sources.ids.empty()) their_sources.ids.push_back(sources.ids[p]);
      if (!sources.globals.empty()) their_sources.globals.push_back(sources.globals[p]);
      const bool follows = !s.wished.empty() && s.wished.front() == first.token;
      further.wished.push_back(follows ? Tokens(s.wished.begin() + 1, s.wished.end()) : Tokens());
    }
  auto found = beam_search(model, begun, further, their_sources);
  std::vector<std::vector<Hypothesis>> out(prompts.size());
  size_t next = 0;
  for (size_t p = 0; p < prompts.size(); ++p)
    for (const Continuation& first : firsts.tokens[p]) {
      Hypothesis h;
      if (firsts.searches[p].most > 1)
        h = std::move(found[next++].front());
      else
        h.attention = firsts.attention[p];
      h.tokens.insert(h.tokens.begin(), first.token);
      h.tokens.insert(h.tokens.begin(), forced.begin(), forced.end());
      h.log_probability += first.log_probability;
      h.score = score_of(h.log_probability, h.tokens.size(), h.attention, options);
      out[p].push_back(std::move(h));
    }
  return out;
}

}  // namespace qkv
