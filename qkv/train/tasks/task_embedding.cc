// Sentence embeddings: each text's vector should find the other text of its pair in the batch.
#include <fmt/format.h>

#include "qkv/base/hash.h"
#include "qkv/base/json_value.h"
#include "qkv/base/progress.h"
#include "qkv/train/corpora/corpus.h"
#include "qkv/train/tasks/tasks.h"
#include "qkv/train/tasks/text_pairs.h"

namespace qkv {
namespace {

// Training and validation pairs.
struct PairSplit {
  Notes notes;
  int64_t empty = 0;  // rows with an empty text
  std::vector<TextPair> train, valid;

  explicit PairSplit(const DataConfig& data) : train(read_text_pairs(data.train, data, &notes, &empty)) {
    if (!data.valid.empty()) {
      valid = read_text_pairs(data.valid, data, &notes, &empty);
      return;
    }
    const auto keep = static_cast<int64_t>(static_cast<double>(train.size()) * (1 - data.valid_fraction));
    valid.assign(train.begin() + keep, train.end());
    train.resize(keep);
  }
};

class Embedding : public TaskOfSequences {
 public:
  Embedding(const TrainConfig& config, text::Tokenizer tokenizer, const PairSplit& texts)
      : TaskOfSequences(config, std::move(tokenizer)),
        train_(texts.train, tokenizer_, config.model),
        valid_(texts.valid, tokenizer_, config.model),
        empty_(texts.empty),
        by_words_(config.data.second_column.empty() ? 0 : found_by_words(texts.valid)) {
    notes_ = texts.notes;
    std::vector<int32_t> ids;
    for (const auto* side : {&train_.first, &train_.second})
      for (const EncodedText& t : *side) ids.insert(ids.end(), t.encoding.ids.begin(), t.encoding.ids.end());
    unknown_ = tell_unknown(count_unknown(ids), std::ssize(ids));
    take_lengths(train_.lengths());
  }

  std::string data_text() const override {
    const int64_t cut = train_.cut() + valid_.cut();
    return fmt::format("{} training and {} validation pairs{}{}{}", train_.size(), valid_.size(), unknown_,
                       without_text(empty_),
                       cut > 0 ? fmt::format(" ({} cut to {} tokens)", cut, config_.model.context) : "");
  }
  std::string fingerprint() const override {
    std::string all;
    for (const EncodedPairs* pairs : {&train_, &valid_})
      for (const auto* texts : {&pairs->first, &pairs->second})
        for (const EncodedText& t : *texts) all += hash_of(std::as_bytes(std::span(t.encoding.ids)));
    return fmt::format("pairs = {} ({})\n", train_.size(), hash_of(std::as_bytes(std::span(all))));
  }
  Evaluation evaluate(const Transformer& model, int64_t, bool, Communicator& ranks) const override {
    return evaluate_pairs(model, valid_, ranks);
  }
  std::string text(const Evaluation& e) const override {
    return fmt::format("{:.4f} (retrieval accuracy {:.2f}% of {} candidates)", e.loss(),
                       100 * e.score("accuracy"), std::min(valid_.size(), kPairsToChooseFrom));
  }
  // None if each text is its own pair, which shares all words.
  std::vector<std::pair<std::string, double>> baselines() const override {
    if (config_.data.second_column.empty()) return {};
    return {{"shared words", by_words_}};
  }
  std::string best_by() const override { return "loss"; }
  OrderedJson sample(const Transformer&) const override { return OrderedJson::object(); }

 private:
  Batch training_batch(const std::vector<int64_t>& items, uint64_t, uint64_t) const override {
    return text_pair_batch(train_, items);
  }

  EncodedPairs train_, valid_;
  int64_t empty_;
  double by_words_;
  std::string unknown_;
};

}  // namespace

std::vector<std::string> embedding_texts(const TrainConfig& config) {
  std::vector<std::string> texts;
  for (const TextPair& p : PairSplit(config.data).train) texts.insert(texts.end(), {p.first, p.second});
  return texts;
}

std::unique_ptr<Task> make_embedding(const TrainConfig& config, const Origin* given) {
  const PairSplit texts(config.data);
  const auto trained = [&] {
    std::vector<std::string_view> both;
    for (const TextPair& p : texts.train) both.insert(both.end(), {p.first, p.second});
    try {
      return train_tokenizer(config.tokenizer, both, {config.objective});
    } catch (const Error& e) {
      fail("{}: {}", fmt::join(config.data.train, ", "), e.what());
    }
  };
  text::Tokenizer tokenizer = tokenizer_for(config, given, trained);
  return std::make_unique<Embedding>(config, std::move(tokenizer), texts);
}

}  // namespace qkv
