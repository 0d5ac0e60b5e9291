#include "qkv/api/text_model.h"

#include <algorithm>
#include <charconv>
#include <string>

#include "qkv/api/generation_config.h"
#include "qkv/base/json_value.h"
#include "qkv/infer/predict.h"
#include "qkv/infer/sequence_ends.h"
#include "qkv/io/adapter_dir.h"
#include "qkv/text/unicode.h"

namespace qkv {

namespace {

// A tokenizer in which each token's text is its id.
text::Tokenizer numbers(int64_t tokens) {
  OrderedJson vocab = OrderedJson::object();
  for (int64_t id = 0; id < tokens; ++id) vocab[std::to_string(id)] = id;
  const OrderedJson json = {{"pre_tokenizer", {{"type", "WhitespaceSplit"}}},
                            {"model", {{"type", "WordLevel"}, {"vocab", vocab}}}};
  return text::Tokenizer::from_json(json.dump());
}

// `ids_as_text`: accepts a model without a tokenizer.
TextModel load(const std::string& path, DType compute, bool ids_as_text) {
  std::optional<SentenceModules> sentence = read_sentence_modules(path);
  const std::string dir = resolve_model_dir(sentence ? sentence->transformer : path);
  const bool own = text::Tokenizer::exists(dir) || !is_adapter_dir(dir);
  std::unique_ptr<Transformer> model = load_model(dir, compute);
  const std::string of_tokenizer = own ? dir : read_adapter_config(dir).base;
  const int64_t tokens = model->spec().vocab_size;
  const bool as_text = ids_as_text && !text::Tokenizer::exists(of_tokenizer);
  TextModel m{std::move(model), as_text ? numbers(tokens) : text::Tokenizer::load(of_tokenizer),
              load_special_ids(dir)};
  check(!m.model->spec().features.any(), "{}: it reads images or spectrograms, no text: qkv forward runs it",
        dir);
  check(static_cast<int64_t>(m.tokenizer.vocab_size()) <= m.model->spec().vocab_size,
        "{}: the tokenizer has {} tokens, the model {}", dir, m.tokenizer.vocab_size(),
        m.model->spec().vocab_size);
  const text::Tokenizer& sources = m.tokenizer.of_sources();
  const int64_t rows = m.model->spec().source_vocab_size;
  check(rows == 0 || m.tokenizer.has_own_sources(),
        "{}: the tokenizer of the sources is missing: expected it in {}/source", dir, dir);
  check(rows > 0 || !m.tokenizer.has_own_sources(),
        "{}: the model has one vocabulary, but {}/source holds a tokenizer of sources", dir, dir);
  check(static_cast<int64_t>(sources.vocab_size()) <= m.model->spec().input_vocab_size(),
        "{}/source: the tokenizer has {} tokens, the model {} of sources", dir, sources.vocab_size(),
        m.model->spec().input_vocab_size());
  m.generation.drawing.eos.assign(m.special.eos.begin(), m.special.eos.end());
  // A source has one best output, while a text has many continuations.
  if (m.model->spec().architecture == Architecture::encoder_decoder)
    m.generation.drawing.sampler.temperature = 0;
  m.searches = read_generation_config(dir, m.generation, m.refused);
  try {
    check_ids(m.generation,
              {"suppress_tokens", "begin_suppress_tokens", "bad_words_ids", "forced_eos_token_id"},
              m.model->spec().vocab_size);
  } catch (const Error& e) {
    fail("{}: generation_config.json or config.json: {}", dir, e.what());
  }
  if (sentence) {
    m.model->set_pooling(sentence->pooling);
    m.model->leave_out_pooler();
    if (sentence->longest > 0) m.model->limit_context(sentence->longest);
    m.sentence = std::move(sentence);
  }
  return m;
}

}  // namespace

Tensor embed(const TextModel& m, const std::vector<EncodedText>& texts, int64_t batch_tokens) {
  if (!m.sentence) return embed_texts(*m.model, texts, batch_tokens);
  const NoGrad guard;
  return sentence_vectors(*m.sentence, pooled_texts(*m.model, texts, batch_tokens));
}

Tensor unit_embeddings(const TextModel& m, const std::vector<EncodedText>& texts, int64_t batch_tokens) {
  if (!m.sentence) return embed_texts(*m.model, texts, batch_tokens);
  const NoGrad guard;
  SentenceModules modules = *m.sentence;
  modules.normalized = true;
  return sentence_vectors(modules, pooled_texts(*m.model, texts, batch_tokens));
}

int64_t embedding_width(const TextModel& m) {
  const bool plain = !m.sentence || m.sentence->layers.empty();
  return plain ? m.model->spec().pooled_width() : m.sentence->layers.back().weight.rows();
}

TextModel load(const std::string& path, DType compute) {
  return load(path, compute, false);
}

void TextModel::expect_generation() const {
  check(refused.empty(), "{}", refused);
}

TextModel load_language_model(const std::string& path, DType compute, bool ids_as_text) {
  TextModel m = load(path, compute, ids_as_text);
  check(m.model->spec().architecture == Architecture::decoder,
        "{}: this checkpoint is an {}: a decoder is needed here{}", path,
        name_of(m.model->spec().architecture),
        m.model->spec().architecture == Architecture::encoder_decoder ? " (see qkv translate)" : "");
  return m;
}

SequenceModel sequence_model(const TextModel& m, const std::string& path) {
  const ModelSpec& spec = m.model->spec();
  // A decoder trained on pairs names the token that begins its targets.
  check(spec.architecture == Architecture::encoder_decoder || spec.order == Order::prefix ||
            (spec.architecture == Architecture::decoder && m.special.decoder_start >= 0),
        "{}: this checkpoint is {} {}: an encoder-decoder, or a decoder trained on pairs, is needed here",
        path, spec.architecture == Architecture::encoder ? "an" : "a", name_of(spec.architecture));
  const int64_t start = m.special.decoder_start >= 0 ? m.special.decoder_start : m.special.bos;
  check(start >= 0 && m.special.eos.size() == 1,
        "{}: config.json names no decoder_start_token_id (or bos_token_id) and eos_token_id", path);
  const SequenceEnds ends = ends_between(m.tokenizer, static_cast<int32_t>(start),
                                         static_cast<int32_t>(m.special.eos[0]), m.special);
  return {*m.model, m.tokenizer, ends};
}

std::vector<int32_t> prompt_ids(const TextModel& m, std::string_view prompt) {
  text::Encoding encoding = m.tokenizer.encode(prompt);
  const auto is_end = [&](size_t i) {
    return m.tokenizer.is_special(encoding.ids[i]) && encoding.offsets[i].size() == 0;
  };
  // A single token is the start token.
  while (encoding.ids.size() > 1 && is_end(encoding.ids.size() - 1)) {
    encoding.ids.pop_back();
    encoding.offsets.pop_back();
  }
  if (encoding.ids.empty() && m.special.bos >= 0) return {static_cast<int32_t>(m.special.bos)};
  check(!encoding.ids.empty(),
        "the prompt is empty, and this model has no token that begins a text: give it some text");
  return encoding.ids;
}

std::vector<int32_t> prompt_ids(const TextModel& m, const std::vector<std::string>& words) {
  const int64_t tokens = m.model->spec().vocab_size;
  std::vector<int32_t> ids;
  for (const std::string& word : words) {
    int64_t id = -1;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    check(error == std::errc() && end == word.data() + word.size() && id >= 0 && id < tokens,
          "'{}' is no id of a token: expected a number below {}", word, tokens);
    ids.push_back(static_cast<int32_t>(id));
  }
  check(!ids.empty(), "expected an id");
  return ids;
}

namespace {

void expect_same_tokens(const text::Tokenizer& first, const text::Tokenizer& other, const std::string& path) {
  check(first.same_as(other),
        "{}: its tokenizer is not that of the first model: models of an ensemble share one", path);
}

// Generates after a prompt, or for a source, and passes on the text of all but the first `silent` tokens.
std::string write(const TextModel& m, const Prompts& given, GenerateOptions options, size_t silent,
                  const TextCallback& on_text, Engine* engine = nullptr) {
  m.expect_generation();
  for (const int32_t id : m.tokenizer.ids_without_text(m.model->spec().vocab_size))
    if (std::ranges::find(options.eos, id) == options.eos.end()) options.sampler.excluded.push_back(id);
  const bool continues = given.sources.empty();
  text::StreamDecoder decoder(m.tokenizer, true,
                              continues ? std::span(given.prompts[0]) : std::span<const int32_t>());
  std::string text;
  const auto on_token = [&](int64_t, int32_t token, std::span<const float>) {
    if (std::ranges::find(options.eos, token) != options.eos.end()) return false;
    if (silent > 0) {
      --silent;
      return true;
    }
    const std::string piece = decoder.add(token);
    text += piece;
    return !on_text || on_text(token, piece);
  };
  std::optional<Engine> own;
  if (engine == nullptr) own.emplace(*m.model, EngineOptions{.cached = options.cached});
  generate(engine != nullptr ? *engine : *own, given.prompts, options, on_token, given.sources);
  const std::string rest = decoder.finish();
  if (on_text && !rest.empty()) on_text(-1, rest);
  return text + rest;
}

// Generates the target of a source with an encoder-decoder.
std::string write_for(const TextModel& m, std::string_view source, GenerateOptions options,
                      const TextCallback& on_text) {
  const SequenceModel sequence = sequence_model(m, "generate");
  std::vector<int32_t> ids = m.tokenizer.of_sources().encode(source, false).ids;
  const size_t most = longest_source(m.model->spec(), sequence.ends);
  check(!ids.empty(), "generate: there is no text to write for");
  check(ids.size() <= most, "generate: a text of {} tokens, the model reads {}", ids.size(), most);
  options.rules.begin = sequence.ends.target_begin;
  return write(m, prompts_for(m.model->spec(), {std::move(ids)}, sequence.ends), std::move(options),
               sequence.ends.target_begin.size(), on_text);
}

}  // namespace

Ensemble ensemble_of(const std::vector<TextModel>& models, const std::vector<std::string>& paths) {
  std::vector<const Transformer*> all;
  for (size_t i = 0; i < models.size(); ++i) {
    const text::Tokenizer &first = models[0].tokenizer, &other = models[i].tokenizer;
    if (i > 0) expect_same_tokens(first, other, paths[i]);
    if (i > 0 && first.has_own_sources() && other.has_own_sources())
      expect_same_tokens(first.of_sources(), other.of_sources(), paths[i] + "/source");
    all.push_back(models[i].model.get());
    try {
      Ensemble({all.front(), all.back()});
    } catch (const Error& e) {
      fail("{}: {}", paths[i], e.what());
    }
  }
  return Ensemble(std::move(all));
}

std::string complete(const TextModel& m, std::string_view prompt, GenerateOptions options,
                     const TextCallback& on_text) {
  if (m.model->spec().architecture == Architecture::encoder_decoder)
    return write_for(m, prompt, std::move(options), on_text);
  return complete(m, prompt_ids(m, prompt), std::move(options), on_text);
}

std::string complete(const TextModel& m, const std::vector<int32_t>& ids, GenerateOptions options,
                     const TextCallback& on_text, Engine* engine) {
  check(m.model->spec().architecture == Architecture::decoder, "complete: a decoder is needed, not {}",
        name_of(m.model->spec().architecture));
  return write(m, {{ids}, {}, {}}, std::move(options), 0, on_text, engine);
}

std::vector<std::string> search(const TextModel& m, std::string_view prompt,
                                const GenerationSettings& settings) {
  m.expect_generation();
  BeamOptions o = settings.search_options();
  std::vector<std::string> out;
  if (m.model->spec().architecture == Architecture::encoder_decoder) {
    const SequenceModel sequence = sequence_model(m, "generate");
    const Translations found = translate(sequence, {std::string(prompt)}, o);
    check(!found.source_tokens[0].empty(), "generate: there is no text to write for");
    check(found.cut == 0, "generate: a text of {} tokens, the model reads {}", found.source_tokens[0].size(),
          longest_source(m.model->spec(), sequence.ends));
    for (const Translation& t : found.best[0]) out.push_back(text::to_valid_utf8(t.text));
  } else {
    for (const int32_t id : m.tokenizer.ids_without_text(m.model->spec().vocab_size))
      if (std::ranges::find(o.eos, id) == o.eos.end()) o.excluded.push_back(id);
    const std::vector<int32_t> ids = prompt_ids(m, prompt);
    std::vector<Hypothesis> found = std::move(beam_search(*m.model, {ids}, o)[0]);
    for (Hypothesis& h : found) {
      if (!h.tokens.empty() && std::ranges::find(o.eos, h.tokens.back()) != o.eos.end()) h.tokens.pop_back();
      out.push_back(text::to_valid_utf8(m.tokenizer.decode_after(ids, h.tokens)));
    }
  }
  if (std::ssize(out) > settings.returned) out.resize(static_cast<size_t>(settings.returned));
  return out;
}

}  // namespace qkv
