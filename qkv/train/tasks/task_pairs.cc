// Sequence to sequence: targets given their sources.
#include <algorithm>

#include "qkv/base/json_value.h"
#include "qkv/base/message.h"
#include "qkv/base/progress.h"
#include "qkv/infer/translate.h"
#include "qkv/metrics/bleu.h"
#include "qkv/train/corpora/corpus.h"
#include "qkv/train/tasks/tasks.h"

namespace qkv {
namespace {

class SequenceToSequence : public TaskOfSequences {
 public:
  SequenceToSequence(const TrainConfig& config, PairCorpus corpus)
      : TaskOfSequences(config, std::move(corpus.tokenizer)),
        train_(std::move(corpus.train)),
        valid_(std::move(corpus.valid)),
        hash_(std::move(corpus.hash)),
        ends_(corpus.ends),
        skipped_(corpus.skipped),
        filtered_(corpus.filtered) {
    notes_ = std::move(corpus.notes);
    unknown_ = tell_unknown(train_.source.unknown + train_.target.unknown,
                            train_.source.size() + train_.target.size());
    take_lengths(pair_lengths(train_, ends_, config.model.context));
    // Spread evenly over the validation pairs: files are often sorted.
    const auto all = std::ssize(corpus.valid_texts.source);
    const int64_t n = std::min<int64_t>(config.eval_bleu, all);
    for (int64_t i = 0; i < n; ++i) {
      sources_.emplace_back(corpus.valid_texts.source[i * all / n]);
      targets_.emplace_back(corpus.valid_texts.target[i * all / n]);
    }
  }

  std::string data_text() const override {
    const CutPairs cut = count_cut(train_, ends_, config_.model.pair_layout()),
                   held = count_cut(valid_, ends_, config_.model.pair_layout());
    const int64_t sources = cut.sources + held.sources, targets = cut.targets + held.targets;
    return fmt::format("{} training pairs of {} + {} tokens and {} validation pairs{}{}{}{}",
                       human_count(train_.size()), human_count(train_.source.size()),
                       human_count(train_.target.size()), human_count(valid_.size()), unknown_,
                       skipped_ > 0 ? fmt::format(" ({} left out: a side is empty)", skipped_) : "",
                       filtered_.text(),
                       sources + targets > 0 ? fmt::format(" ({} sources and {} targets cut to {} tokens)",
                                                           sources, targets, config_.model.context)
                                             : "");
  }
  std::string fingerprint() const override { return fmt::format("pairs = {} ({})\n", train_.size(), hash_); }
  Evaluation evaluate(const Transformer& model, int64_t, bool, Communicator& ranks) const override {
    Evaluation e = qkv::evaluate(model, valid_, ends_, config_.batch_tokens, ranks);
    if (!sources_.empty()) add_scores(model, e, ranks);
    return e;
  }
  std::string text(const Evaluation& e) const override {
    return Task::text(e) + (e.scores.empty() ? ""
                                             : fmt::format(", BLEU {:.2f}, exact {:.2f}%", e.score("bleu"),
                                                           100 * e.score("exact_match")));
  }
  OrderedJson sample(const Transformer& model) const override {
    std::vector<int32_t> source =
        tokenizer_.of_sources()
            .encode(config_.sample_prompt.empty() ? "" : config_.data.prefix + config_.sample_prompt, false)
            .ids;
    const PairStream& from = valid_.size() > 0 ? valid_ : train_;
    if (source.empty()) {
      const auto first = from.source.tokens().first(static_cast<size_t>(from.source.starts()[1]));
      source.assign(first.begin(), first.end());
    }
    return sample_of_source(config_, tokenizer_, ends_, model, std::move(source));
  }

 private:
  // Those that are predicted.
  int64_t training_tokens() const override { return train_.target.size() + train_.size(); }
  Batch training_batch(const std::vector<int64_t>& items, uint64_t, uint64_t) const override {
    return pair_batch(train_, items, ends_, config_.model.pair_layout());
  }
  // Each rank translates a run of the sources.
  void add_scores(const Transformer& model, Evaluation& e, Communicator& ranks) const {
    BeamOptions greedy;
    greedy.beams = 1;
    const auto at = [&](int rank) { return sources_.begin() + std::ssize(sources_) * rank / ranks.size(); };
    const std::vector<std::string> mine(at(ranks.rank()), at(ranks.rank() + 1));
    std::string texts;
    for (const auto& best : translate({model, tokenizer_, ends_}, mine, greedy).best)
      put_text(texts, best.front().text);
    std::vector<std::string> outputs;
    for (const std::string& rank : ranks.gather(texts))
      for (std::string_view left = rank; !left.empty();) outputs.push_back(take_text(left));
    double exact = 0;
    for (size_t i = 0; i < outputs.size(); ++i) exact += outputs[i] == targets_[i];
    const BleuTokenizer tokenizer = bleu_tokenizer_for(targets_).tokenizer;
    e.scores = {{"bleu", corpus_bleu(outputs, targets_, tokenizer).score},
                {"exact_match", exact / static_cast<double>(outputs.size())}};
  }

  PairStream train_, valid_;
  std::vector<std::string> sources_, targets_;  // that are translated at each evaluation
  std::string hash_;
  SequenceEnds ends_;
  int64_t skipped_;
  Skipped filtered_;
  std::string unknown_;
};

}  // namespace

std::unique_ptr<Task> make_sequence_to_sequence(const TrainConfig& config, const Origin* given) {
  const ModelSpec& m = config.model;
  const bool alone = m.architecture == Architecture::decoder;
  PairCorpus corpus = load_pairs(config, given);
  check(m.context > corpus.ends.around_source() + (alone ? 1 : 0),
        "model.context: {} tokens leave no room for a source and its end", m.context);
  // A saved decoder says by these that it learnt from pairs, or by its order.
  check(!alone || m.order == Order::prefix || corpus.tokenizer.token_to_id("</s>"),
        "model.order: with a tokenizer that has no <s> and </s> a decoder learns from pairs as a prefix LM");
  return std::make_unique<SequenceToSequence>(config, std::move(corpus));
}

}  // namespace qkv
