// The special tokens around sources and targets of a sequence-to-sequence model.
#pragma once

#include "qkv/data/pairs.h"
#include "qkv/io/model_dir.h"
#include "qkv/text/tokenizer.h"

namespace qkv {

// The token that ends documents.
inline constexpr const char* kEndOfText = "<|endoftext|>";

// These tokens around targets, with those around sources: from `ids`, or as the tokenizer puts them around
// texts, or its eos.
SequenceEnds ends_between(const text::Tokenizer& tokenizer, int32_t bos, int32_t eos,
                          const SpecialIds& ids = {});
// The tokens around targets of the model with these ids, or else <s> and </s>. Throws Error if the
// tokenizer lacks either.
SequenceEnds sequence_ends(const text::Tokenizer& tokenizer, const SpecialIds* given = nullptr);

// The id of <|endoftext|>, which ends every document if the tokenizer has it; else -1.
int32_t end_of_text(const text::Tokenizer& tokenizer);
// True if the tokenizer puts that token before texts. It then also begins documents, so that a model learns
// how they begin.
bool begins_with_end_of_text(const text::Tokenizer& tokenizer);

}  // namespace qkv
