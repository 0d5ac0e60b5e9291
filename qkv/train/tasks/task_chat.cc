// Conversations: predicts the assistant's messages.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "qkv/base/file.h"
#include "qkv/base/hash.h"
#include "qkv/base/json_value.h"
#include "qkv/base/progress.h"
#include "qkv/infer/generate.h"
#include "qkv/io/auxiliary_files.h"
#include "qkv/train/corpora/conversations.h"
#include "qkv/train/corpora/documents.h"
#include "qkv/train/tasks/tasks.h"

namespace qkv {
namespace {

// The template of a run's conversations.
struct Form {
  text::ChatTemplate chat;
  std::string text;  // text of the template; empty: the model that the run starts from has it
};

Form form_of(const TrainConfig& config, const Origin* given) {
  if (const std::string& file = config.data.chat_template; !file.empty()) {
    std::string text = read_file(file);
    text::ChatTemplate chat(text, file);
    if (given != nullptr && !given->dir.empty()) chat.name_special_tokens(given->dir);
    return {std::move(chat), std::move(text)};
  }
  if (given != nullptr && !given->dir.empty())
    if (auto chat = chat_template_of(given->dir)) return {std::move(*chat), ""};
  return {text::ChatTemplate(kChatMl, "ChatML"), kChatMl};
}

struct ConversationSplit {
  std::vector<Conversation> train, valid;

  explicit ConversationSplit(const DataConfig& data)
      : train(read_conversations(data.train, file_options(data))) {
    valid = data.valid.empty() ? take(data.valid_fraction, data.split_seed)
                               : read_conversations(data.valid, file_options(data));
    check(!train.empty(), "{}: there is no conversation to learn from", fmt::join(data.train, ", "));
  }

 private:
  // Removes a random part of the training conversations and returns it.
  std::vector<Conversation> take(double fraction, uint64_t seed) {
    std::vector<int64_t> order(train.size());
    std::iota(order.begin(), order.end(), 0);
    shuffle(order, seed, 0);
    order.resize(static_cast<size_t>(std::llround(static_cast<double>(train.size()) * fraction)));
    std::vector<bool> chosen(train.size(), false);
    for (const int64_t i : order) chosen[i] = true;
    std::vector<Conversation> taken, left;
    for (size_t i = 0; i < train.size(); ++i) (chosen[i] ? taken : left).push_back(std::move(train[i]));
    train = std::move(left);
    return taken;
  }
};

class Chat : public TaskOfSequences {
 public:
  Chat(const TrainConfig& config, text::Tokenizer tokenizer, ConversationSplit data, Form form)
      : TaskOfSequences(config, std::move(tokenizer)), data_(std::move(data)), form_(std::move(form)) {
    train_ = encoded(data_.train);
    valid_ = encoded(data_.valid);
    check(train_.stream.size() > 0, "{}: what the assistant says lies beyond the model's {} tokens",
          fmt::join(config.data.train, ", "), config.model.context);
    unknown_ = tell_unknown(count_unknown(train_.stream.tokens.tokens()), train_.stream.tokens.size());
    take_lengths(train_.stream.lengths());
  }

  std::string data_text() const override {
    const int64_t cut = train_.cut + valid_.cut, lost = train_.lost + valid_.lost;
    return fmt::format(
        "{} training conversations of {} tokens, {} of them to learn, and {} validation conversations{}{}{}",
        train_.stream.size(), human_count(train_.stream.tokens.size()), human_count(training_tokens()),
        valid_.stream.size(), unknown_,
        cut > 0 ? fmt::format(" ({} cut to {} tokens)", cut, config_.model.context) : "",
        lost > 0 ? fmt::format(" ({} left out: what the assistant says was cut away)", lost) : "");
  }
  std::string fingerprint() const override {
    return fmt::format("conversations = {} ({} {})\n", train_.stream.size(),
                       hash_of(std::as_bytes(train_.stream.tokens.tokens())),
                       hash_of(std::as_bytes(std::span(train_.stream.targets))));
  }
  Evaluation evaluate(const Transformer& model, int64_t, bool, Communicator& ranks) const override {
    return qkv::evaluate(model, valid_, config_.batch_tokens, ranks);
  }
  std::string text(const Evaluation& e) const override {
    return fmt::format("{:.4f} (perplexity {:.2f}, {} assistant tokens)", e.loss(), e.perplexity(), e.tokens);
  }
  std::string chat_template() const override { return form_.text; }
  std::vector<int64_t> ends() const override { return train_.ends; }

  // The first question of a conversation, and the model's answer.
  OrderedJson sample(const Transformer& model) const override {
    const std::vector<Conversation>& from = data_.valid.empty() ? data_.train : data_.valid;
    OrderedJson variables = from[from.size() / 2].variables;
    OrderedJson messages = OrderedJson::array();
    if (!config_.sample_prompt.empty()) {
      messages.push_back({{"role", "user"}, {"content", config_.sample_prompt}});
    } else {
      for (const OrderedJson& message : variables["messages"]) {
        if (message["role"] == "assistant") break;
        messages.push_back(message);
      }
    }
    variables["messages"] = std::move(messages);
    variables["add_generation_prompt"] = true;
    const std::string prompt = form_.chat.render(variables, 0).text;
    std::vector<int32_t> ids = ids_of(tokenizer_.encode(prompt, false));
    const auto room = static_cast<size_t>(config_.model.context - 1);
    if (ids.size() > room) ids.erase(ids.begin(), ids.end() - static_cast<int64_t>(room));
    GenerateOptions options = sample_options(config_, tokenizer_, model.spec().vocab_size);
    options.sampler.temperature = 0;
    for (const int64_t id : train_.ends) {
      std::erase(options.sampler.excluded, static_cast<int32_t>(id));
      options.eos.push_back(static_cast<int32_t>(id));
    }
    options.max_new_tokens =
        std::min(options.max_new_tokens, config_.model.context - static_cast<int64_t>(ids.size()));
    const std::vector<int32_t> tokens = generate(model, {ids}, options)[0];
    return {{"prompt", prompt}, {"sample", tokenizer_.decode(tokens)}};
  }

 private:
  static std::vector<int32_t> ids_of(const text::Encoding& e) { return {e.ids.begin(), e.ids.end()}; }
  EncodedConversations encoded(const std::vector<Conversation>& all) const {
    return encode_conversations(all, form_.chat, tokenizer_, config_.model.context);
  }
  // Number of predicted tokens.
  int64_t training_tokens() const override {
    return std::ssize(train_.stream.targets) -
           std::count(train_.stream.targets.begin(), train_.stream.targets.end(), kIgnored);
  }
  Batch training_batch(const std::vector<int64_t>& items, uint64_t, uint64_t) const override {
    return labelled_batch(train_.stream, items);
  }

  ConversationSplit data_;
  Form form_;
  EncodedConversations train_, valid_;
  std::string unknown_;
};

}  // namespace

std::vector<std::string> chat_texts(const TrainConfig& config, const Origin* given) {
  const Form form = form_of(config, given);
  std::vector<std::string> texts;
  for (const Conversation& c : ConversationSplit(config.data).train)
    texts.push_back(written(c, form.chat).text);
  return texts;
}

std::unique_ptr<Task> make_chat(const TrainConfig& config, const Origin* given) {
  ConversationSplit data(config.data);
  Form form = form_of(config, given);
  const auto trained = [&] {
    std::vector<std::string> texts;
    for (const Conversation& c : data.train) texts.push_back(written(c, form.chat).text);
    return train_tokenizer(config.tokenizer, std::vector<std::string_view>(texts.begin(), texts.end()),
                           {config.objective});
  };
  text::Tokenizer tokenizer = tokenizer_for(config, given, trained);
  check(form.text != kChatMl || tokenizer.token_to_id("<|im_end|>"),
        "data.chat_template: the default (ChatML) needs the token <|im_end|>, which this model's tokenizer "
        "lacks. Give a template that uses its own tokens, e.g. </s>, or set tokenizer.add_special = "
        "[\"<|im_start|>\", \"<|im_end|>\"]");
  return std::make_unique<Chat>(config, std::move(tokenizer), std::move(data), std::move(form));
}

}  // namespace qkv
