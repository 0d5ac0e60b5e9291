// Tokenizers in the forms from before tokenizer.json: a vocabulary, and small files beside it that add tokens
// and settings.
#pragma once

#include <string>

#include "qkv/text/tokenizer_parts.h"

namespace qkv::text {

// Byte-level BPE's form: vocab.json and merges.txt. What is around them tokenizer_config.json's class says
// (GPT-2's where it says none; RoBERTa's and its kin's, CLIP's, Qwen2's); another is refused.
TokenizerParts load_byte_pair_files(const std::string& path);

// Writes GPT-2's, for what tokenizer.json cannot say.
void save_gpt2_files(const TokenizerParts& parts, const std::string& path);

// BERT's form: vocab.txt, one token a line, and do_lower_case, strip_accents, tokenize_chinese_chars and
// clean_up_tokenization_spaces in tokenizer_config.json. Means what transformers' BertTokenizer does, which
// puts text that keeps its accents into NFC (BertTokenizerFast does not) and cleans up decoded text as a
// whole.
TokenizerParts load_bert_files(const std::string& path);

}  // namespace qkv::text
