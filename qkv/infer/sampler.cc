#include "qkv/infer/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "qkv/base/error.h"

namespace qkv {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Candidate {
  int32_t id;
  double rank;  // smaller is better
  double p;     // not normalised
};
using Candidates = std::vector<Candidate>;

bool better(const Candidate& a, const Candidate& b) {
  return a.rank < b.rank || (a.rank == b.rank && a.id < b.id);
}

// Moves the `count` best of [first, last) to its front, in any order.
void best_first(Candidates::iterator first, int64_t count, Candidates::iterator last) {
  if (count < last - first) std::nth_element(first, first + count, last, better);
}

double total(const Candidates& candidates) {
  double sum = 0;
  for (const Candidate& c : candidates) sum += c.p;
  return sum;
}

struct Count {
  int32_t id;
  int64_t count;
};

// Counts each id.
std::vector<Count> counts(std::vector<int32_t> ids) {
  std::sort(ids.begin(), ids.end());
  std::vector<Count> out;
  for (const int32_t id : ids) {
    if (out.empty() || out.back().id != id) out.push_back({id, 0});
    ++out.back().count;
  }
  return out;
}

float& logit_of(std::span<float> logits, int32_t id) {
  check(id >= 0 && id < std::ssize(logits), "sample: no token {}: the vocabulary has {}", id, logits.size());
  return logits[static_cast<size_t>(id)];
}

// Applies the options that do not depend on the temperature: excluded ids and the three penalties.
void adjust(std::vector<float>& logits, const History& history, const SamplerOptions& o) {
  for (const int32_t id : o.excluded) logit_of(logits, id) = -kInfinity;
  if (o.repetition_penalty != 1) penalise_repetition(logits, history, o.repetition_penalty);
  if (o.frequency_penalty == 0 && o.presence_penalty == 0) return;
  for (const auto& [id, count] : counts({history.continuation.begin(), history.continuation.end()}))
    logit_of(logits, id) -=
        static_cast<float>(static_cast<double>(count) * o.frequency_penalty + o.presence_penalty);
}

bool adjusts(const SamplerOptions& o) {
  return !o.excluded.empty() || o.repetition_penalty != 1 || o.frequency_penalty != 0 ||
         o.presence_penalty != 0;
}

// Collects the possible tokens, ranked by likelihood.
void collect(std::span<const float> logits, Candidates& out) {
  out.clear();
  for (size_t i = 0; i < logits.size(); ++i)
    if (logits[i] > -kInfinity) out.push_back({static_cast<int32_t>(i), -static_cast<double>(logits[i]), 0});
}

void keep_top_k(Candidates& candidates, int64_t k) {
  if (k == 0 || k >= static_cast<int64_t>(candidates.size())) return;
  best_first(candidates.begin(), k, candidates.end());
  candidates.resize(k);
}

// p^(1/tau) in the log domain, 1 for the most likely token. An infinite temperature makes all tokens
// equally likely.
void temper(Candidates& candidates, double temperature, double top_logit) {
  for (Candidate& c : candidates) c.p = std::exp((-c.rank - top_logit) / temperature);
  std::erase_if(candidates, [](const Candidate& c) { return c.p == 0; });
}

// Keeps the fewest of the best tokens whose probability reaches `mass` of the total. Usually few suffice,
// so that sorting proceeds in stretches, each four times as long as the last.
void keep_mass(Candidates& candidates, double mass) {
  if (mass >= 1) return;
  constexpr int64_t kFirstStretch = 64;
  const double enough = mass * total(candidates);
  const auto size = static_cast<int64_t>(candidates.size());
  double sum = 0;
  int64_t kept = 0;
  for (int64_t sorted = 0; kept < size && sum < enough; sum += candidates[kept++].p) {
    if (kept < sorted) continue;
    const int64_t stretch = std::min(std::max(kFirstStretch, 3 * sorted), size - sorted);
    const auto first = candidates.begin() + sorted;
    best_first(first, stretch, candidates.end());
    std::sort(first, first + stretch, better);
    sorted += stretch;
  }
  candidates.resize(std::max<int64_t>(kept, 1));
}

// Ranks by |-log P - H|, H the entropy. With p not normalised that is |E[log p] - log p|.
void rank_by_typicality(Candidates& candidates) {
  double expected = 0;
  for (const Candidate& c : candidates) expected += c.p * std::log(c.p);
  expected /= total(candidates);
  for (Candidate& c : candidates) c.rank = std::abs(expected - std::log(c.p));
}

int32_t draw(Candidates& candidates, double uniform) {
  const auto by_id = [](const Candidate& a, const Candidate& b) { return a.id < b.id; };
  if (!std::is_sorted(candidates.begin(), candidates.end(), by_id))
    std::sort(candidates.begin(), candidates.end(), by_id);
  const double target = uniform * total(candidates);
  double cumulative = 0;
  for (const Candidate& c : candidates)
    if (target < (cumulative += c.p)) return c.id;
  return candidates.back().id;
}

}  // namespace

void check_options(const SamplerOptions& o) {
  check(o.temperature >= 0, "temperature must be 0 or more, got {}", o.temperature);
  check(o.top_k >= 0, "top-k must be 0 (all) or more, got {}", o.top_k);
  check(o.top_p > 0 && o.top_p <= 1, "top-p must be in (0, 1], got {}", o.top_p);
  check(o.min_p >= 0 && o.min_p <= 1, "min-p must be in [0, 1], got {}", o.min_p);
  check(o.typical_p > 0 && o.typical_p <= 1, "typical-p must be in (0, 1], got {}", o.typical_p);
  check(o.repetition_penalty >= 0.01 && o.repetition_penalty <= 100,
        "repetition-penalty must be in [0.01, 100], got {}", o.repetition_penalty);
  check(std::abs(o.frequency_penalty) <= 100, "frequency-penalty must be in [-100, 100], got {}",
        o.frequency_penalty);
  check(std::abs(o.presence_penalty) <= 100, "presence-penalty must be in [-100, 100], got {}",
        o.presence_penalty);
}

void penalise_repetition(std::span<float> logits, const History& history, double penalty) {
  std::vector<int32_t> all(history.prompt.begin(), history.prompt.end());
  all.insert(all.end(), history.continuation.begin(), history.continuation.end());
  const auto factor = static_cast<float>(penalty);
  for (const auto& [id, count] : counts(std::move(all))) {
    float& z = logit_of(logits, id);
    z = z > 0 ? z / factor : z * factor;
  }
}

int32_t argmax(std::span<const float> logits) {
  // Each of several maxima waits for itself alone.
  constexpr size_t kMaxima = 16;
  float most[kMaxima];
  std::ranges::fill(most, -kInfinity);
  size_t i = 0;
  for (; i + kMaxima <= logits.size(); i += kMaxima)
    for (size_t k = 0; k < kMaxima; ++k) most[k] = logits[i + k] > most[k] ? logits[i + k] : most[k];
  float top = *std::ranges::max_element(most);
  for (; i < logits.size(); ++i) top = std::max(top, logits[i]);
  const auto at = std::ranges::find(logits, top);
  return at == logits.end() ? 0 : static_cast<int32_t>(at - logits.begin());  // else all are NaN
}

int32_t sample(std::span<const float> logits, const History& history, const SamplerOptions& o,
               double uniform) {
  int broken = 0;  // counted, since leaving the loop amid it would take longer
  for (const float z : logits) broken += z < kInfinity ? 0 : 1;  // also NaN
  check(broken == 0, "the model's logits are not finite: its weights are broken");
  thread_local std::vector<float> adjusted;  // working memory, here and below, reused between calls
  if (adjusts(o)) {
    adjusted.assign(logits.begin(), logits.end());
    adjust(adjusted, history, o);
    logits = adjusted;
  }
  const int32_t top = argmax(logits);
  check(logits[top] > -kInfinity, "sample: no token is possible");
  if (o.temperature == 0) return top;

  thread_local Candidates candidates;
  collect(logits, candidates);
  keep_top_k(candidates, o.top_k);
  temper(candidates, o.temperature, logits[top]);
  keep_mass(candidates, o.top_p);
  std::erase_if(candidates, [&](const Candidate& c) { return c.p < o.min_p; });  // the best token has p = 1
  if (o.typical_p < 1) rank_by_typicality(candidates);
  keep_mass(candidates, o.typical_p);
  return draw(candidates, uniform);
}

}  // namespace qkv
