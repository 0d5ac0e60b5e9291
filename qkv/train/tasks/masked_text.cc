#include "qkv/train/tasks/masked_text.h"

#include <algorithm>
#include <cmath>

#include "qkv/data/length_batches.h"

namespace qkv {
namespace {

// Tokens that continue the word before them: "##ing" of WordPiece, or those without the mark of a word's
// start where others have one.
std::vector<bool> inner_tokens(const text::Tokenizer& tokenizer) {
  std::vector<std::string> tokens(tokenizer.vocab_size());
  bool hashes = false, marks = false;
  const auto starts_word = [](const std::string& t) {
    return t.starts_with("\u0120") || t.starts_with("\u2581");
  };
  for (size_t id = 0; id < tokens.size(); ++id) {
    tokens[id] = tokenizer.id_to_token(static_cast<text::TokenId>(id)).value_or("");
    hashes = hashes || (tokens[id].size() > 2 && tokens[id].starts_with("##"));
    marks = marks || starts_word(tokens[id]);
  }
  std::vector<bool> inner(tokens.size());
  for (size_t id = 0; id < tokens.size(); ++id)
    inner[id] =
        hashes ? tokens[id].size() > 2 && tokens[id].starts_with("##") : marks && !starts_word(tokens[id]);
  return inner;
}

}  // namespace

Masking masking_for(const text::Tokenizer& tokenizer, Masking rates) {
  rates.mask = encoder_tokens(tokenizer).mask;
  rates.vocab_size = static_cast<int32_t>(tokenizer.vocab_size());
  rates.special.clear();
  for (size_t id = 0; id < tokenizer.vocab_size(); ++id)
    rates.special.push_back(tokenizer.is_special(static_cast<text::TokenId>(id)));
  if (rates.whole_words) rates.inner = inner_tokens(tokenizer);
  return rates;
}

std::vector<Piece> pieces_with_words(const TokenStream& stream, const text::Tokenizer& tokenizer,
                                     int64_t context, int64_t ends) {
  std::vector<Piece> out = pieces_of(stream, context - ends);
  const auto tokens = stream.tokens();
  std::erase_if(out, [&](const Piece& p) {
    return std::all_of(tokens.begin() + p.begin, tokens.begin() + p.end,
                       [&](int32_t id) { return tokenizer.is_special(static_cast<text::TokenId>(id)); });
  });
  return out;
}

std::vector<int64_t> lengths_of(const std::vector<Piece>& pieces) {
  std::vector<int64_t> out;
  for (const Piece& p : pieces) out.push_back(p.end - p.begin + 2);
  return out;
}

Evaluation evaluate_masked(const Transformer& model, const TokenStream& stream,
                           const std::vector<Piece>& pieces, const Masking& masking,
                           const EncoderTokens& ends, int64_t tokens, uint64_t seed, Communicator& ranks) {
  const NoGrad guard;
  Evaluation e;
  const auto batches = batches_by_length(lengths_of(pieces), tokens);
  // For each batch: the losses of hidden tokens, how many next sentences there are, and how many are found.
  const auto found = ranks.share(std::ssize(batches), [&](int64_t batch) {
    std::vector<Piece> chosen;
    for (const int64_t i : batches[static_cast<size_t>(batch)]) chosen.push_back(pieces[i]);
    const Batch b = masked_batch(stream, chosen, {ends.first, ends.last}, masking, seed, 0);
    const CrossEntropyResult r = model.loss(b, b.targets, {}, 1);
    std::vector<double> numbers = {r.total, static_cast<double>(r.count), 0, 0};
    if (!b.sequence_targets.defined()) return numbers;
    const Tensor scores = model.classes(model.hidden(b, {}), b, {});
    const auto wanted = b.sequence_targets.values();
    for (size_t s = 0; s < wanted.size(); ++s) {
      if (wanted[s] == kIgnored) continue;
      const auto z = scores.row<float>(static_cast<int64_t>(s));
      numbers[2] += 1;
      numbers[3] += std::ranges::max_element(z) - z.begin() == wanted[s] ? 1 : 0;
    }
    return numbers;
  });
  double sentences = 0, right = 0;
  for (const std::vector<double>& numbers : found) {
    e.total += numbers[0];
    e.tokens += std::llround(numbers[1]);
    sentences += numbers[2];
    right += numbers[3];
  }
  e.examples = std::llround(sentences);
  if (e.examples > 0) e.scores = {{"next_sentence", right / sentences}};
  e.of_tokens = e.tokens;
  return e;
}

}  // namespace qkv
