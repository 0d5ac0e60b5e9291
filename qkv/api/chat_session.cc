#include "qkv/api/chat_session.h"

#include <algorithm>
#include <ctime>

#include "qkv/base/error.h"
#include "qkv/base/json_value.h"
#include "qkv/text/unicode.h"

namespace qkv {

ChatSession::ChatSession(const TextModel& m, text::ChatTemplate chat, std::string system)
    : model_(m), chat_(std::move(chat)), system_(std::move(system)) {
  text::check_utf8(system_, "the system's message");
  reset();
}

void ChatSession::reset() {
  messages_ = OrderedJson::array();
  if (!system_.empty()) messages_.push_back({{"role", "system"}, {"content", system_}});
  left_out_ = 0;
}

int64_t ChatSession::longest() const {
  const ModelSpec& spec = model_.model->spec();
  return std::min(spec.longest(), spec.context);
}

std::vector<int32_t> ChatSession::prompt() const {
  const OrderedJson values = {{"messages", messages_}, {"add_generation_prompt", true}};
  return model_.tokenizer.encode(chat_.render(values, std::time(nullptr)).text, false).ids;
}

std::vector<int32_t> ChatSession::ask(const std::string& message, int64_t room) {
  text::check_utf8(message, "the message");
  const int64_t longest = this->longest();
  const OrderedJson before = messages_;
  const int64_t left_out_before = left_out_;
  messages_.push_back({{"role", "user"}, {"content", message}});
  const std::ptrdiff_t first = system_.empty() ? 0 : 1;
  std::vector<int32_t> ids = prompt();
  while (std::ssize(ids) > longest - room && std::ssize(messages_) > first + 1) {
    const auto oldest = messages_.begin() + first;
    messages_.erase(oldest, oldest + 2);
    left_out_ += 2;
    ids = prompt();
  }
  if (std::ssize(ids) < longest) return ids;
  messages_ = before;
  left_out_ = left_out_before;
  fail("the message is too long: with its template it has {} tokens, which leave no room in the model's {}",
       ids.size(), longest);
}

void ChatSession::answer(const std::string& text) {
  messages_.push_back({{"role", "assistant"}, {"content", text}});
}

}  // namespace qkv
