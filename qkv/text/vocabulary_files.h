// Tokenizers in formats older than tokenizer.json: a vocabulary, and small files beside it that add tokens
// and settings.
#pragma once

#include <string>

#include "qkv/text/tokenizer_parts.h"

namespace qkv::text {

// Loads byte-level BPE from vocab.json and merges.txt. The other stages follow from the class in
// tokenizer_config.json: GPT-2, RoBERTa and its relatives, CLIP, Qwen2. Without a class they are CLIP's if
// the vocabulary looks like CLIP's, else GPT-2's. Throws Error for other classes.
TokenizerParts load_byte_pair_files(const std::string& path);

// Writes GPT-2's files, for tokenizers that tokenizer.json cannot express.
void save_gpt2_files(const TokenizerParts& parts, const std::string& path);

// Loads BERT's vocab.txt, one token a line, with do_lower_case, strip_accents, tokenize_chinese_chars and
// clean_up_tokenization_spaces of tokenizer_config.json. Behaves like transformers' BertTokenizer, which
// converts text that keeps its accents to NFC (BertTokenizerFast does not) and cleans up decoded text as a
// whole.
TokenizerParts load_bert_files(const std::string& path);

// True if tokenizer_config.json names PerceiverTokenizer, whose tokens are bytes, without a vocabulary file.
bool has_byte_class(const std::string& path);

// Loads transformers' PerceiverTokenizer: [PAD], [BOS], [EOS], [MASK], [CLS] and [SEP] under the names that
// tokenizer_config.json gives them, then the 256 bytes. Texts get [CLS] before and [SEP] behind them.
TokenizerParts load_byte_files(const std::string& path);

}  // namespace qkv::text
