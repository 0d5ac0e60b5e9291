// Forced choice: the likelihood of each of several continuations of a prompt.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "qkv/models/transformer.h"
#include "qkv/text/tokenizer.h"

namespace qkv {

// A sequence whose tokens from `begin` on are scored. REQUIRES: 0 < begin < tokens.size().
struct Alternative {
  std::vector<int32_t> tokens;
  int64_t begin = 0;
};

// A token in its place.
struct ScoredToken {
  double log_p;       // log P(tokens[i] | tokens[< i])
  int32_t likeliest;  // the token that greedy decoding would write there
};

// The tokens i = begin, ... of each alternative. Their common beginning is computed once, the rest as one
// batch. `excluded`: ids that greedy decoding never writes. Throws Error if an alternative is longer than the
// model's context plus one token.
std::vector<std::vector<ScoredToken>> score_tokens(const Transformer& model,
                                                   const std::vector<Alternative>& alternatives,
                                                   std::span<const int32_t> excluded = {});

// The likelihood of a continuation.
struct ChoiceScore {
  double log_p = 0;  // natural logarithm of P(choice | prompt), the sum over its tokens
  int64_t tokens = 0;
  int64_t bytes = 0;     // bytes of the choice's text
  int64_t accepted = 0;  // its first tokens that greedy decoding would write, too
  std::string accepted_text = {};
  std::string instead = {};  // the token that greedy decoding would write then, if any is left

  double per_token() const { return log_p / static_cast<double>(tokens); }
  double per_byte() const { return log_p / static_cast<double>(bytes); }
};

// Scores each choice as text that follows the prompt. Prompt and choice are tokenized together; the
// choice's tokens begin where they differ from the tokens of the prompt alone. A tokenizer may join the
// prompt's end with the choice's beginning; the joint token then counts as the choice's. `bos` (-1: none)
// precedes a choice that nothing else precedes. `excluded` as above. Throws Error for a choice without tokens
// of its own.
std::vector<ChoiceScore> score_choices(const Transformer& model, const text::Tokenizer& tokenizer,
                                       const std::string& prompt, const std::vector<std::string>& choices,
                                       int64_t bos = -1, std::span<const int32_t> excluded = {});

}  // namespace qkv
