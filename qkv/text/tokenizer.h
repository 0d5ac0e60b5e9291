// Text to token ids and back, as a tokenizer.json of the Hugging Face ecosystem describes it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "qkv/text/lengths.h"
#include "qkv/text/post_processor.h"
#include "qkv/text/vocabulary.h"

// Tokenizers: the stages of tokenizer.json in the order in which a text meets them, and their trainers.
namespace qkv::text {

struct TokenizerParts;

// An immutable tokenizer. Copies share what they hold, and all functions may be called from several threads.
class Tokenizer {
 public:
  // From a directory with tokenizer.json, with vocab.json and merges.txt (byte-level BPE), with
  // tokenizer.model, spiece.model or sentencepiece.bpe.model (SentencePiece; the class around it is
  // tokenizer_config.json's) or with vocab.txt (BERT's; beside the last three tokenizer_config.json,
  // special_tokens_map.json and added_tokens.json are read); from a file in the format of tokenizer.json;
  // from a .model file, to run as SentencePiece itself runs it; or from tiktoken's rank files.
  static Tokenizer load(const std::string& path);

  // Whether a directory has files that load() takes.
  static bool exists(const std::string& path);

  // From the text of a tokenizer.json; `name` is what errors call it.
  static Tokenizer from_json(std::string_view document, const std::string& name = "tokenizer.json");

  explicit Tokenizer(TokenizerParts parts);

  // The tokenizer of the texts that a model translates from, where they have a vocabulary of their own; else
  // this one.
  const Tokenizer& of_sources() const { return sources_ ? *sources_ : *this; }
  bool has_own_sources() const { return sources_ != nullptr; }
  // Whether it makes the same tokens of every text, by what it is made of; what it says of lengths may
  // differ.
  bool same_as(const Tokenizer& other) const;
  // The same, with that of the sources beside it: in the folder "source" of a directory.
  Tokenizer with_sources(Tokenizer sources) const;
  // The same with these special tokens more, behind all others; tokens that it has already stay as they are.
  Tokenizer with_special_tokens(const std::vector<std::string>& contents) const;

  // Writes PATH (when it ends in .json) or PATH/tokenizer.json. A tokenizer that came from vocab.json with
  // add_prefix_space, or from a .model file, is written in that form again: tokenizer.json has no words for
  // its rules. (to_json() then holds the files, which no other program reads.)
  void save(const std::string& path) const;
  std::string to_json() const;

  // The tokens of a text, or of a pair of texts. Without add_special_tokens nothing is put around them;
  // special tokens spelt out in the text count as tokens either way. Offsets are bytes of the text. Text that
  // is not UTF-8 is taken by byte-level tokenizers and refused by all others.
  Encoding encode(std::string_view text, bool add_special_tokens = true) const;
  Encoding encode_pair(std::string_view first, std::string_view second, bool add_special_tokens = true) const;

  // The same of a text, or of a pair where there is a second, with no more tokens than `truncation` allows.
  // `cut`, if given, is set to whether that took any.
  Encoding encode_within(const Truncation& truncation, std::string_view first,
                         std::optional<std::string_view> second = std::nullopt,
                         bool add_special_tokens = true, bool* cut = nullptr) const;
  // What encode_within() gives, and behind it what that took: windows of each text that overlap by
  // truncation.stride tokens (Hugging Face's "overflowing" encodings). Of a pair every window of the first
  // text stands beside every one of the second: behind the first pair those of the first's other windows,
  // then the second's other windows beside the first's first.
  std::vector<Encoding> encode_windows(const Truncation& truncation, std::string_view first,
                                       std::optional<std::string_view> second = std::nullopt,
                                       bool add_special_tokens = true) const;
  // What the file says of lengths. encode() and encode_pair() leave it to their callers: a model's context
  // and the batches made for it know better.
  const std::optional<Truncation>& truncation() const;
  const std::optional<Padding>& padding() const;

  // The text of some tokens: exactly the bytes that were encoded, for a byte-level tokenizer. Refuses ids
  // that are no token's.
  std::string decode(std::span<const TokenId> ids, bool skip_special_tokens = false) const;

  // The text that `ids` add behind `context`: that of all tokens less the context's. A space between the two
  // belongs to it, which decode(ids) alone may lack (SentencePiece, WordPiece).
  std::string decode_after(std::span<const TokenId> context, std::span<const TokenId> ids,
                           bool skip_special_tokens = true) const;

  // One more than the largest id: the rows that an embedding needs.
  size_t vocab_size() const;
  std::optional<TokenId> token_to_id(std::string_view token) const;
  std::optional<std::string> id_to_token(TokenId id) const;
  bool is_special(TokenId id) const;
  TokenId unknown() const;  // stands for what is outside the vocabulary; kNoToken: nothing does
  // The ids below `limit` that no text comes of: no token's, and the one of the token for unknown characters.
  std::vector<TokenId> ids_without_text(size_t limit) const;

 private:
  Encoding encode_part(std::string_view text) const;
  // The two halves of encoding one text or two.
  std::vector<Encoding> encode_parts(const std::vector<std::string_view>& texts) const;
  Encoding assemble(std::vector<Encoding> parts, bool add_special_tokens) const;

  std::shared_ptr<const TokenizerParts> parts_;
  std::shared_ptr<const Tokenizer> sources_;
};

// Decodes tokens one at a time, for text that appears while it is generated: the same text as decode() gives,
// but for decoders whose later tokens change the text of earlier ones.
class StreamDecoder {
 public:
  // `context`: the tokens that the text continues; all pieces together are decode_after(context, ids).
  explicit StreamDecoder(Tokenizer tokenizer, bool skip_special_tokens = true,
                         std::span<const TokenId> context = {});

  // The text that `id` completes: whole characters only, so often nothing. Bytes that can no longer become a
  // character come as U+FFFD.
  std::string add(TokenId id);

  // The end: what is left of an incomplete character, as U+FFFD. Ready for another text afterwards.
  std::string finish();

 private:
  Tokenizer tokenizer_;
  bool skip_special_tokens_;
  std::vector<TokenId> window_;  // the last tokens: enough context for the decoder
  std::string begun_;            // the context's text, where it ends in U+FFFD that new tokens may replace
  std::string shown_;            // the window's text as far as it is in pending_ or was given out
  std::string held_;     // what follows: a decoder's stand-ins for bytes that may yet become a character
  std::string pending_;  // bytes of a character that is not complete yet
};

}  // namespace qkv::text
