#include "qkv/cli/text_model.h"

#include "qkv/train/corpus.h"

namespace qkv {

TextModel load_text_model(const std::string& path, const std::string& dtype) {
  const std::string dir = resolve_model_dir(path);
  TextModel m{load_model(dir, dtype == "bf16" ? DType::bf16 : DType::f32), text::Tokenizer::load(dir),
              load_special_ids(dir)};
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
  return m;
}

TextModel load_language_model(const std::string& path, const std::string& dtype) {
  TextModel m = load_text_model(path, dtype);
  check(m.model->spec().architecture == Architecture::decoder,
        "{}: this checkpoint is an {}: a decoder is needed here{}", path,
        name_of(m.model->spec().architecture),
        m.model->spec().architecture == Architecture::encoder_decoder ? " (see qkv translate)" : "");
  return m;
}

SequenceModel sequence_model(const TextModel& m, const std::string& path) {
  const ModelSpec& spec = m.model->spec();
  // A decoder that learnt from pairs says what its targets begin with.
  check(spec.architecture == Architecture::encoder_decoder || spec.order == Order::prefix ||
            (spec.architecture == Architecture::decoder && m.special.decoder_start >= 0),
        "{}: this checkpoint is {} {}: an encoder-decoder, or a decoder trained on pairs, is needed here",
        path, spec.architecture == Architecture::encoder ? "an" : "a", name_of(spec.architecture));
  const int64_t start = m.special.decoder_start >= 0 ? m.special.decoder_start : m.special.bos;
  check(start >= 0 && m.special.eos.size() == 1,
        "{}: config.json names no decoder_start_token_id (or bos_token_id) and eos_token_id", path);
  SequenceEnds ends{static_cast<int32_t>(start), static_cast<int32_t>(m.special.eos[0])};
  if (m.tokenizer.has_own_sources()) ends.source_eos = sequence_ends(m.tokenizer.of_sources()).eos;
  return {*m.model, m.tokenizer, ends};
}

}  // namespace qkv
