// Sentence embeddings: each text's vector finds the other text of its pair among those of the batch.
#include "qkv/base/hash.h"
#include "qkv/base/progress.h"
#include "qkv/data/length_batches.h"
#include "qkv/data/table.h"
#include "qkv/infer/predict.h"
#include "qkv/ops/elementwise.h"
#include "qkv/ops/rows.h"
#include "qkv/train/corpus.h"
#include "qkv/train/examples.h"
#include "qkv/train/tasks.h"

namespace qkv {
namespace {

// The pairs of texts of some files. Without a second column a text is its own pair: two passes differ by
// their dropout (Gao et al. 2021, SimCSE).
std::vector<TextPair> read_text_pairs(const std::vector<std::string>& files, const DataConfig& data) {
  std::vector<TextPair> out;
  for (const std::string& path : files) {
    Table table = read_table(path, data.columns);
    const size_t first = table.column(data.text_column),
                 second = data.second_column.empty() ? first : table.column(data.second_column);
    for (const auto& row : table.rows)
      if (!row[first].empty() && !row[second].empty()) out.push_back({row[first], row[second]});
  }
  check(out.size() > 1, "{}: there are no two texts to tell apart", fmt::join(files, ", "));
  return out;
}

// What is learnt from, and what it is judged by.
std::pair<std::vector<TextPair>, std::vector<TextPair>> train_and_valid_texts(const DataConfig& data) {
  std::vector<TextPair> train = read_text_pairs(data.train, data), valid;
  if (!data.valid.empty()) return {std::move(train), read_text_pairs(data.valid, data)};
  const auto keep = static_cast<int64_t>(static_cast<double>(train.size()) * (1 - data.valid_fraction));
  valid.assign(train.begin() + keep, train.end());
  train.resize(keep);
  return {std::move(train), std::move(valid)};
}

class Embedding : public TaskOfSequences {
 public:
  Embedding(const TrainConfig& config, text::Tokenizer tokenizer, const std::vector<TextPair>& train,
            const std::vector<TextPair>& valid)
      : TaskOfSequences(config, std::move(tokenizer)), train_(encoded(train)), valid_(encoded(valid)) {
    take_lengths(train_.lengths());
  }

  std::string data_text() const override {
    return fmt::format("{} training and {} validation pairs", train_.size(), valid_.size());
  }
  std::string fingerprint() const override {
    std::string all;
    for (const Side& side : {train_, valid_})
      for (const auto* texts : {&side.first, &side.second})
        for (const EncodedText& t : *texts) all += hash_of(std::as_bytes(std::span(t.encoding.ids)));
    return fmt::format("pairs = {} ({})\n", train_.size(), hash_of(std::as_bytes(std::span(all))));
  }
  // In batches of a fixed number of pairs: how many there are to choose from decides how hard it is.
  Evaluation evaluate(const Transformer& model, int64_t, bool) const override {
    constexpr int64_t kPairs = 64;
    const NoGrad guard;
    Evaluation e;
    int64_t found = 0;
    for (int64_t first = 0; first < valid_.size(); first += kPairs) {
      std::vector<int64_t> which;
      for (int64_t i = first; i < std::min(valid_.size(), first + kPairs); ++i) which.push_back(i);
      const Batch b = batch(valid_, which);
      const Tensor vectors = unit_rows(convert(model.pooled(model.hidden(b, {}), b), DType::f32));
      const auto pairs = std::ssize(which);
      const ContrastiveLoss c = contrastive_cross_entropy(vectors.slice_rows(0, pairs),
                                                          vectors.slice_rows(pairs, 2 * pairs), 0.05F, 1);
      e.total += c.total;
      e.tokens += pairs;
      found += c.found;
    }
    e.of_tokens = e.tokens;
    if (e.tokens > 0) e.scores = {{"accuracy", static_cast<double>(found) / static_cast<double>(e.tokens)}};
    return e;
  }
  std::string text(const Evaluation& e) const override {
    return fmt::format("{:.4f} (the other text found among 64: {:.2f}%)", e.loss(),
                       100 * e.score("accuracy"));
  }
  std::string best_by() const override { return "loss"; }
  OrderedJson sample(const Transformer&) const override { return OrderedJson::object(); }

 private:
  Batch training_batch(const std::vector<int64_t>& items, uint64_t, uint64_t) const override {
    return batch(train_, items);
  }
  struct Side {
    std::vector<EncodedText> first, second;
    int64_t size() const { return std::ssize(first); }
    std::vector<int64_t> lengths() const {
      std::vector<int64_t> out;
      for (size_t i = 0; i < first.size(); ++i)
        out.push_back(static_cast<int64_t>(first[i].encoding.size() + second[i].encoding.size()));
      return out;
    }
  };

  Side encoded(const std::vector<TextPair>& pairs) const {
    Side out;
    for (const TextPair& p : pairs) {
      out.first.push_back(encode_text({p.first, ""}, tokenizer_, config_.model));
      out.second.push_back(encode_text({p.second, ""}, tokenizer_, config_.model));
    }
    return out;
  }
  static Batch batch(const Side& side, const std::vector<int64_t>& which) {
    std::vector<EncodedText> texts;
    for (const int64_t i : which) texts.push_back(side.first[i]);
    for (const int64_t i : which) texts.push_back(side.second[i]);
    std::vector<int64_t> all(texts.size());
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
    Batch b;
    static_cast<ModelInput&>(b) = input_of(texts, all);
    b.target_count = std::ssize(which);
    return b;
  }

  Side train_, valid_;
};

}  // namespace

std::vector<std::string> embedding_texts(const TrainConfig& config) {
  std::vector<std::string> texts;
  for (const TextPair& p : train_and_valid_texts(config.data).first)
    texts.insert(texts.end(), {p.first, p.second});
  return texts;
}

std::unique_ptr<Task> make_embedding(const TrainConfig& config, const Origin* given) {
  const auto [train, valid] = train_and_valid_texts(config.data);
  const auto trained = [&, &train = train] {
    std::vector<std::string_view> texts;
    for (const TextPair& p : train) texts.insert(texts.end(), {p.first, p.second});
    try {
      return train_tokenizer(config.tokenizer, texts, {config.objective});
    } catch (const Error& e) {
      fail("{}: {}", fmt::join(config.data.train, ", "), e.what());
    }
  };
  text::Tokenizer tokenizer = tokenizer_for(config, given, trained);
  return std::make_unique<Embedding>(config, std::move(tokenizer), train, valid);
}

}  // namespace qkv
