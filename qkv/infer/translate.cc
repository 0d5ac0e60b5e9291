#include "qkv/infer/translate.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "qkv/infer/log_prob.h"

namespace qkv {

size_t longest_source(const ModelSpec& spec, const SequenceEnds& ends) {
  // A decoder without an encoder writes after its source and bos, in the same context.
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

// Samples outputs of some sources.
std::vector<std::vector<Hypothesis>> draw(const Ensemble& model, const Prompts& given,
                                          const BeamOptions& rules, const Drawing& drawing,
                                          const EngineOptions& with) {
  const auto samples = static_cast<size_t>(drawing.samples);
  GenerateOptions options{.sampler = drawing.sampler,
                          .max_new_tokens = rules.max_new_tokens,
                          .eos = rules.eos,
                          .rules = rules.rules,
                          .seed = drawing.seed};
  options.sampler.excluded.insert(options.sampler.excluded.end(), rules.excluded.begin(),
                                  rules.excluded.end());
  Prompts each;
  for (size_t i = 0; i < given.prompts.size(); ++i)
    for (size_t k = 0; k < samples; ++k) {
      each.prompts.push_back(given.prompts[i]);
      if (!rules.begun.empty()) options.begun.push_back(rules.begun[i]);
      if (!given.sources.empty()) each.sources.push_back(given.sources[i]);
    }
  std::vector<double> log_p(each.prompts.size());
  Engine engine(model, with);
  const auto tokens = generate(
      engine, each.prompts, options,
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

using Tokens = std::vector<int32_t>;

// A source and the beginning of its outputs, as tokens.
struct Task {
  size_t number;  // number of the source
  text::Encoding whole;
  Tokens read;   // the tokens that the model reads
  Tokens begin;  // including the tokens that every target begins with
};

// The text of tokens, with `words` of the source in place of the unknown tokens, in turn.
std::string with_words(const text::Tokenizer& tokenizer, const Tokens& tokens, const std::string& unknown,
                       const std::vector<std::string>& words) {
  std::string text = tokenizer.decode(tokens);
  size_t at = 0;
  for (const std::string& word : words) {
    at = text.find(unknown, at);
    if (at == std::string::npos) break;
    text.replace(at, unknown.size(), word);
    at += word.size();
  }
  return text;
}

// Builds one output from a hypothesis.
class Outputs {
 public:
  Outputs(const SequenceModel& m, const BeamOptions& search, const TranslateOptions& options)
      : m_(m), search_(search), options_(options) {}

  Translation output(const Task& task, const std::string& source, Hypothesis h, bool begun) const {
    const Tokens& first = m_.ends.target_begin;
    if (!h.tokens.empty() && h.tokens.back() == m_.ends.eos) h.tokens.pop_back();
    // If the beginning already has the maximum length, only the attention is taken from the search.
    if (begun && std::ssize(task.begin) >= search_.max_new_tokens) h = {{}, 0, 0, std::move(h.attention)};
    if (begun) h.tokens.insert(h.tokens.begin(), task.begin.begin(), task.begin.end());
    const auto silent = std::min(std::ssize(h.tokens), std::ssize(first));
    h.tokens.erase(h.tokens.begin(), h.tokens.begin() + silent);
    Translation t{"", h.log_probability, h.score, words_of(m_.tokenizer, h.tokens), {}};
    for (size_t i = 0; i < h.tokens.size() && !h.attention.empty(); ++i)
      t.attention.push_back(own_columns(task, h.attention[i + static_cast<size_t>(silent)]));
    if (!options_.replace_unknowns) {
      t.text = m_.tokenizer.decode(h.tokens);
      return t;
    }
    const int32_t unknown = m_.tokenizer.unknown();
    std::vector<std::string> words;
    for (size_t i = 0; i < h.tokens.size(); ++i)
      if (h.tokens[i] == unknown) {
        const auto most = std::ranges::max_element(t.attention[i]) - t.attention[i].begin();
        const text::Range r = task.whole.offsets[static_cast<size_t>(most)];
        words.push_back(source.substr(r.begin, r.end - r.begin));
        t.tokens[i] = words.back();
      }
    t.text = with_words(m_.tokenizer, h.tokens, m_.tokenizer.id_to_token(unknown).value_or(""), words);
    if (!search_.attention) t.attention.clear();
    return t;
  }

  static std::vector<std::string> words_of(const text::Tokenizer& tokenizer, const Tokens& ids) {
    std::vector<std::string> out;
    for (const int32_t id : ids) out.push_back(tokenizer.id_to_token(id).value_or(""));
    return out;
  }

 private:
  // The columns of the source's own tokens, without the special tokens around them.
  std::vector<float> own_columns(const Task& task, const std::vector<float>& row) const {
    const auto begin = row.begin() + std::ssize(m_.ends.source_begin);
    std::vector<float> out(begin, begin + std::ssize(task.read));
    out.resize(task.whole.size());
    return out;
  }

  const SequenceModel& m_;
  const BeamOptions& search_;
  const TranslateOptions& options_;
};

}  // namespace

Translations translate(const SequenceModel& m, const std::vector<std::string>& sources, BeamOptions search,
                       const TranslateOptions& options) {
  check(m.model.spec().architecture != Architecture::encoder, "translate: an encoder writes nothing");
  const bool begun = !options.begin.empty(), wishes = begun && search.prefix_bias > 0;
  check(!begun || options.begin.size() == sources.size(), "translate: {} sources, got {} beginnings",
        sources.size(), options.begin.size());
  check(!options.replace_unknowns || m.tokenizer.unknown() >= 0,
        "translate: the tokenizer has no token for unknown characters, which could be replaced");
  check(!options.drawing || !(search.attention || options.replace_unknowns),
        "translate: outputs that are drawn come without attention");
  size_t most = longest_source(m.model.spec(), m.ends);
  if (options.longest_source > 0) most = std::min(most, static_cast<size_t>(options.longest_source));
  search.eos = {m.ends.eos};
  // Given beginnings include these tokens already.
  const Tokens& first = m.ends.target_begin;
  search.rules.begin = begun && !wishes ? Tokens() : first;
  const Tokens silent = m.tokenizer.ids_without_text(m.model.spec().vocab_size);
  search.excluded.insert(search.excluded.end(), silent.begin(), silent.end());
  std::erase(search.excluded, m.ends.eos);
  if (options.replace_unknowns) std::erase(search.excluded, m.tokenizer.unknown());
  const Outputs outputs(m, search, options);
  BeamOptions asked = search;
  asked.attention = search.attention || options.replace_unknowns;
  Translations out;
  out.best.resize(sources.size());
  std::vector<Task> tasks;
  for (size_t i = 0; i < sources.size(); ++i) {
    Task task{i, m.tokenizer.of_sources().encode(sources[i], false), {}, first};
    task.read = task.whole.ids;
    out.cut += task.read.size() > most;
    task.read.resize(std::min(task.read.size(), most));
    out.source_tokens.push_back(Outputs::words_of(m.tokenizer.of_sources(), task.whole.ids));
    if (begun) {
      const Tokens ids = m.tokenizer.encode(options.begin[i], false).ids;
      task.begin.insert(task.begin.end(), ids.begin(), ids.end());
    }
    if (begun && !wishes && std::ssize(task.begin) > search.max_new_tokens)
      task.begin.resize(static_cast<size_t>(search.max_new_tokens));
    if (task.read.empty())
      out.best[i].push_back({});
    else
      tasks.push_back(std::move(task));
  }
  std::ranges::stable_sort(tasks, {}, [](const Task& task) { return task.read.size(); });
  int64_t all_tokens = 0;
  for (const Task& task : tasks) all_tokens += std::ssize(task.read) + m.ends.around_source();
  // As many sources at a time as have about batch_tokens.
  const int64_t at_once =
      std::max<int64_t>(1, options.batch_tokens * std::ssize(tasks) / std::max<int64_t>(1, all_tokens));
  const EngineOptions queue{
      .sequences = at_once * (options.drawing ? options.drawing->samples : search.beams),
      .prompt_tokens = options.batch_tokens};
  for (size_t from = 0; from < tasks.size();) {
    std::vector<Tokens> batch, beginnings;
    asked.begun.clear();
    asked.wished.clear();
    size_t end = from;
    for (int64_t tokens = 0; end < tasks.size(); ++end) {
      const Task& task = tasks[end];
      tokens += std::ssize(task.read) + m.ends.around_source();
      if (end > from && tokens > options.batch_tokens && asked.alternatives > 0) break;  // they do not queue
      batch.push_back(task.read);
      if (wishes) asked.wished.push_back(task.begin);
      if (!begun || wishes) continue;
      beginnings.push_back(task.begin);
      asked.begun.push_back(static_cast<int32_t>(task.begin.size()));
    }
    const Prompts given = prompts_for(m.model.spec(), std::move(batch), m.ends, beginnings);
    asked.prefixes = given.prefixes;
    auto found = options.drawing ? draw(m.model, given, asked, *options.drawing, queue)
                                 : beam_search(m.model, given.prompts, asked, given.sources, queue);
    for (size_t i = from; i < end; ++i) {
      // If the beginning fills an output, there are no other outputs.
      if (!asked.begun.empty() && std::ssize(tasks[i].begin) >= search.max_new_tokens)
        found[i - from].resize(std::min<size_t>(found[i - from].size(), 1));
      for (Hypothesis& h : found[i - from])
        out.best[tasks[i].number].push_back(
            outputs.output(tasks[i], sources[tasks[i].number], std::move(h), begun && !wishes));
    }
    from = end;
  }
  return out;
}

}  // namespace qkv
