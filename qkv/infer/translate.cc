#include "qkv/infer/translate.h"

#include <algorithm>
#include <numeric>

namespace qkv {

Translations translate(const SequenceModel& m, const std::vector<std::string>& sources, BeamOptions options,
                       int64_t batch_tokens) {
  check(m.model.spec().architecture == Architecture::encoder_decoder,
        "translate: needs an encoder-decoder, this is a model of one stack ({})",
        name_of(m.model.spec().architecture));
  const auto most = static_cast<size_t>(m.model.spec().context - 1);
  options.eos = {m.eos};
  options.excluded = m.tokenizer.ids_without_text(m.model.spec().vocab_size);
  std::erase(options.excluded, m.eos);
  Translations out;
  out.best.resize(sources.size());
  std::vector<std::vector<int32_t>> ids;
  std::vector<size_t> order;
  for (size_t i = 0; i < sources.size(); ++i) {
    ids.push_back(m.tokenizer.encode(sources[i], false).ids);
    out.cut += ids[i].size() > most;
    ids[i].resize(std::min(ids[i].size(), most));
    if (ids[i].empty())
      out.best[i].push_back({});
    else
      order.push_back(i);
    ids[i].push_back(m.eos);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return ids[a].size() < ids[b].size(); });
  for (size_t begin = 0; begin < order.size();) {
    std::vector<std::vector<int32_t>> batch;
    size_t end = begin;
    for (int64_t tokens = 0;
         end < order.size() && (end == begin || tokens + std::ssize(ids[order[end]]) <= batch_tokens);
         ++end) {
      batch.push_back(ids[order[end]]);
      tokens += std::ssize(batch.back());
    }
    const std::vector<std::vector<int32_t>> prompts(batch.size(), {m.bos});
    auto found = beam_search(m.model, prompts, options, batch);
    for (size_t i = begin; i < end; ++i)
      for (Hypothesis& h : found[i - begin]) {
        if (!h.tokens.empty() && h.tokens.back() == m.eos) h.tokens.pop_back();
        out.best[order[i]].push_back({m.tokenizer.decode(h.tokens), h.log_probability, h.score});
      }
    begin = end;
  }
  return out;
}

}  // namespace qkv
