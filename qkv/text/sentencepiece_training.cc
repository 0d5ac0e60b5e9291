#include "qkv/text/sentencepiece_training.h"

#include <sentencepiece_trainer.h>

#include <algorithm>
#include <unordered_map>

#include "qkv/base/error.h"

namespace qkv::text {
namespace {

constexpr size_t kLongestSentence = 4096;           // bytes; the library skips longer sentences
constexpr size_t kSentenceProgressBytes = 1 << 24;  // bytes of text

// The lines of some texts. Long lines are cut before a space if they have one.
class Sentences : public sentencepiece::SentenceIterator {
 public:
  Sentences(std::span<const std::string_view> texts, const SentencePieceTraining& training)
      : texts_(texts), training_(training) {
    for (const std::string_view text : texts) total_ += text.size();
    Next();
  }

  bool done() const override { return done_; }
  const std::string& value() const override { return sentence_; }
  sentencepiece::util::Status status() const override { return {}; }

  void Next() override {
    while (text_ < texts_.size() && at_ >= texts_[text_].size()) {
      ++text_;
      at_ = 0;
    }
    done_ = text_ == texts_.size();
    if (done_) return;
    const std::string_view rest = texts_[text_].substr(at_);
    const size_t line = std::min(rest.find('\n'), rest.size());
    const size_t length = line <= kLongestSentence ? line : cut(rest);
    sentence_ = rest.substr(0, length);
    const size_t taken = length == line ? length + 1 : length;
    if (training_.progress && (given_ + taken) / kSentenceProgressBytes != given_ / kSentenceProgressBytes)
      training_.progress(std::min(given_ + taken, total_), total_);
    at_ += taken;
    given_ += taken;
  }

 private:
  static size_t cut(std::string_view text) {
    const size_t space = text.substr(0, kLongestSentence).rfind(' ');
    if (space != text.npos && space > 0) return space;
    size_t end = kLongestSentence;
    while (end > 1 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
    return end;
  }

  std::span<const std::string_view> texts_;
  const SentencePieceTraining& training_;
  size_t text_ = 0, at_ = 0, given_ = 0, total_ = 0;
  bool done_ = false;
  std::string sentence_;
};

// Strings as one line of quoted, comma-separated values.
std::string as_csv(const std::vector<std::string>& strings) {
  std::string line;
  for (const std::string& string : strings) {
    line += line.empty() ? "\"" : ",\"";
    for (const char c : string) line.append(c == '"' ? 2 : 1, c);
    line += '"';
  }
  return line;
}

}  // namespace

std::string train_sentencepiece_file(std::span<const std::string_view> texts,
                                     const SentencePieceTraining& training) {
  std::unordered_map<std::string, std::string> arguments = {
      {"model_type", training.bpe ? "bpe" : "unigram"},
      {"vocab_size", std::to_string(training.vocab_size)},
      {"hard_vocab_limit", "false"},
      {"normalization_rule_name", "identity"},
      {"remove_extra_whitespaces", "false"},
      {"allow_whitespace_only_pieces", "true"},
      {"byte_fallback", "true"},
      {"split_digits", training.bpe ? "true" : "false"},  // as in Llama's models
      {"max_sentence_length", std::to_string(kLongestSentence)},
      {"num_threads", "16"},  // fixed, because sums depend on the number of parts
      {"minloglevel", "2"},
      {"bos_id", "-1"},
      {"eos_id", "-1"},
      {"pad_id", "-1"}};
  const std::pair<const char*, const char*> roles[] = {
      {"<unk>", "unk_id"}, {"<s>", "bos_id"}, {"</s>", "eos_id"}, {"<pad>", "pad_id"}};
  std::vector<std::string> others;
  for (size_t i = 0; i < training.special_tokens.size(); ++i) {
    const std::string& token = training.special_tokens[i];
    const auto role =
        std::find_if(std::begin(roles), std::end(roles), [&](const auto& r) { return r.first == token; });
    if (role != std::end(roles)) {
      arguments[role->second] = std::to_string(i);
    } else {
      others.push_back(token);
    }
  }
  if (!others.empty()) arguments["control_symbols"] = as_csv(others);

  Sentences sentences(texts, training);
  std::string file;
  const auto status = sentencepiece::SentencePieceTrainer::Train(arguments, &sentences, &file);
  check(status.ok(), "tokenizer training: SentencePiece: {}", status.ToString());
  return file;
}

}  // namespace qkv::text
