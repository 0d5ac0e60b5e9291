#include "qkv/infer/beam_step.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "qkv/infer/sampler.h"
#include "qkv/kernels/kernels.h"

namespace qkv {
namespace {

using Tokens = std::vector<int32_t>;

bool better(const Continuation& a, const Continuation& b) {
  if (a.log_probability != b.log_probability) return a.log_probability > b.log_probability;
  return std::pair(a.beam, a.token) < std::pair(b.beam, b.token);
}

// log(e^a + e^b)
double log_add(double a, double b) {
  return std::max(a, b) + std::log1p(std::exp(-std::abs(a - b)));
}

// The next token of the preferred beginning; -1: none.
int32_t wished_token(const Search& s, const Tokens& written, const BeamOptions& o) {
  if (o.prefix_bias <= 0 || written.size() >= s.wished.size()) return -1;
  const bool follows = std::equal(written.begin(), written.end(), s.wished.begin());
  return follows ? s.wished[written.size()] : -1;
}

// Sorted ids that may not come next.
Tokens refused_tokens(const Search& s, const Tokens& written, const BeamOptions& o) {
  Tokens out = o.rules.refused(std::ssize(s.prompt_tokens), std::ssize(written), o.eos, s.begun);
  const Tokens completing = o.rules.completing(s.prompt_tokens, written, o.eos);
  out.insert(out.end(), completing.begin(), completing.end());
  out.insert(out.end(), o.excluded.begin(), o.excluded.end());
  std::sort(out.begin(), out.end());
  return out;
}

// The logits with the repetition penalty; empty if there is none.
std::vector<float> with_penalty(const Search& s, const Tokens& written, std::span<const float> logits,
                                const BeamOptions& o) {
  if (o.repetition_penalty == 1) return {};
  std::vector<float> out(logits.begin(), logits.end());
  penalise_repetition(out, {s.prompt_tokens, written}, o.repetition_penalty);
  return out;
}

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

int64_t BeamOptions::kept() const {
  return std::max<int64_t>(1, std::llround(static_cast<double>(beams) * patience));
}

void check_options(const BeamOptions& o) {
  check(o.beams >= 1 && o.beams <= 1024, "beam search: beams must be between 1 and 1024, got {}", o.beams);
  check(std::isfinite(o.length_penalty), "beam search: length_penalty must be a number, got {}",
        o.length_penalty);
  check(o.patience > 0 && o.patience <= 1024,
        "beam search: patience must be above 0 and at most 1024, got {}", o.patience);
  check(o.coverage_penalty >= 0 && std::isfinite(o.coverage_penalty),
        "beam search: coverage_penalty must be a number of at least 0, got {}", o.coverage_penalty);
  check(o.prefix_bias >= 0 && o.prefix_bias < 1,
        "beam search: prefix_bias must be at least 0 and below 1, got {}", o.prefix_bias);
}

Search begin_search(const ModelSpec& spec, Tokens prompt, int64_t begun, Tokens wished,
                    const BeamOptions& o) {
  const int64_t length = std::ssize(prompt);
  const int64_t by_rules = o.rules.max_length > 0 ? o.rules.max_length - length : o.max_new_tokens;
  const int64_t most = std::min({o.max_new_tokens - begun, spec.longest() - length, by_rules});
  return {std::move(prompt), begun, std::max<int64_t>(1, most), std::move(wished), {Beam{}}, {}};
}

std::vector<Continuation> best_candidates(const Search& s, const Tensor& logits,
                                          std::span<const int32_t> rows, const BeamOptions& o) {
  const int64_t written = std::ssize(s.beams[0].tokens);
  if (const auto id = o.rules.forced(std::ssize(s.prompt_tokens), written, s.most)) {
    std::vector<Continuation> forced;
    for (const Beam& b : s.beams)
      forced.push_back({b.log_probability, static_cast<int32_t>(forced.size()), *id});
    return forced;
  }
  const int64_t vocab = logits.width(), wanted = 2 * o.beams;
  std::vector<Continuation> best;  // a heap with the worst in front
  for (size_t b = 0; b < s.beams.size(); ++b) {
    const Tokens& tokens = s.beams[b].tokens;
    const std::span<const float> given = logits.row<float>(rows[b]);
    const std::vector<float> penalised = with_penalty(s, tokens, given, o);
    const std::span<const float> z = penalised.empty() ? given : std::span<const float>(penalised);
    const double log_z = kernels().log_sum_exp(vocab, z.data()), so_far = s.beams[b].log_probability;
    // Lower logits cannot be among the best; this skips most tokens quickly.
    float least = -std::numeric_limits<float>::infinity();
    const auto raise = [&] {
      if (std::ssize(best) < wanted) return;
      const auto bound = static_cast<float>(best.front().log_probability - so_far + log_z);
      least = std::nextafter(bound, -std::numeric_limits<float>::infinity());
    };
    raise();
    const Tokens refused = refused_tokens(s, tokens, o);
    const int32_t wished = wished_token(s, tokens, o);
    for (int64_t v = 0; v < vocab; ++v) {
      const auto token = static_cast<int32_t>(v);
      if (z[v] < least && token != wished) continue;
      double log_p = z[v] - log_z;
      if (wished >= 0) log_p += std::log1p(-o.prefix_bias);
      if (token == wished) log_p = log_add(log_p, std::log(o.prefix_bias));
      const Continuation c{so_far + log_p, static_cast<int32_t>(b), token};
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

Tokens grow(Search& s, const std::vector<Continuation>& candidates, const AttentionRows* looks,
            std::span<const int32_t> rows, const BeamOptions& o) {
  const int64_t step = std::ssize(s.beams[0].tokens) + 1;
  std::vector<Beam> beams;
  Tokens origins;
  for (size_t rank = 0; rank < candidates.size() && std::ssize(beams) < o.beams; ++rank) {
    const Continuation& c = candidates[rank];
    Beam grown = s.beams[c.beam];
    if (looks != nullptr) {
      // Those of the prompt come first. A beam that is read again has all its rows but the last.
      const AttentionRows::Rows& looked = looks->of(rows[c.beam]);
      const auto begin = grown.tokens.empty() ? looked.begin() : looked.end() - 1;
      grown.attention.insert(grown.attention.end(), begin, looked.end());
    }
    grown.tokens.push_back(c.token);
    grown.log_probability = c.log_probability;
    if (std::find(o.eos.begin(), o.eos.end(), c.token) == o.eos.end()) {
      beams.push_back(std::move(grown));
      origins.push_back(c.beam);
    } else if (static_cast<int64_t>(rank) < o.beams) {  // an end counts only if it ranks among the beams
      keep(s, std::move(grown), o);
    }
  }
  s.beams = std::move(beams);
  const bool full = step >= s.most, done = is_done(s, candidates.front().log_probability, step, o);
  if (!s.beams.empty() && !done && !full) return origins;
  if (!done)
    for (Beam& b : s.beams) keep(s, std::move(b), o);
  s.beams.clear();
  return {};
}

double score_of(double log_probability, size_t length, const std::vector<std::vector<float>>& attention,
                const BeamOptions& o) {
  constexpr double kLeast = 1e-10;  // a token without attention should not outweigh all others
  double score = log_probability / std::pow(static_cast<double>(length), o.length_penalty);
  if (o.coverage_penalty == 0 || attention.empty()) return score;
  std::vector<double> got(attention.front().size());
  for (const std::vector<float>& row : attention)
    for (size_t i = 0; i < got.size(); ++i) got[i] += row[i];
  for (const double g : got) score += o.coverage_penalty * std::log(std::clamp(g, kLeast, 1.0));
  return score;
}

}  // namespace qkv
