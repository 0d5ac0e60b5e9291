#include "qkv/infer/translate.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "qkv/infer/log_prob.h"

namespace qkv {

size_t longest_source(const ModelSpec& spec, const SequenceEnds& ends) {
  // A decoder alone writes behind its source and bos.
  const bool apart = spec.architecture == Architecture::encoder_decoder;
  return static_cast<size_t>(std::max<int64_t>(spec.context - ends.around_source() - (apart ? 0 : 2), 0));
}

std::pair<std::vector<int32_t>, std::vector<int32_t>> tokens_around(const text::Tokenizer& tokenizer) {
  const std::string some = "a";
  const auto bare = tokenizer.encode(some, false).ids, whole = tokenizer.encode(some, true).ids;
  const auto at = std::search(whole.begin(), whole.end(), bare.begin(), bare.end());
  if (bare.empty() || at == whole.end()) return {};
  return {{whole.begin(), at}, {at + std::ssize(bare), whole.end()}};
}

void surround_sources(SequenceEnds& ends, const text::Tokenizer& sources, int32_t eos) {
  ends.source_begin.clear();
  ends.source_end = {eos};
  auto [before, behind] = tokens_around(sources);
  if (std::ranges::find(behind, eos) == behind.end()) return;
  ends.source_begin = std::move(before);
  ends.source_end = std::move(behind);
}

Prompts prompts_for(const ModelSpec& spec, std::vector<std::vector<int32_t>> sources,
                    const SequenceEnds& ends, const std::vector<std::vector<int32_t>>& begin) {
  check(begin.empty() || begin.size() == sources.size(), "translate: {} sources, got {} beginnings",
        sources.size(), begin.size());
  const bool apart = spec.architecture == Architecture::encoder_decoder;
  Prompts out;
  for (size_t i = 0; i < sources.size(); ++i) {
    std::vector<int32_t>& source = sources[i];
    source.insert(source.begin(), ends.source_begin.begin(), ends.source_begin.end());
    source.insert(source.end(), ends.source_end.begin(), ends.source_end.end());
    std::vector<int32_t> prompt = apart ? std::vector<int32_t>() : source;
    prompt.push_back(ends.bos);
    out.prefixes.push_back(static_cast<int32_t>(prompt.size()));
    if (!begin.empty()) prompt.insert(prompt.end(), begin[i].begin(), begin[i].end());
    check(std::ssize(prompt) < spec.context,
          "translate: {} tokens to begin with leave no room in a context of {}", prompt.size(), spec.context);
    out.prompts.push_back(std::move(prompt));
  }
  if (apart) out.sources = std::move(sources);
  return out;
}

namespace {

// Outputs of some sources, of which the first is the `first`-th of all.
std::vector<std::vector<Hypothesis>> draw(const Ensemble& model, const Prompts& given,
                                          const BeamOptions& rules, const Drawing& drawing, size_t first) {
  const auto samples = static_cast<size_t>(drawing.samples);
  GenerateOptions options{.sampler = drawing.sampler,
                          .max_new_tokens = rules.max_new_tokens,
                          .eos = rules.eos,
                          .rules = rules.rules,
                          .seed = drawing.seed + first * samples};
  options.sampler.excluded.insert(options.sampler.excluded.end(), rules.excluded.begin(),
                                  rules.excluded.end());
  Prompts each;
  for (size_t i = 0; i < given.prompts.size(); ++i)
    for (size_t k = 0; k < samples; ++k) {
      each.prompts.push_back(given.prompts[i]);
      if (!given.sources.empty()) each.sources.push_back(given.sources[i]);
    }
  std::vector<double> log_p(each.prompts.size());
  const auto tokens = generate(
      model, each.prompts, options,
      [&](int64_t s, int32_t token, std::span<const float> logits) {
        log_p[static_cast<size_t>(s)] +=
            static_cast<double>(logits[static_cast<size_t>(token)]) - log_normalizer(logits);
        return true;
      },
      each.sources);
  std::vector<std::vector<Hypothesis>> out(given.prompts.size());
  for (size_t s = 0; s < tokens.size(); ++s)
    out[s / samples].push_back(
        {tokens[s], log_p[s],
         log_p[s] / std::pow(static_cast<double>(tokens[s].size()), rules.length_penalty)});
  return out;
}

}  // namespace

Translations translate(const SequenceModel& m, const std::vector<std::string>& sources, BeamOptions options,
                       int64_t batch_tokens, const std::vector<std::string>& begin,
                       const std::optional<Drawing>& drawing) {
  check(m.model.spec().architecture != Architecture::encoder, "translate: an encoder writes nothing");
  check(begin.empty() || begin.size() == sources.size(), "translate: {} sources, got {} beginnings",
        sources.size(), begin.size());
  const size_t most = longest_source(m.model.spec(), m.ends);
  options.eos = {m.ends.eos};
  // Behind a beginning that is given nothing is forced.
  const std::vector<int32_t>& first = m.ends.target_begin;
  options.rules.begin = begin.empty() ? first : std::vector<int32_t>();
  const std::vector<int32_t> silent = m.tokenizer.ids_without_text(m.model.spec().vocab_size);
  options.excluded.insert(options.excluded.end(), silent.begin(), silent.end());
  std::erase(options.excluded, m.ends.eos);
  Translations out;
  out.best.resize(sources.size());
  std::vector<std::vector<int32_t>> ids;
  std::vector<size_t> order;
  for (size_t i = 0; i < sources.size(); ++i) {
    ids.push_back(m.tokenizer.of_sources().encode(sources[i], false).ids);
    out.cut += ids[i].size() > most;
    ids[i].resize(std::min(ids[i].size(), most));
    if (ids[i].empty())
      out.best[i].push_back({});
    else
      order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return ids[a].size() < ids[b].size(); });
  for (size_t from = 0; from < order.size();) {
    std::vector<std::vector<int32_t>> batch, beginnings;
    size_t end = from;
    for (int64_t tokens = 0;
         end < order.size() &&
         (end == from || tokens + std::ssize(ids[order[end]]) + m.ends.around_source() <= batch_tokens);
         ++end) {
      batch.push_back(ids[order[end]]);
      tokens += std::ssize(batch.back()) + m.ends.around_source();
      if (begin.empty()) continue;
      beginnings.push_back(first);
      const auto ids_of_text = m.tokenizer.encode(begin[order[end]], false).ids;
      beginnings.back().insert(beginnings.back().end(), ids_of_text.begin(), ids_of_text.end());
    }
    const Prompts given = prompts_for(m.model.spec(), std::move(batch), m.ends, beginnings);
    options.prefixes = given.prefixes;
    auto found = drawing ? draw(m.model, given, options, *drawing, from)
                         : beam_search(m.model, given.prompts, options, given.sources);
    for (size_t i = from; i < end; ++i)
      for (Hypothesis& h : found[i - from]) {
        if (!h.tokens.empty() && h.tokens.back() == m.ends.eos) h.tokens.pop_back();
        if (!begin.empty())
          h.tokens.insert(h.tokens.begin(), beginnings[i - from].begin(), beginnings[i - from].end());
        h.tokens.erase(h.tokens.begin(),
                       h.tokens.begin() + std::min(std::ssize(h.tokens), std::ssize(first)));
        out.best[order[i]].push_back({m.tokenizer.decode(h.tokens), h.log_probability, h.score});
      }
    from = end;
  }
  return out;
}

}  // namespace qkv
