// The tokens between which a sequence-to-sequence model reads sources and writes targets.
#pragma once

#include "qkv/data/pairs.h"
#include "qkv/io/model_dir.h"
#include "qkv/text/tokenizer.h"

namespace qkv {

// The token that ends documents.
inline constexpr const char* kEndOfText = "<|endoftext|>";

// These ends of targets, with what stands around sources: what `ids` say, or their tokenizer puts around
// texts, or its eos.
SequenceEnds ends_between(const text::Tokenizer& tokenizer, int32_t bos, int32_t eos,
                          const SpecialIds& ids = {});
// The ends of targets of the model with these ids, or else the ids of <s> and </s>. Throws Error where the
// tokenizer lacks either.
SequenceEnds sequence_ends(const text::Tokenizer& tokenizer, const SpecialIds* given = nullptr);

// The id of <|endoftext|>, which ends every document where the tokenizer has it; -1 where not.
int32_t end_of_text(const text::Tokenizer& tokenizer);
// True where the tokenizer puts that token before texts, and so it begins documents, too: a model learns how
// they begin.
bool begins_with_end_of_text(const text::Tokenizer& tokenizer);

}  // namespace qkv
