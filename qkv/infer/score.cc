#include "qkv/infer/score.h"

#include <algorithm>
#include <limits>

#include "qkv/infer/generate.h"
#include "qkv/infer/log_prob.h"

namespace qkv {
namespace {

using Tokens = std::vector<int32_t>;

// Each target after its row of `hidden` [N, D]; computes the logits in chunks.
std::vector<ScoredToken> score_after(const Transformer& model, const Tensor& hidden,
                                     std::span<const int32_t> targets, std::span<const int32_t> excluded) {
  constexpr int64_t kChunk = 64;  // rows: 13 MB of logits for GPT-2's vocabulary
  std::vector<ScoredToken> out;
  const auto rows = static_cast<int64_t>(targets.size());
  for (int64_t first = 0; first < rows; first += kChunk) {
    const Tensor logits = model.logits(hidden.slice_rows(first, std::min(first + kChunk, rows)));
    for (int64_t r = 0; r < logits.dim(0); ++r) {
      const auto row = logits.row<float>(r);
      const int32_t target = targets[first + r];
      check(target >= 0 && target < logits.width(), "score: no token {}: the model has {}", target,
            logits.width());
      const double log_p = row[target] - log_normalizer(row);
      std::vector<float> z(row.begin(), row.end());
      for (const int32_t id : excluded)
        if (id < std::ssize(z)) z[id] = -std::numeric_limits<float>::infinity();
      out.push_back({log_p, argmax(z)});
    }
  }
  return out;
}

// The number of first tokens that all share, at most begin - 1 of each: the logits of the token before
// `begin` are needed.
int64_t shared_length(const std::vector<Alternative>& alternatives) {
  const Tokens& first = alternatives[0].tokens;
  int64_t shared = alternatives[0].begin - 1;
  for (const Alternative& a : alternatives) {
    shared = std::min(shared, a.begin - 1);
    shared = std::mismatch(first.begin(), first.begin() + shared, a.tokens.begin()).first - first.begin();
  }
  return shared;
}

}  // namespace

std::vector<std::vector<ScoredToken>> score_tokens(const Transformer& model,
                                                   const std::vector<Alternative>& alternatives,
                                                   std::span<const int32_t> excluded) {
  const NoGrad guard;
  if (alternatives.empty()) return {};
  for (const Alternative& a : alternatives) {
    assert(a.begin > 0 && a.begin < static_cast<int64_t>(a.tokens.size()));
    check(static_cast<int64_t>(a.tokens.size()) - 1 <= model.spec().longest(),
          "score: prompt and choice have {} tokens, the context is {}", a.tokens.size(),
          model.spec().longest());
  }
  // Alternatives share nothing where a prompt's tokens depend on what follows them.
  const bool prefix = model.spec().order == Order::prefix;
  const int64_t shared = prefix || model.spec().hashes() ? 0 : shared_length(alternatives);
  DecodeState state(model, 1);
  if (shared > 0)
    state.extend({Tokens(alternatives[0].tokens.begin(), alternatives[0].tokens.begin() + shared)});
  state.reorder(Tokens(alternatives.size(), 0));
  std::vector<Tokens> rest;  // the last token is only predicted
  rest.reserve(alternatives.size());
  for (const Alternative& a : alternatives) rest.emplace_back(a.tokens.begin() + shared, a.tokens.end() - 1);
  const auto read_with_prefixes = [&] {
    Tokens flat, lengths, prefixes;
    for (size_t i = 0; i < rest.size(); ++i) {
      flat.insert(flat.end(), rest[i].begin(), rest[i].end());
      lengths.push_back(static_cast<int32_t>(rest[i].size()));
      prefixes.push_back(static_cast<int32_t>(alternatives[i].begin));
    }
    ModelInput input{std::move(flat), Layout::of(lengths)};
    input.visibility = prefix_ranks(input.layout, prefixes);
    return model.hidden(input, {});
  };
  const Tensor hidden = prefix ? read_with_prefixes() : state.extend(rest);

  std::vector<std::vector<ScoredToken>> out;
  int64_t end = 0;  // the last row of an alternative predicts its last token
  for (size_t i = 0; i < alternatives.size(); ++i) {
    end += static_cast<int64_t>(rest[i].size());
    const auto targets = std::span(alternatives[i].tokens).subspan(alternatives[i].begin);
    out.push_back(score_after(model, hidden.slice_rows(end - std::ssize(targets), end), targets, excluded));
  }
  return out;
}

std::vector<ChoiceScore> score_choices(const Transformer& model, const text::Tokenizer& tokenizer,
                                       const std::string& prompt, const std::vector<std::string>& choices,
                                       int64_t bos, std::span<const int32_t> excluded) {
  const Tokens alone = tokenizer.encode(prompt, false).ids;
  std::vector<Alternative> alternatives;
  for (const std::string& choice : choices) {
    Tokens both = tokenizer.encode(prompt + choice, false).ids;
    const size_t most = std::min(alone.size(), both.size());
    int64_t begin =
        std::mismatch(both.begin(), both.begin() + static_cast<int64_t>(most), alone.begin()).first -
        both.begin();
    check(begin < static_cast<int64_t>(both.size()), "score: the choice \"{}\" adds no token to the prompt",
          choice);
    if (begin == 0) {
      check(bos >= 0,
            "score: nothing precedes the choice \"{}\", and this model has no token that begins a text",
            choice);
      both.insert(both.begin(), static_cast<int32_t>(bos));
      begin = 1;
    }
    alternatives.push_back({std::move(both), begin});
  }
  std::vector<ChoiceScore> out;
  const auto all = score_tokens(model, alternatives, excluded);
  for (size_t i = 0; i < all.size(); ++i) {
    ChoiceScore s{0, std::ssize(all[i]), std::ssize(choices[i])};
    for (const ScoredToken& t : all[i]) s.log_p += t.log_p;
    const std::span<const int32_t> ids = alternatives[i].tokens;
    const auto begin = static_cast<size_t>(alternatives[i].begin);
    while (s.accepted < s.tokens && all[i][s.accepted].likeliest == ids[begin + s.accepted]) ++s.accepted;
    const auto accepted = static_cast<size_t>(s.accepted);
    s.accepted_text = tokenizer.decode_after(ids.first(begin), ids.subspan(begin, accepted));
    if (s.accepted < s.tokens)
      s.instead =
          tokenizer.decode_after(ids.first(begin + accepted), {&all[i][accepted].likeliest, 1}, false);
    out.push_back(std::move(s));
  }
  return out;
}

}  // namespace qkv
