#include "qkv/infer/beam_step.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "qkv/kernels/kernels.h"

namespace qkv {
namespace {

using Tokens = std::vector<int32_t>;

bool better(const Candidate& a, const Candidate& b) {
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

}  // namespace

int64_t BeamOptions::kept() const {
  return std::max<int64_t>(1, std::llround(static_cast<double>(beams) * patience));
}

void check_options(const BeamOptions& o, size_t prompts) {
  check(o.beams >= 1 && o.beams <= 1024, "beam search: beams must be between 1 and 1024, got {}", o.beams);
  check(std::isfinite(o.length_penalty), "beam search: length_penalty must be a number, got {}",
        o.length_penalty);
  check(o.patience > 0 && o.patience <= 1024,
        "beam search: patience must be above 0 and at most 1024, got {}", o.patience);
  check(o.coverage_penalty >= 0 && std::isfinite(o.coverage_penalty),
        "beam search: coverage_penalty must be a number of at least 0, got {}", o.coverage_penalty);
  check(o.prefix_bias >= 0 && o.prefix_bias < 1,
        "beam search: prefix_bias must be at least 0 and below 1, got {}", o.prefix_bias);
  const auto for_each_prompt = [&](const char* what, size_t got) {
    check(got == 0 || got == prompts, "beam search: {} prompts, got {} of {}", prompts, what, got);
  };
  for_each_prompt("prefixes", o.prefixes.size());
  for_each_prompt("begun tokens", o.begun.size());
  for_each_prompt("wished beginnings", o.wished.size());
}

std::vector<Search> begin_searches(const Ensemble& model, const std::vector<Tokens>& prompts,
                                   const BeamOptions& o) {
  std::vector<Search> out;
  for (size_t p = 0; p < prompts.size(); ++p) {
    const int64_t length = std::ssize(prompts[p]), begun = o.begun.empty() ? 0 : o.begun[p];
    const int64_t by_rules = o.rules.max_length > 0 ? o.rules.max_length - length : o.max_new_tokens;
    const int64_t most = std::min({o.max_new_tokens - begun, model.spec().longest() - length, by_rules});
    out.push_back({p,
                   prompts[p],
                   begun,
                   std::max<int64_t>(1, most),
                   o.wished.empty() ? Tokens() : o.wished[p],
                   {Beam{}},
                   {}});
  }
  return out;
}

std::vector<Candidate> best_candidates(const Search& s, const Tensor& logits, int64_t row,
                                       const BeamOptions& o) {
  const int64_t written = std::ssize(s.beams[0].tokens);
  if (const auto id = o.rules.forced(std::ssize(s.prompt_tokens), written, s.most)) {
    std::vector<Candidate> forced;
    for (const Beam& b : s.beams)
      forced.push_back({b.log_probability, static_cast<int32_t>(forced.size()), *id});
    return forced;
  }
  const int64_t vocab = logits.width(), wanted = 2 * o.beams;
  std::vector<Candidate> best;  // a heap with the worst in front
  for (size_t b = 0; b < s.beams.size(); ++b) {
    const Tokens& tokens = s.beams[b].tokens;
    const std::span<const float> given = logits.row<float>(row + static_cast<int64_t>(b));
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
