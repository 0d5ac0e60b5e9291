// Classes, tags and answers, predicted by a model with a head.
#include <fmt/format.h>

#include "qkv/base/hash.h"
#include "qkv/base/json_value.h"
#include "qkv/base/progress.h"
#include "qkv/data/length_batches.h"
#include "qkv/infer/predict.h"
#include "qkv/text/unicode.h"
#include "qkv/train/corpora/corpus.h"
#include "qkv/train/corpora/examples.h"
#include "qkv/train/tasks/baseline.h"
#include "qkv/train/tasks/tasks.h"

namespace qkv {
namespace {

constexpr int64_t kShownMistakes = 20;  // in a run's report

// The examples of a run, not yet tokenized.
struct ExampleSplit {
  std::vector<Example> train, valid, test;
  int64_t repeated = 0;      // removed duplicates
  int64_t without_text = 0;  // rows of the training files that were dropped
  Notes notes;

  explicit ExampleSplit(const TrainConfig& c) {
    ReadExamples found;
    train = read_examples(c.data.train, c.data, c.model, &found);
    without_text = std::ssize(found.without_text);
    // In validation and test files, rows without text count as wrong.
    const auto read = [&](const std::vector<std::string>& files) {
      found.without_text.clear();
      std::vector<Example> out = read_examples(files, c.data, c.model, &found);
      out.insert(out.end(), found.without_text.begin(), found.without_text.end());
      return out;
    };
    const int64_t all = std::ssize(train);
    if (c.data.deduplicate) repeated = deduplicate(train);
    // The test part is split off first, so that it does not depend on the size of the validation part.
    if (c.data.fold > 0)
      test = fold_of(c.data);
    else
      test =
          c.data.test.empty() ? split_off(train, c.data.test_fraction, c.data.split_seed) : read(c.data.test);
    valid = c.data.valid.empty() ? split_off(train, c.data.valid_fraction, c.data.split_seed + 1)
                                 : read(c.data.valid);
    check(
        !train.empty(),
        "{}: there is no example to learn from: all {} have the same text, and equal texts stay on one side "
        "of a split (name other files in data.valid, or set data.valid_fraction = 0)",
        fmt::join(c.data.train, ", "), all);
    notes = std::move(found.notes);
  }

 private:
  std::vector<Example> fold_of(const DataConfig& data) {
    try {
      return take_fold(train, data.fold, data.folds, data.split_seed);
    } catch (const Error& e) {
      fail("{}: data.folds: {}", fmt::join(data.train, ", "), e.what());
    }
  }
};

// True if a model has names for what it predicts.
bool has_labels(const ModelSpec& spec) {
  return spec.output != Output::span && spec.problem != Problem::multiple_choice;
}

Labels labels_of_split(const ExampleSplit& examples, const TrainConfig& config) {
  if (!has_labels(config.model)) return {};
  const std::vector<std::string> number = {config.data.label_column};
  if (config.model.problem == Problem::regression) return {number, number};
  std::vector<Example> all = examples.train;
  Labels out{labels_of(all, config.model), {}};
  for (const auto* more : {&examples.valid, &examples.test})
    all.insert(all.end(), more->begin(), more->end());
  out.all = labels_of(all, config.model);
  return out;
}

class Labelled : public TaskOfSequences {
 public:
  Labelled(const TrainConfig& config, text::Tokenizer tokenizer, ExampleSplit examples,
           const std::vector<std::string>& labels)
      : TaskOfSequences(config, std::move(tokenizer)), examples_(std::move(examples)), spec_(config.model) {
    notes_ = examples_.notes;
    if (has_labels(spec_)) find_labels(labels);
    check(
        config.best_by != "f1" || spec_.output != Output::token_classes || !config.mix.empty() ||
            describe_chunks(spec_.labels),
        "train.best_by: f1 is that of chunks, and no tag begins with B- or I-: choose accuracy or macro_f1");
    train_ = encoded(examples_.train);
    valid_ = encoded(examples_.valid);
    test_ = encoded(examples_.test);
    check(train_.stream.size() > 0, "{}: what is to be learnt lies beyond the model's {} tokens",
          fmt::join(config.data.train, ", "), spec_.context);
    if (Augmentation& noise = config_.augmentation; noise.on()) {
      if (noise.mask > 0) noise.mask_id = encoder_tokens(tokenizer_).mask;
      for (size_t id = 0; id < tokenizer_.vocab_size(); ++id)
        noise.special.push_back(tokenizer_.is_special(static_cast<text::TokenId>(id)));
    }
    unknown_ = tell_unknown(count_unknown(train_.stream.tokens.tokens()), train_.stream.tokens.size());
    take_lengths(train_.stream.lengths());
  }

  std::vector<std::string> labels() const override { return spec_.labels; }
  std::string data_text() const override {
    const int64_t cut = train_.cut + valid_.cut + test_.cut, held_out = valid_.lost + test_.lost,
                  held_out_empty = valid_.without_text + test_.without_text;
    return fmt::format(
        "{} training, {} validation and {} test {}{}{}{}{}{}{}{}{}{}", train_.stream.size(),
        examples_.valid.size(), examples_.test.size(),
        spec_.problem == Problem::multiple_choice ? "questions" : "examples",
        spec_.labels.empty() || spec_.problem == Problem::regression
            ? ""
            : fmt::format(" of {} {}", classes_,
                          spec_.problem == Problem::multi_label ? "labels" : "classes"),
        without_text(examples_.without_text),
        examples_.repeated > 0 ? fmt::format(" ({} repeated ones removed)", examples_.repeated) : "",
        untaught_.empty() ? "" : fmt::format(" ({} never in training)", fmt::join(untaught_, ", ")),
        cut > 0 ? fmt::format(" ({} cut to {} tokens)", cut, spec_.context) : "",
        train_.lost > 0 ? fmt::format(" ({} left out: the answer or the tags were cut away)", train_.lost)
                        : "",
        held_out_empty > 0
            ? fmt::format(" ({} of validation and test {}: they have no text)", held_out_empty,
                          spec_.problem == Problem::regression ? "are left out" : "count as wrong")
            : "",
        held_out > 0
            ? fmt::format(" ({} of validation and test count as wrong: they were cut away)", held_out)
            : "",
        unknown_);
  }
  std::string fingerprint() const override {
    std::string out;
    for (const auto* e : {&train_, &valid_, &test_}) {
      out += fmt::format("examples = {} ({} {})\n", e->stream.size(),
                         hash_of(std::as_bytes(e->stream.tokens.tokens())),
                         hash_of(std::as_bytes(std::span(e->stream.targets))));
      if (!e->stream.questions.empty())
        out += fmt::format("questions = {}\n", hash_of(std::as_bytes(std::span(e->stream.questions))));
      if (e->stream.columns > 0)
        out += fmt::format("numbers = {}\n", hash_of(std::as_bytes(std::span(e->stream.numbers))));
    }
    return out;
  }
  Evaluation evaluate(const Transformer& model, int64_t, bool, Communicator& ranks) const override {
    return qkv::evaluate(model, tokenizer_, examples_.valid, config_.batch_tokens, kShownMistakes, ranks);
  }
  std::optional<Evaluation> test(const Transformer& model) const override {
    if (examples_.test.empty()) return std::nullopt;
    return qkv::evaluate(model, tokenizer_, examples_.test, config_.batch_tokens, kShownMistakes);
  }
  std::vector<std::pair<std::string, double>> baselines() const override {
    return qkv::baselines(examples_.train, examples_.test.empty() ? examples_.valid : examples_.test, spec_);
  }
  std::string text(const Evaluation& e) const override {
    std::vector<std::string> scores;
    for (const auto& [name, value] : e.scores)
      scores.push_back(fmt::format("{} {}", score_label(name), score_text(name, value)));
    return fmt::format("{:.4f} ({})", e.loss(), fmt::join(scores, ", "));
  }
  std::string best_by() const override {
    if (spec_.problem == Problem::regression) return "loss";
    if (spec_.problem == Problem::multi_label) return "micro_f1";
    return spec_.output == Output::span ? "f1" : "accuracy";
  }
  OrderedJson sample(const Transformer& model) const override {
    const std::vector<Example>& from = examples_.valid.empty() ? examples_.train : examples_.valid;
    const Example& e = from[from.size() / 2].text.first.empty() ? from.front() : from[from.size() / 2];
    const NoGrad guard;
    const std::vector<EncodedText> texts = encode_example(e, tokenizer_, spec_);
    const EncodedText& text = texts.front();
    const std::vector<Tensor> each = class_scores(model, texts);
    const Tensor& scores = each.front();
    std::string said;
    if (spec_.problem == Problem::multiple_choice) {
      const std::vector<double> p = class_values(spec_, scores_of_choices(each), 0);
      said = e.choices[static_cast<size_t>(std::ranges::max_element(p) - p.begin())];
    } else if (spec_.output == Output::span) {
      said = best_answer(scores, text, e.text).text;
    } else if (spec_.output == Output::token_classes) {
      const std::vector<int64_t> first = first_tokens(text.encoding, e.words);
      for (size_t w = 0; w < e.words.size(); ++w)
        said += (w > 0 ? " " : "") + (first[w] < 0 ? "_" : best_label(scores, first[w]));
    } else {
      said = said_of(spec_, scores);
    }
    const std::string wanted =
        spec_.output == Output::token_classes ? fmt::format("{}", fmt::join(e.tags, " ")) : e.label;
    return {{"prompt", e.text.first + " \u2192 "}, {"sample", fmt::format("{} (right: {})", said, wanted)}};
  }

 private:
  Batch training_batch(const std::vector<int64_t>& items, uint64_t index, uint64_t) const override {
    const bool noisy = config_.augmentation.on();
    return noisy ? labelled_batch(train_.stream, items, config_.augmentation, config_.seed, index)
                 : labelled_batch(train_.stream, items);
  }
  // Includes labels of validation and test: those that training lacks count as not found.
  void find_labels(const std::vector<std::string>& given) {
    const auto [taught, all] = labels_of_split(examples_, config_);
    classes_ = std::ssize(all);
    spec_.labels = given.empty() ? all : given;
    if (!given.empty()) return;  // another dataset may teach the missing labels
    for (const std::string& label : all)
      if (std::find(taught.begin(), taught.end(), label) == taught.end()) untaught_.push_back(label);
    if (spec_.problem == Problem::regression) return;
    check(!taught.empty(), "{}: column '{}': there is no label to learn", fmt::join(config_.data.train, ", "),
          config_.data.label_column);
    check(taught.size() > 1 || spec_.problem == Problem::multi_label,
          "{}: all examples{} {} '{}'{}: there is nothing to tell apart", fmt::join(config_.data.train, ", "),
          examples_.without_text > 0 ? " with a text" : "",
          spec_.output == Output::token_classes ? "have the tag" : "are of the class",
          taught.empty() ? "" : taught[0], without_text(examples_.without_text));
  }
  EncodedExamples encoded(const std::vector<Example>& examples) const {
    return encode_examples(examples, tokenizer_, spec_);
  }
  std::string best_label(const Tensor& scores, int64_t row) const {
    const std::vector<double> p = probabilities_of(scores, row);
    return spec_.labels[std::max_element(p.begin(), p.end()) - p.begin()];
  }

  ExampleSplit examples_;
  ModelSpec spec_;
  int64_t classes_ = 0;                // classes of these examples; a mixture's model has those of all sets
  std::vector<std::string> untaught_;  // labels that the training data lack
  EncodedExamples train_, valid_, test_;
  std::string unknown_;
};

}  // namespace

std::vector<std::string> labelled_texts(const TrainConfig& config) {
  return texts_of(ExampleSplit(config).train);
}

Labels labels_of_files(const TrainConfig& config) {
  return labels_of_split(ExampleSplit(config), config);
}

std::unique_ptr<Task> make_labelled(const TrainConfig& config, const Origin* given,
                                    const std::vector<std::string>& labels) {
  ExampleSplit examples(config);
  const auto trained = [&] {
    const std::vector<std::string> texts = texts_of(examples.train);
    try {
      return train_tokenizer(config.tokenizer, std::vector<std::string_view>(texts.begin(), texts.end()),
                             {config.objective});
    } catch (const Error& e) {
      for (const Example& x : examples.train)
        for (const std::string& text : texts_of({x}))
          if (text::find_invalid_utf8(text) < text.size()) fail("{}: {}", x.place, e.what());
      fail("{}: {}", fmt::join(config.data.train, ", "), e.what());
    }
  };
  text::Tokenizer tokenizer = tokenizer_for(config, given, trained);
  return std::make_unique<Labelled>(config, std::move(tokenizer), std::move(examples), labels);
}

}  // namespace qkv
