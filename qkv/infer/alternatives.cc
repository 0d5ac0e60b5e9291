#include "qkv/infer/alternatives.h"

#include <cmath>

#include "qkv/infer/beam_step.h"

namespace qkv {
namespace {

using Tokens = std::vector<int32_t>;

// The first tokens of each prompt's alternatives.
std::vector<std::vector<Candidate>> first_tokens(const Ensemble& model, const std::vector<Tokens>& prompts,
                                                 const BeamOptions& given, const Sources& sources) {
  BeamOptions o = given;
  o.beams = o.alternatives;
  o.excluded.insert(o.excluded.end(), o.eos.begin(), o.eos.end());
  EnsembleState state =
      sources.ids.empty() ? EnsembleState(model, std::ssize(prompts)) : EnsembleState(model, sources);
  const Tensor logits = state.advance(prompts, o.prefixes);
  std::vector<std::vector<Candidate>> out;
  for (const Search& s : begin_searches(model, prompts, o)) {
    std::vector<Candidate> best = best_candidates(s, logits, std::ssize(out), o);
    if (std::ssize(best) > o.alternatives) best.resize(static_cast<size_t>(o.alternatives));
    std::erase_if(best,
                  [&](const Candidate& c) { return std::exp(c.log_probability) < o.least_alternative; });
    out.push_back(std::move(best));
  }
  return out;
}

}  // namespace

std::vector<std::vector<Hypothesis>> alternatives(const Ensemble& model, const std::vector<Tokens>& prompts,
                                                  const BeamOptions& options, const Sources& sources) {
  check(!sources.features.defined(), "alternatives: sources of features have none");
  const auto firsts = first_tokens(model, prompts, options, sources);
  BeamOptions o = options;
  o.alternatives = 0;
  o.prefixes.clear();
  o.begun.clear();
  o.wished.clear();
  std::vector<Tokens> begun;
  Sources their_sources;
  for (size_t p = 0; p < prompts.size(); ++p)
    for (const Candidate& first : firsts[p]) {
      begun.push_back(prompts[p]);
      begun.back().push_back(first.token);
      o.begun.push_back((options.begun.empty() ? 0 : options.begun[p]) + 1);
      if (!options.prefixes.empty()) o.prefixes.push_back(options.prefixes[p]);
      if (!sources.ids.empty()) their_sources.ids.push_back(sources.ids[p]);
    }
  // Where an output may have no more than the first token it has no search, but has an attention.
  auto found = beam_search(model, begun, o, their_sources);
  std::vector<std::vector<Hypothesis>> out(prompts.size());
  size_t next = 0;
  for (size_t p = 0; p < prompts.size(); ++p)
    for (const Candidate& first : firsts[p]) {
      Hypothesis h = std::move(found[next].front());
      if (o.begun[next] >= options.max_new_tokens) {
        h.tokens.clear();
        h.log_probability = 0;
        if (!h.attention.empty()) h.attention.pop_back();
      }
      ++next;
      h.tokens.insert(h.tokens.begin(), first.token);
      h.log_probability += first.log_probability;
      h.score = score_of(h.log_probability, h.tokens.size(), h.attention, options);
      out[p].push_back(std::move(h));
    }
  return out;
}

}  // namespace qkv
