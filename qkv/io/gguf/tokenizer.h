// The tokenizer of a GGUF file: the metadata tokenizer.*, read and written.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "qkv/io/container/gguf.h"
#include "qkv/text/tokenizer.h"

namespace qkv {

// A tokenizer and what a model's directory keeps beside it.
struct GgufTokenizer {
  text::Tokenizer tokenizer;
  // The text of tokenizer_config.json: the special tokens by name, flags and the chat templates. "gguf" in it
  // holds what only GGUF has. Empty: none.
  std::string config = {};
  int64_t bos = -1, pad = -1;      // token ids; -1: none
  std::vector<int64_t> eos = {};   // any of them ends a text
  std::string sentencepiece = {};  // bytes of a .model file beside tokenizer.json, which has its scores
  std::string warning = {};        // a line for the user; empty: none
};

// The tokenizer that the metadata describes, with the ids that llama.cpp gives (src/llama-vocab.cpp):
// - "llama" and "t5" become a SentencePiece model, which is saved as tokenizer.model;
// - "gpt2" becomes byte-level BPE cut by the pre-tokenizer that tokenizer.ggml.pre names, "bert" WordPiece.
// Control, unknown and user-defined tokens count as tokens wherever a text spells them out. Texts that end
// are those of llama.cpp: eos, eot, eom and the tokens that it knows by their names. Special ids beyond the
// vocabulary are ignored. Throws Error naming the file and the key, also for other models and pre-tokenizers.
GgufTokenizer tokenizer_of_gguf(const Gguf& file);

// The metadata of a tokenizer, as convert_hf_to_gguf.py writes it. `rows`: rows of the embedding; ids without
// a token become unused tokens "[PAD123]". The pre-tokenizer's name is recognised by its patterns. Two
// differences have no place in the format and are dropped: NFC before byte-level BPE, and flags by which
// added tokens take white space. Ends of a text beyond eos, eot and eom are kept only if llama.cpp knows them
// by name. Throws Error with the reason if GGUF cannot express the tokenizer.
std::vector<std::pair<std::string, GgufValue>> gguf_of_tokenizer(const GgufTokenizer& from, size_t rows);

// The files of a directory from which gguf_of_tokenizer() makes metadata. The ids of config.json and
// generation_config.json are left to the caller.
GgufTokenizer tokenizer_of_directory(const std::string& directory);

}  // namespace qkv
