#include "qkv/infer/beam.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "qkv/base/parallel.h"
#include "qkv/kernels/kernels.h"

namespace qkv {
namespace {

using Tokens = std::vector<int32_t>;

// An output that is still growing.
struct Beam {
  Tokens tokens;
  double log_probability = 0;
};

// A beam and the token after it.
struct Candidate {
  double log_probability;
  int32_t beam, token;
};

// All that is known of one prompt.
struct Search {
  size_t prompt;
  std::vector<Beam> beams;
  std::vector<Hypothesis> done;  // best first
};

void keep(Search& s, Tokens tokens, double log_probability, const BeamOptions& o) {
  const double score = log_probability / std::pow(static_cast<double>(tokens.size()), o.length_penalty);
  const auto at =
      std::find_if(s.done.begin(), s.done.end(), [&](const Hypothesis& h) { return h.score < score; });
  s.done.insert(at, {std::move(tokens), log_probability, score});
  if (std::ssize(s.done) > o.beams) s.done.pop_back();
}

// The best 2 x beams continuations of one prompt's beams, best first; among equals the lower beam, then id.
std::vector<Candidate> best_candidates(const Search& s, const Tokens& prompt, const Tensor& logits,
                                       int64_t row, const BeamOptions& o) {
  const int64_t written = std::ssize(s.beams[0].tokens);
  if (const auto id = o.rules.forced(std::ssize(prompt), written, o.max_new_tokens)) {
    std::vector<Candidate> forced;
    for (const Beam& b : s.beams)
      forced.push_back({b.log_probability, static_cast<int32_t>(forced.size()), *id});
    return forced;
  }
  const Tokens ruled_out = o.rules.refused(std::ssize(prompt), written, o.eos);
  const int64_t vocab = logits.width(), wanted = 2 * o.beams;
  std::vector<Candidate> best;  // a heap, the worst in front
  const auto better = [](const Candidate& a, const Candidate& b) {
    if (a.log_probability != b.log_probability) return a.log_probability > b.log_probability;
    return std::pair(a.beam, a.token) < std::pair(b.beam, b.token);
  };
  for (size_t b = 0; b < s.beams.size(); ++b) {
    const auto z = logits.row<float>(row + static_cast<int64_t>(b)).first(vocab);
    const double log_z = kernels().log_sum_exp(vocab, z.data()), so_far = s.beams[b].log_probability;
    // Logits below cannot be among the best: most are not looked at any closer.
    float least = -std::numeric_limits<float>::infinity();
    const auto raise = [&] {
      if (std::ssize(best) < wanted) return;
      const auto bound = static_cast<float>(best.front().log_probability - so_far + log_z);
      least = std::nextafter(bound, -std::numeric_limits<float>::infinity());
    };
    raise();
    Tokens refused = o.rules.repeating(prompt, s.beams[b].tokens);
    refused.insert(refused.end(), o.excluded.begin(), o.excluded.end());
    refused.insert(refused.end(), ruled_out.begin(), ruled_out.end());
    std::sort(refused.begin(), refused.end());
    Tokens written_before;
    if (o.repetition_penalty != 1) {
      written_before = prompt;
      written_before.insert(written_before.end(), s.beams[b].tokens.begin(), s.beams[b].tokens.end());
      std::sort(written_before.begin(), written_before.end());
    }
    const bool raises = o.repetition_penalty < 1;  // then what is below may become one of the best
    for (int64_t v = 0; v < vocab; ++v) {
      if (z[v] < least && !raises) continue;
      const auto token = static_cast<int32_t>(v);
      double log_p = z[v] - log_z;
      if (std::binary_search(written_before.begin(), written_before.end(), token))
        log_p *= o.repetition_penalty;
      const Candidate c{so_far + log_p, static_cast<int32_t>(b), token};
      if (std::ssize(best) == wanted && !better(c, best.front())) continue;
      if (std::binary_search(refused.begin(), refused.end(), c.token)) continue;
      best.push_back(c);
      std::push_heap(best.begin(), best.end(), better);
      if (std::ssize(best) > wanted) {
        std::pop_heap(best.begin(), best.end(), better);
        best.pop_back();
      }
      raise();
    }
  }
  check(!best.empty(), "beam search: every continuation is excluded");
  std::sort_heap(best.begin(), best.end(), better);
  return best;
}

// `best`: of all continuations of `length` tokens; an output may have `most`.
bool is_done(const Search& s, double best, int64_t length, int64_t most, const BeamOptions& o) {
  if (std::ssize(s.done) < o.beams) return false;
  if (o.stop == BeamOptions::Stop::early) return true;
  if (o.stop == BeamOptions::Stop::certain && o.length_penalty > 0) length = most;
  return s.done.back().score >= best / std::pow(static_cast<double>(length), o.length_penalty);
}

// New tokens that an output behind a prompt of so many may have.
int64_t most_new(const Ensemble& model, int64_t prompt, const BeamOptions& o) {
  const int64_t length = o.rules.max_length;
  return std::max<int64_t>(1, std::min({o.max_new_tokens, model.spec().longest() - prompt,
                                        length > 0 ? length - prompt : o.max_new_tokens}));
}

}  // namespace

std::vector<std::vector<Hypothesis>> beam_search(const Ensemble& model, const std::vector<Tokens>& prompts,
                                                 const BeamOptions& o, const Sources& sources) {
  check(o.beams >= 1 && o.beams <= 1024, "beam search: beams must be between 1 and 1024, got {}", o.beams);
  check(std::isfinite(o.length_penalty), "beam search: length_penalty must be a number, got {}",
        o.length_penalty);
  const bool conditioned = model.spec().architecture == Architecture::encoder_decoder;
  check(sources.ids.size() == (conditioned ? prompts.size() : 0),
        "beam search: {} prompts need {} sources, got {}", prompts.size(), conditioned ? prompts.size() : 0,
        sources.ids.size());
  std::vector<std::vector<Hypothesis>> out(prompts.size());
  if (prompts.empty() || o.max_new_tokens <= 0) return out;
  EnsembleState state =
      conditioned ? EnsembleState(model, sources) : EnsembleState(model, std::ssize(prompts));
  std::vector<Search> active;
  for (size_t p = 0; p < prompts.size(); ++p) active.push_back({p, {Beam{}}, {}});
  Tensor logits = state.advance(prompts, o.prefixes);
  for (int64_t step = 1;; ++step) {
    // Which row of `logits` each prompt's beams begin at.
    std::vector<int64_t> first_row(active.size());
    for (size_t i = 1; i < active.size(); ++i)
      first_row[i] = first_row[i - 1] + std::ssize(active[i - 1].beams);
    std::vector<std::vector<Candidate>> candidates(active.size());
    parallel_for(std::ssize(active), 1, [&](int64_t i, int64_t end) {
      for (; i < end; ++i)
        candidates[i] = best_candidates(active[i], prompts[active[i].prompt], logits, first_row[i], o);
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
        Tokens grown = s.beams[c.beam].tokens;
        grown.push_back(c.token);
        if (std::find(o.eos.begin(), o.eos.end(), c.token) == o.eos.end()) {
          beams.push_back({std::move(grown), c.log_probability});
          origins.push_back(c.beam);
        } else if (static_cast<int64_t>(rank) < o.beams) {  // an end that would not have been a beam is none
          keep(s, std::move(grown), c.log_probability, o);
        }
      }
      s.beams = std::move(beams);
      const int64_t most = most_new(model, std::ssize(prompts[s.prompt]), o);
      const bool full = step >= most, done = is_done(s, candidates[i].front().log_probability, step, most, o);
      if (s.beams.empty() || done || full) {
        if (!done)
          for (Beam& b : s.beams) keep(s, std::move(b.tokens), b.log_probability, o);
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
    logits = state.advance(tokens);
  }
}

}  // namespace qkv
