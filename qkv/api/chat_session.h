// A conversation with a model, truncated to the model's context.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "qkv/api/text_model.h"
#include "qkv/base/json.h"
#include "qkv/base/json_value.h"
#include "qkv/chat/chat_template.h"

namespace qkv {

// The messages of a user and the answers of a model. When the model can no longer read all of them, the
// oldest are dropped, each question with its answer. The system message is kept.
class ChatSession {
 public:
  // `system`: the system message; empty: none. `m` must outlive this object.
  ChatSession(const TextModel& m, text::ChatTemplate chat, std::string system = "");

  // Returns the tokens that the model continues with its answer to `message`. At least `room` more tokens
  // fit, unless the message itself is too long for that. Throws Error and drops the message if it does not
  // fit at all, or is not UTF-8 text.
  std::vector<int32_t> ask(const std::string& message, int64_t room);
  // Adds the model's answer.
  void answer(const std::string& text);
  // Drops all messages except the system message.
  void reset();
  // Maximum number of tokens of a conversation: the model's context, even if its positions are unlimited.
  int64_t longest() const;
  // Number of messages that were dropped.
  int64_t left_out() const { return left_out_; }

 private:
  std::vector<int32_t> prompt() const;

  const TextModel& model_;
  text::ChatTemplate chat_;
  std::string system_;
  OrderedJson messages_;
  int64_t left_out_ = 0;
};

}  // namespace qkv
