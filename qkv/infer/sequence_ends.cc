#include "qkv/infer/sequence_ends.h"

#include <tuple>

#include "qkv/infer/translate.h"

namespace qkv {

int32_t end_of_text(const text::Tokenizer& tokenizer) {
  return static_cast<int32_t>(tokenizer.token_to_id(kEndOfText).value_or(-1));
}

bool begins_with_end_of_text(const text::Tokenizer& tokenizer) {
  const int32_t end = end_of_text(tokenizer);
  if (end < 0) return false;
  const auto around = tokenizer.encode("").ids;
  return around.size() == 1 && static_cast<int32_t>(around[0]) == end;
}

SequenceEnds ends_between(const text::Tokenizer& tokenizer, int32_t bos, int32_t eos, const SpecialIds& ids) {
  SequenceEnds ends{bos, eos};
  const text::Tokenizer& sources = tokenizer.of_sources();
  surround_sources(ends, sources, tokenizer.has_own_sources() ? sequence_ends(sources).eos : eos);
  const auto given = [&](const std::vector<int64_t>& said) {
    for (const int64_t id : said)
      check(id >= 0 && id < static_cast<int64_t>(sources.vocab_size()),
            "config.json: source_begin_token_ids or source_end_token_ids: {} is not one of {} tokens of "
            "sources",
            id, sources.vocab_size());
    return std::vector<int32_t>(said.begin(), said.end());
  };
  if (ids.sources_as_tokenized) std::tie(ends.source_begin, ends.source_end) = tokens_around(sources);
  if (ids.source_begin) ends.source_begin = given(*ids.source_begin);
  if (ids.source_end) ends.source_end = given(*ids.source_end);
  const auto begin_of_text = static_cast<int32_t>(ids.bos);
  if (ids.forced_bos >= 0)
    ends.target_begin = {static_cast<int32_t>(ids.forced_bos)};
  else if (begin_of_text >= 0 && begin_of_text != bos && !tokenizer.has_own_sources() &&
           ends.source_begin == std::vector<int32_t>{begin_of_text})
    ends.target_begin = ends.source_begin;
  return ends;
}

SequenceEnds sequence_ends(const text::Tokenizer& tokenizer, const SpecialIds* given) {
  if (given != nullptr && given->decoder_start >= 0 && !given->eos.empty())
    return ends_between(tokenizer, static_cast<int32_t>(given->decoder_start),
                        static_cast<int32_t>(given->eos[0]), *given);
  // In a language model's tokenizer, one token ends all texts.
  if (const int32_t end = end_of_text(tokenizer); end >= 0 && !tokenizer.token_to_id("</s>"))
    return {end, end};
  const auto id_of = [&](const char* token) {
    const auto id = tokenizer.token_to_id(token);
    check(id.has_value(),
          "the tokenizer has no token {}: sequence-to-sequence models begin with <s> and end with </s>",
          token);
    return static_cast<int32_t>(*id);
  };
  SpecialIds sources;
  if (given != nullptr) {
    sources.source_begin = given->source_begin;
    sources.source_end = given->source_end;
    sources.sources_as_tokenized = given->sources_as_tokenized;
  }
  return ends_between(tokenizer, id_of("<s>"), id_of("</s>"), sources);
}

}  // namespace qkv
