#include "qkv/io/gguf/tokenizer_vocab.h"

#include <algorithm>
#include <cmath>

#include "qkv/base/error.h"
#include "qkv/io/gguf/tokenizer_pre.h"
#include "qkv/text/unicode.h"

namespace qkv::gguf {
namespace {

using text::kNoToken;
using text::TokenId;

constexpr std::string_view kTokens = "tokenizer.ggml.tokens", kScores = "tokenizer.ggml.scores",
                           kTypes = "tokenizer.ggml.token_type";

TokenizerModel model_of(const Gguf& file) {
  const std::string& name = file.string("tokenizer.ggml.model");
  static constexpr std::pair<std::string_view, TokenizerModel> kModels[] = {{"llama", TokenizerModel::llama},
                                                                            {"gpt2", TokenizerModel::gpt2},
                                                                            {"bert", TokenizerModel::bert},
                                                                            {"t5", TokenizerModel::t5}};
  for (const auto& [known, model] : kModels)
    if (name == known) return model;
  check(name != "no_vocab" && name != "none", "{}: tokenizer.ggml.model: '{}': the file has no tokenizer",
        file.path, name);
  fail("{}: tokenizer.ggml.model: '{}' is not supported (known: llama, gpt2, bert, t5)", file.path, name);
}

void read_tokens(const Gguf& file, Vocab& vocab) {
  vocab.tokens = file.strings(kTokens);
  check(!vocab.tokens.empty() && vocab.size() <= static_cast<size_t>(text::kLargestTokenId),
        "{}: {}: {} tokens, expected 1 to {}", file.path, kTokens, vocab.size(), text::kLargestTokenId);
  for (size_t i = 0; i < vocab.size(); ++i)
    if (vocab.tokens[i].empty()) vocab.tokens[i] = fmt::format("[EMPTY_{}]", i);
  vocab.ids.reserve(vocab.size());
  for (size_t i = 0; i < vocab.size(); ++i) {
    const std::string& token = vocab.tokens[i];
    if (text::find_invalid_utf8(token) != std::string_view::npos)
      fail("{}: {}[{}]: not UTF-8", file.path, kTokens, i);
    const auto [at, fresh] = vocab.ids.emplace(token, static_cast<TokenId>(i));
    check(fresh, "{}: {}[{}]: \"{}\" is token {} already", file.path, kTokens, i, token, at->second);
  }
}

void read_scores_and_types(const Gguf& file, Vocab& vocab) {
  if (file.has(kScores)) {
    vocab.scores = file.numbers(kScores);
    check(vocab.scores.size() == vocab.size(), "{}: {}: {} scores of {} tokens", file.path, kScores,
          vocab.scores.size(), vocab.size());
    for (size_t i = 0; i < vocab.size(); ++i)
      check(std::isfinite(static_cast<float>(vocab.scores[i])), "{}: {}[{}]: not a finite number", file.path,
            kScores, i);
  }
  vocab.types.assign(vocab.size(), TokenType::normal);
  if (!file.has(kTypes)) return;
  const std::vector<int64_t>& codes = file.integers(kTypes);
  check(codes.size() == vocab.size(), "{}: {}: {} types of {} tokens", file.path, kTypes, codes.size(),
        vocab.size());
  for (size_t i = 0; i < vocab.size(); ++i) {
    check(codes[i] >= 0 && codes[i] <= 6, "{}: {}[{}]: {} is no type (0 to 6)", file.path, kTypes, i,
          codes[i]);
    if (codes[i] > 0) vocab.types[i] = static_cast<TokenType>(codes[i]);
  }
}

struct DefaultId {
  TokenizerModel model;
  std::string_view name;
  TokenId id;
};
// llama.cpp's, where the file names none.
constexpr DefaultId kDefaultIds[] = {
    {TokenizerModel::llama, "bos_token", 1},  {TokenizerModel::llama, "eos_token", 2},
    {TokenizerModel::llama, "unk_token", 0},  {TokenizerModel::gpt2, "bos_token", 11},
    {TokenizerModel::gpt2, "eos_token", 11},  {TokenizerModel::bert, "bos_token", 101},
    {TokenizerModel::bert, "unk_token", 100}, {TokenizerModel::bert, "sep_token", 102},
    {TokenizerModel::bert, "pad_token", 0},   {TokenizerModel::bert, "mask_token", 103},
    {TokenizerModel::t5, "eos_token", 1},     {TokenizerModel::t5, "unk_token", 2},
    {TokenizerModel::t5, "pad_token", 0}};

void read_special_ids(const Gguf& file, Vocab& vocab) {
  const auto in_vocabulary = [&](int64_t id) { return id >= 0 && id < static_cast<int64_t>(vocab.size()); };
  const bool typed = file.has(kTypes);
  for (const auto& [model, name, id] : kDefaultIds) {
    // A word is no special token. A byte-level vocabulary without types says nothing about it.
    const bool plausible =
        in_vocabulary(id) && (typed ? is_spelt_out(vocab.type(id)) : model != TokenizerModel::gpt2);
    if (model == vocab.model && plausible) vocab.special.emplace(name, id);
  }
  for (const SpecialName& special : kSpecialNames)
    for (const std::string_view key : {special.old_key, special.key})
      if (!key.empty() && file.has(key))
        if (const int64_t id = file.integer(key); in_vocabulary(id))
          vocab.special.insert_or_assign(std::string(special.name), static_cast<TokenId>(id));
  // BERT's first token has either name.
  if (vocab.model == TokenizerModel::bert && !file.has("tokenizer.ggml.bos_token_id") &&
      file.has("tokenizer.ggml.cls_token_id"))
    if (const TokenId cls = vocab.special_id("cls_token"); cls != kNoToken) vocab.special["bos_token"] = cls;
}

void read_flags(const Gguf& file, Vocab& vocab) {
  const bool spm = vocab.model == TokenizerModel::llama, wpm = vocab.model == TokenizerModel::bert,
             ugm = vocab.model == TokenizerModel::t5;
  vocab.add_bos = spm || wpm;
  vocab.add_eos = ugm;
  vocab.add_sep = wpm;
  vocab.add_space_prefix = spm;
  if (vocab.model == TokenizerModel::gpt2) {
    const PreTokenizer* pre = find_pre_tokenizer(vocab.pre.empty() ? "default" : vocab.pre);
    check(pre != nullptr, "{}: tokenizer.ggml.pre: '{}' is no pre-tokenizer that qkv knows ({})", file.path,
          vocab.pre, pre_tokenizer_names());
    vocab.add_bos = pre->add_bos;
    vocab.add_sep = pre->add_sep;
  }
  const auto read = [&](std::string_view key, bool& flag) {
    if (file.has(key)) flag = file.boolean(key);
  };
  read("tokenizer.ggml.add_space_prefix", vocab.add_space_prefix);
  read("tokenizer.ggml.remove_extra_whitespaces", vocab.remove_extra_whitespaces);
  struct Added {
    std::string_view key;
    bool& flag;
    std::string_view name;
  };
  for (const auto& [key, flag, name] : {Added{"tokenizer.ggml.add_bos_token", vocab.add_bos, "bos_token"},
                                        Added{"tokenizer.ggml.add_eos_token", vocab.add_eos, "eos_token"},
                                        Added{"tokenizer.ggml.add_sep_token", vocab.add_sep, "sep_token"}}) {
    read(key, flag);
    if (wpm && name != "eos_token") flag = true;  // llama.cpp puts both around every text
    if (!flag || vocab.special_id(name) != kNoToken) continue;
    // Without the key, a default that cannot hold is none.
    check(!file.has(key) && !wpm, "{}: {} is true, but the file names no {}", file.path, key, name);
    flag = false;
  }
}

}  // namespace

TokenId Vocab::find(std::string_view text) const {
  const auto it = ids.find(text);
  return it == ids.end() ? kNoToken : it->second;
}

TokenId Vocab::special_id(std::string_view name) const {
  const auto it = special.find(name);
  return it == special.end() ? kNoToken : it->second;
}

Vocab vocab_of(const Gguf& file) {
  Vocab vocab;
  vocab.path = file.path;
  vocab.model = model_of(file);
  if (file.has("tokenizer.ggml.pre")) vocab.pre = file.string("tokenizer.ggml.pre");
  text::check_utf8(vocab.pre, file.path + ": tokenizer.ggml.pre");
  if (vocab.pre.empty() && vocab.model == TokenizerModel::gpt2)
    vocab.warning = fmt::format(
        "{}: tokenizer.ggml.pre is missing: texts are cut as 'default' says, which few models were trained "
        "with",
        file.path);
  read_tokens(file, vocab);
  read_scores_and_types(file, vocab);
  read_special_ids(file, vocab);
  read_flags(file, vocab);
  return vocab;
}

bool ends_by_text(std::string_view token) {
  static constexpr std::string_view kEnds[] = {
      "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>",
      "<end_of_turn>", "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]",
      "<|end_of_text|>", "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>", "[e~[",
      "<\xEF\xBD\x9C"
      "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>",
      // A text of code goes on with another file.
      "<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>",
      "<reponame>", "<|file_sep|>"};
  return std::ranges::find(kEnds, token) != std::end(kEnds);
}

std::vector<int64_t> ends_of_text(const Vocab& vocab) {
  std::vector<int64_t> ends;
  const auto add = [&](TokenId id) {
    if (id != kNoToken && std::find(ends.begin(), ends.end(), id) == ends.end()) ends.push_back(id);
  };
  for (const std::string_view name :
       {"eos_token", "eot_token", "eom_token", "fim_pad_token", "fim_rep_token", "fim_sep_token"})
    add(vocab.special_id(name));
  const bool has_call = vocab.find("<|call|>") != kNoToken || vocab.find("<|calls|>") != kNoToken;
  // Replies of these vocabularies end with another token than messages do.
  const bool end_of_message =
      has_call && (vocab.find("<|return|>") != kNoToken || vocab.find("<|flush|>") != kNoToken);
  const bool has_tools = vocab.find("<|tool_response>") != kNoToken;
  for (size_t i = 0; i < vocab.size(); ++i) {
    const std::string& token = vocab.tokens[i];
    if (!is_spelt_out(vocab.types[i]) || !ends_by_text(token)) continue;
    if ((token == "<|end|>" && end_of_message) || (token == "</s>" && has_tools)) continue;
    add(static_cast<TokenId>(i));
  }
  return ends;
}

}  // namespace qkv::gguf
