// Converts text to token ids and back, as described by a tokenizer.json of the Hugging Face ecosystem.
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

// Tokenizers: the stages of tokenizer.json in the order in which they run, and their trainers.
namespace qkv::text {

struct TokenizerParts;

// An immutable tokenizer. Copies share their data, and all functions may be called from several threads.
class Tokenizer {
 public:
  // Loads a tokenizer from one of these:
  // - a directory with tokenizer.json;
  // - a directory with vocab.json and merges.txt (byte-level BPE), with tokenizer.model, spiece.model or
  //   sentencepiece.bpe.model (SentencePiece), or with vocab.txt (BERT); tokenizer_config.json,
  //   special_tokens_map.json and added_tokens.json are read as well, and the first has the class;
  // - a directory whose tokenizer_config.json has a class of bytes (Perceiver);
  // - a rank file of tiktoken, or a directory with one;
  // - a .model file, which runs as SentencePiece itself runs it;
  // - any other file, in the format of tokenizer.json.
  static Tokenizer load(const std::string& path);

  // True if the directory has files that load() can read.
  static bool exists(const std::string& path);

  // Parses the text of a tokenizer.json; errors call it `name`.
  static Tokenizer from_json(std::string_view document, const std::string& name = "tokenizer.json");

  explicit Tokenizer(TokenizerParts parts);

  // The tokenizer of the source texts of a translation model, if they have a vocabulary of their own; else
  // this one.
  const Tokenizer& of_sources() const { return sources_ ? *sources_ : *this; }
  bool has_own_sources() const { return sources_ != nullptr; }
  // True if both are built from the same stages and so encode every text alike; truncation and padding may
  // differ.
  bool same_as(const Tokenizer& other) const;
  // The same tokenizer with another one for source texts, which is saved in the folder "source".
  Tokenizer with_sources(Tokenizer sources) const;
  // The same tokenizer for all texts.
  Tokenizer without_sources() const;
  // The same tokenizer with these special tokens added after all others. Tokens that it already has stay
  // unchanged.
  Tokenizer with_special_tokens(const std::vector<std::string>& contents) const;

  // Writes PATH (if it ends in .json) or PATH/tokenizer.json. A tokenizer from vocab.json with
  // add_prefix_space, or from a .model file, is written in that form again, because tokenizer.json cannot
  // express its rules. (For a .model file, to_json() embeds the files, which no other program reads.)
  void save(const std::string& path) const;
  std::string to_json() const;

  // The tokens of a text, or of a pair of texts. Without add_special_tokens, none are added around them;
  // special tokens spelt out in the text count as tokens either way. Offsets are bytes of the text.
  // Byte-level tokenizers accept text that is not UTF-8; all others throw Error.
  Encoding encode(std::string_view text, bool add_special_tokens = true) const;
  Encoding encode_pair(std::string_view first, std::string_view second, bool add_special_tokens = true) const;

  // Encodes a text, or a pair if there is a second, with no more tokens than `truncation` allows. `cut`, if
  // given, is set to true if tokens were removed, else to false.
  Encoding encode_within(const Truncation& truncation, std::string_view first,
                         std::optional<std::string_view> second = std::nullopt,
                         bool add_special_tokens = true, bool* cut = nullptr) const;
  // Returns what encode_within() returns, then the tokens it removed: windows of each text that overlap by
  // truncation.stride tokens (Hugging Face's "overflowing" encodings). For a pair, every window of the
  // first text is combined with every window of the second. The order is: the pair of first windows, then
  // the other windows of the first text, each with all windows of the second. Last come the other windows
  // of the second text with the first window of the first.
  std::vector<Encoding> encode_windows(const Truncation& truncation, std::string_view first,
                                       std::optional<std::string_view> second = std::nullopt,
                                       bool add_special_tokens = true) const;
  // Truncation and padding settings of the file. encode() and encode_pair() leave them to their callers,
  // who know the model's context and batches.
  const std::optional<Truncation>& truncation() const;
  const std::optional<Padding>& padding() const;

  // Decodes tokens; a byte-level tokenizer returns exactly the bytes that were encoded. Throws Error for
  // ids that no token has.
  std::string decode(std::span<const TokenId> ids, bool skip_special_tokens = false) const;

  // The text that `ids` add after `context`: the text of all tokens without the context's. It keeps a space
  // between the two, which decode(ids) alone may drop (SentencePiece, WordPiece).
  std::string decode_after(std::span<const TokenId> context, std::span<const TokenId> ids,
                           bool skip_special_tokens = true) const;

  // The largest id plus one: the number of rows that an embedding needs.
  size_t vocab_size() const;
  std::optional<TokenId> token_to_id(std::string_view token) const;
  std::optional<std::string> id_to_token(TokenId id) const;
  bool is_special(TokenId id) const;
  TokenId unknown() const;  // token for text outside the vocabulary; kNoToken: none
  // The ids below `limit` that stand for no text: ids without a token, and the unknown token.
  std::vector<TokenId> ids_without_text(size_t limit) const;

 private:
  Encoding encode_part(std::string_view text) const;
  // The two halves of encoding one text or two.
  std::vector<Encoding> encode_parts(const std::vector<std::string_view>& texts) const;
  Encoding assemble(std::vector<Encoding> parts, bool add_special_tokens) const;

  std::shared_ptr<const TokenizerParts> parts_;
  std::shared_ptr<const Tokenizer> sources_;
};

// Decodes tokens one at a time, for text that is shown while it is generated. The text is that of decode(),
// except for decoders whose later tokens change the text of earlier ones.
class StreamDecoder {
 public:
  // `context`: the tokens that the text continues; the returned pieces add up to decode_after(context,
  // ids).
  explicit StreamDecoder(Tokenizer tokenizer, bool skip_special_tokens = true,
                         std::span<const TokenId> context = {});

  // Returns the text that `id` completes: whole characters only, so often nothing. Bytes that can no longer
  // become a character are returned as U+FFFD.
  std::string add(TokenId id);

  // Ends the text and returns the rest of an incomplete character as U+FFFD. The object is then ready for
  // another text.
  std::string finish();

 private:
  Tokenizer tokenizer_;
  bool skip_special_tokens_;
  std::vector<TokenId> window_;  // the last tokens: enough context for the decoder
  std::string begun_;            // the context's text; it may end in U+FFFD that new tokens may replace
  std::string shown_;            // the part of the window's text that is in pending_ or was returned
  std::string held_;             // the text after it: replacements for bytes that may yet become a character
  std::string pending_;          // bytes of a character that is not complete yet
};

}  // namespace qkv::text
