#include "qkv/infer/beam.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "qkv/base/parallel.h"
#include "qkv/infer/alternatives.h"
#include "qkv/infer/attention_rows.h"
#include "qkv/infer/beam_step.h"

namespace qkv {
namespace {

using Tokens = std::vector<int32_t>;

void keep(Search& s, Beam output, const BeamOptions& o) {
  const double score = score_of(output.log_probability, output.tokens.size(), output.attention, o);
  const auto at =
      std::find_if(s.done.begin(), s.done.end(), [&](const Hypothesis& h) { return h.score < score; });
  s.done.insert(at, {std::move(output.tokens), output.log_probability, score, std::move(output.attention)});
  if (std::ssize(s.done) > o.kept()) s.done.pop_back();
}

// `best`: log-probability of the best continuation, which has `length` tokens.
bool is_done(const Search& s, double best, int64_t length, const BeamOptions& o) {
  if (std::ssize(s.done) < o.kept()) return false;
  if (o.stop == BeamOptions::Stop::early) return true;
  if (o.stop == BeamOptions::Stop::certain && o.length_penalty > 0) length = s.most;
  return s.done.back().score >= best / std::pow(static_cast<double>(length), o.length_penalty);
}

}  // namespace

std::vector<std::vector<Hypothesis>> beam_search(const Ensemble& model, const std::vector<Tokens>& prompts,
                                                 const BeamOptions& o, const Sources& sources) {
  check_options(o, prompts.size());
  const bool conditioned = model.spec().architecture == Architecture::encoder_decoder;
  check(sources.ids.size() == (conditioned ? prompts.size() : 0),
        "beam search: {} prompts need {} sources, got {}", prompts.size(), conditioned ? prompts.size() : 0,
        sources.ids.size());
  std::vector<std::vector<Hypothesis>> out(prompts.size());
  if (prompts.empty() || o.max_new_tokens <= 0) return out;
  if (o.alternatives > 0) return alternatives(model, prompts, o, sources);
  std::optional<AttentionRows> rows_of_attention;
  if (o.attention || o.coverage_penalty > 0) rows_of_attention.emplace(model.spec());
  AttentionRows* const looks = rows_of_attention ? &*rows_of_attention : nullptr;
  EnsembleState state =
      conditioned ? EnsembleState(model, sources) : EnsembleState(model, std::ssize(prompts));
  std::vector<Search> active = begin_searches(model, prompts, o);
  Tensor logits = state.advance(prompts, o.prefixes, looks);
  for (int64_t step = 1;; ++step) {
    // The first row of `logits` of each prompt's beams.
    std::vector<int64_t> first_row(active.size());
    for (size_t i = 1; i < active.size(); ++i)
      first_row[i] = first_row[i - 1] + std::ssize(active[i - 1].beams);
    std::vector<std::vector<Candidate>> candidates(active.size());
    parallel_for(std::ssize(active), 1, [&](int64_t i, int64_t end) {
      for (; i < end; ++i) candidates[i] = best_candidates(active[i], logits, first_row[i], o);
    });
    std::vector<Search> next;
    Tokens rows;
    std::vector<Tokens> tokens;
    for (size_t i = 0; i < active.size(); ++i) {
      Search& s = active[i];
      std::vector<Beam> beams;
      std::vector<int32_t> origins;
      for (size_t rank = 0; rank < candidates[i].size() && std::ssize(beams) < o.beams; ++rank) {
        const Candidate& c = candidates[i][rank];
        Beam grown = s.beams[c.beam];
        grown.tokens.push_back(c.token);
        grown.log_probability = c.log_probability;
        if (looks != nullptr) {
          const AttentionRows::Rows& looked = looks->of(first_row[i] + c.beam);
          grown.attention.insert(grown.attention.end(), looked.begin(), looked.end());
        }
        if (std::find(o.eos.begin(), o.eos.end(), c.token) == o.eos.end()) {
          beams.push_back(std::move(grown));
          origins.push_back(c.beam);
        } else if (static_cast<int64_t>(rank) < o.beams) {  // an end counts only if it ranks among the beams
          keep(s, std::move(grown), o);
        }
      }
      s.beams = std::move(beams);
      const bool full = step >= s.most, done = is_done(s, candidates[i].front().log_probability, step, o);
      if (s.beams.empty() || done || full) {
        if (!done)
          for (Beam& b : s.beams) keep(s, std::move(b), o);
        out[s.prompt] = std::move(s.done);
        continue;
      }
      for (size_t b = 0; b < s.beams.size(); ++b) {
        rows.push_back(static_cast<int32_t>(first_row[i]) + origins[b]);
        tokens.push_back({s.beams[b].tokens.back()});
      }
      next.push_back(std::move(s));
    }
    if (next.empty()) return out;
    active = std::move(next);
    state.reorder(rows);
    logits = state.advance(tokens, {}, looks);
  }
}

}  // namespace qkv
