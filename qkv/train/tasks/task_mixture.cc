// Several datasets in one run (Raffel et al. 2020, section 3.5.2): each micro-batch comes from one of them,
// drawn by weight.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "qkv/base/json_value.h"
#include "qkv/text/unicode.h"
#include "qkv/train/corpora/corpus.h"
#include "qkv/train/corpora/examples.h"
#include "qkv/train/tasks/tasks.h"

namespace qkv {
namespace {

bool is_labelled(Objective o) {
  return o == Objective::classify || o == Objective::multi_label || o == Objective::multiple_choice ||
         o == Objective::tag || o == Objective::answer;
}

// The configuration for a single dataset, whose micro-batches are requested one by one.
TrainConfig config_of(const TrainConfig& run, size_t part) {
  const MixedSet& set = run.mix[part];
  TrainConfig c = run;
  c.mix.clear();
  c.objective = set.objective;
  c.data = set.data;
  c.data.cache = run.data.cache;
  c.data.split_seed = run.data.split_seed;
  c.batch_tokens = run.tokens_of_pass();
  c.accumulate = c.shards = 1;
  // Different seeds: otherwise sets of equal size would be shuffled in the same way.
  constexpr uint64_t kGolden = 0x9E3779B97F4A7C15;
  c.seed = run.seed + kGolden * part;
  return c;
}

// Calls f(). Errors name the dataset.
template <typename F>
void naming_set(const TrainConfig& config, size_t part, const F& f) {
  try {
    f();
  } catch (const Error& e) {
    fail("mix.{}: {}", config.mix[part].name, e.what());
  }
}

class Mixture : public Task {
 public:
  Mixture(const TrainConfig& config, const Origin& shared)
      : Task(config, shared.tokenizer), counts_(config.mix.size(), 0) {
    for (const MixedSet& set : config.mix) total_weight_ += set.weight;
    const std::vector<std::string> labels = labels_of_all();
    for (size_t p = 0; p < config.mix.size(); ++p)
      naming_set(config_, p, [&] {
        const TrainConfig part = config_of(config_, p);
        parts_.push_back(is_labelled(part.objective) ? make_labelled(part, &shared, labels)
                                                     : make_task(part, &shared));
      });
  }

  std::string data_text() const override {
    return each([&](size_t p) { return fmt::format("{}: {}", name(p), parts_[p]->data_text()); });
  }
  Notes notes() const override {
    Notes all;
    for (const auto& part : parts_)
      for (const std::string& note : part->notes())
        if (std::ranges::find(all, note) == all.end()) all.push_back(note);
    return all;
  }
  std::string step_text(int64_t batch) const override {
    const std::string one = each([&](size_t p) {
      return fmt::format("{:.0f}% {}: {}", 100 * share(p), name(p), parts_[p]->step_text(batch));
    });
    return config_.passes() == 1 ? one : fmt::format("{} times [{}]", config_.passes(), one);
  }
  std::vector<std::string> labels() const override {
    for (const auto& part : parts_)
      if (std::vector<std::string> labels = part->labels(); !labels.empty()) return labels;
    return {};
  }
  // All sets share one chat template.
  std::string chat_template() const override {
    for (const auto& part : parts_)
      if (std::string text = part->chat_template(); !text.empty()) return text;
    return {};
  }
  std::vector<int64_t> ends() const override {
    std::vector<int64_t> all;
    for (const auto& part : parts_)
      for (const int64_t id : part->ends())
        if (std::ranges::find(all, id) == all.end()) all.push_back(id);
    return all;
  }
  std::string fingerprint() const override {
    std::string out;
    for (size_t p = 0; p < parts_.size(); ++p) out += name(p) + ": " + parts_[p]->fingerprint();
    return out;
  }
  int64_t largest_batch() const override {
    int64_t most = 0;
    for (const auto& part : parts_) most = std::max(most, part->largest_batch());
    return most / config_.passes();
  }
  double tokens_a_step(int64_t batch) const override {
    double mean = 0;
    for (size_t p = 0; p < parts_.size(); ++p) mean += share(p) * parts_[p]->tokens_a_step(batch);
    return mean * static_cast<double>(config_.passes());
  }
  std::vector<Batch> batches(int64_t step, int64_t batch) override {
    std::vector<Batch> out;
    for (int64_t i = 0; i < config_.passes(); ++i) {
      const auto [part, its_step] = draw(static_cast<uint64_t>((step - 1) * config_.passes() + i));
      std::vector<Batch> one = parts_[part]->batches(its_step, batch);
      out.push_back(std::move(one.front()));
    }
    return out;
  }
  // The loss is the weighted mean of the datasets' losses, as in training.
  Evaluation evaluate(const Transformer& model, int64_t batch, bool all, Communicator& ranks) const override {
    Evaluation e;
    double sum = 0, weights = 0;
    for (size_t p = 0; p < parts_.size(); ++p) {
      const Evaluation one = parts_[p]->evaluate(model, batch, all, ranks);
      if (one.tokens == 0) continue;
      e.tokens += one.tokens;
      e.of_tokens += one.of_tokens;
      e.losses.emplace_back(name(p), one.loss());
      for (const auto& [score, value] : one.scores) e.scores.emplace_back(score + "_" + name(p), value);
      sum += config_.mix[p].weight * one.loss();
      weights += config_.mix[p].weight;
    }
    if (weights > 0) e.total = sum / weights * static_cast<double>(e.tokens);
    return e;
  }
  bool looks_at_all() const override {
    return std::all_of(parts_.begin(), parts_.end(), [](const auto& p) { return p->looks_at_all(); });
  }
  std::string text(const Evaluation& e) const override {
    std::vector<std::string> all;
    for (const auto& [its_name, loss] : e.losses) all.push_back(fmt::format("{} {:.4f}", its_name, loss));
    for (const auto& [score, value] : e.scores)
      all.push_back(fmt::format("{} {}", score_label(score), score_text(score, value)));
    return fmt::format("{:.4f} ({})", e.loss(), fmt::join(all, ", "));
  }
  std::vector<std::pair<std::string, double>> baselines() const override {
    std::vector<std::pair<std::string, double>> all;
    for (size_t p = 0; p < parts_.size(); ++p)
      for (const auto& [method, value] : parts_[p]->baselines())
        all.emplace_back(fmt::format("{} ({})", method, name(p)), value);
    return all;
  }
  OrderedJson sample(const Transformer& model) const override { return parts_.front()->sample(model); }
  std::vector<OrderedJson> samples(const Transformer& model) const override {
    std::vector<OrderedJson> out;
    for (const auto& part : parts_) out.push_back(part->sample(model));
    return out;
  }

 private:
  static constexpr uint32_t kSite = 0x6d697874;  // "mixt"

  // The classes of all sets, which share one head.
  std::vector<std::string> labels_of_all() const {
    std::vector<Example> one_of_each;
    std::set<std::string> taught;
    for (size_t p = 0; p < config_.mix.size(); ++p)
      if (is_labelled(config_.mix[p].objective))
        naming_set(config_, p, [&] {
          const Labels its = labels_of_files(config_of(config_, p));
          taught.insert(its.taught.begin(), its.taught.end());
          for (const std::string& label : its.all) {
            Example e;
            e.label = label;
            e.tags = {label};
            one_of_each.push_back(std::move(e));
          }
        });
    check(taught.size() != 1 || config_.model.problem == Problem::multi_label,
          "mix: all examples {} '{}': there is nothing to tell apart",
          config_.model.output == Output::token_classes ? "have the tag" : "are of the class",
          taught.empty() ? "" : *taught.begin());
    return labels_of(one_of_each, config_.model);
  }

  const std::string& name(size_t part) const { return config_.mix[part].name; }
  double share(size_t part) const { return config_.mix[part].weight / total_weight_; }
  template <typename F>
  std::string each(const F& f) const {
    std::vector<std::string> all;
    for (size_t p = 0; p < parts_.size(); ++p) all.push_back(f(p));
    return fmt::format("{}", fmt::join(all, "; "));
  }
  // The dataset of micro-batch `index`, from 0: a function of (seed, index).
  size_t part_of(uint64_t index) const {
    double left = RandomStream{config_.seed, 0, kSite}.uniform(index) * total_weight_;
    for (size_t p = 0; p + 1 < parts_.size(); ++p)
      if ((left -= config_.mix[p].weight) < 0) return p;
    return parts_.size() - 1;
  }
  // The dataset of micro-batch `index`, and the number of that micro-batch in its dataset, from 1. Counts
  // the earlier ones, so that a resumed run continues with the right data.
  std::pair<size_t, int64_t> draw(uint64_t index) {
    if (index < counted_) {
      counted_ = 0;
      std::fill(counts_.begin(), counts_.end(), 0);
    }
    for (; counted_ < index; ++counted_) ++counts_[part_of(counted_)];
    const size_t part = part_of(index);
    return {part, counts_[part] + 1};
  }

  double total_weight_ = 0;
  std::vector<std::unique_ptr<Task>> parts_;
  uint64_t counted_ = 0;         // number of micro-batches counted,
  std::vector<int64_t> counts_;  // and of each dataset
};

// Texts of one dataset for the tokenizer that all share.
TrainingTexts texts_of_set(const TrainConfig& part, const Origin* given) {
  const auto texts = std::make_shared<std::vector<std::string>>();
  if (is_labelled(part.objective))
    *texts = labelled_texts(part);
  else if (part.objective == Objective::embed)
    *texts = embedding_texts(part);
  else if (part.objective == Objective::chat)
    *texts = chat_texts(part, given);
  else
    return training_texts(part);
  return {{texts->begin(), texts->end()}, texts};
}

}  // namespace

std::unique_ptr<Task> make_mixture(const TrainConfig& config, const Origin* given) {
  const auto trained = [&] {
    std::vector<TrainingTexts> sets;
    std::vector<std::string_view> all;
    std::vector<Objective> objectives;
    bool documents = false;
    for (size_t p = 0; p < config.mix.size(); ++p) {
      const TrainConfig part = config_of(config, p);
      naming_set(config, p, [&] { sets.push_back(texts_of_set(part, given)); });
      all.insert(all.end(), sets.back().texts.begin(), sets.back().texts.end());
      objectives.push_back(part.objective);
      documents |= part.objective == Objective::next_token && are_documents(part.data);
    }
    try {
      return train_tokenizer(config.tokenizer, all, objectives, documents);
    } catch (const Error& e) {
      for (size_t p = 0; p < sets.size(); ++p)
        for (const std::string_view text : sets[p].texts)
          if (text::find_invalid_utf8(text) < text.size())
            fail("mix.{}: {}: {}", config.mix[p].name, fmt::join(config.mix[p].data.train, ", "), e.what());
      throw;
    }
  };
  Origin shared = given ? *given : Origin{"", tokenizer_for(config, given, trained), {}};
  return std::make_unique<Mixture>(config, shared);
}

}  // namespace qkv
