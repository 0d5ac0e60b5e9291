#include "qkv/infer/beam.h"

#include "qkv/infer/alternatives.h"

namespace qkv {

std::vector<std::vector<Hypothesis>> beam_search(const Ensemble& model,
                                                 const std::vector<std::vector<int32_t>>& prompts,
                                                 const BeamOptions& o, const Sources& sources,
                                                 EngineOptions with) {
  const auto for_each_prompt = [&](const char* what, size_t got) {
    check(got == 0 || got == prompts.size(), "beam search: {} prompts, got {} of {}", prompts.size(), what,
          got);
  };
  for_each_prompt("prefixes", o.prefixes.size());
  for_each_prompt("begun tokens", o.begun.size());
  for_each_prompt("wished beginnings", o.wished.size());
  std::vector<std::vector<Hypothesis>> out(prompts.size());
  std::vector<Request> requests = requests_of(model.spec(), prompts, sources);
  if (prompts.empty() || o.max_new_tokens <= 0) return out;
  if (o.alternatives > 0) return alternatives(model, prompts, o, sources);
  with.sequences = std::max(with.sequences, o.beams);
  with.attention = o.attention || o.coverage_penalty > 0;
  Engine engine(model, with);
  BeamOptions search = o;
  search.prefixes.clear(), search.begun.clear(), search.wished.clear();
  for (size_t p = 0; p < prompts.size(); ++p) {
    Request& r = requests[p];
    r.search = search;
    if (!o.prefixes.empty()) r.prefix = o.prefixes[p];
    if (!o.begun.empty()) r.begun = o.begun[p];
    if (!o.wished.empty()) r.wished = o.wished[p];
    engine.add(std::move(r));
  }
  while (engine.step([&](const NewToken& t) {
    out[static_cast<size_t>(t.request)].assign(t.found.begin(), t.found.end());
    return true;
  })) {
  }
  return out;
}

}  // namespace qkv
