// A conversation with a model, as much of it as the model can read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "qkv/api/text_model.h"
#include "qkv/base/json.h"
#include "qkv/base/json_value.h"
#include "qkv/chat/chat_template.h"

namespace qkv {

// The messages of a user and the answers of a model. Where the model can no longer read all of them, the
// oldest are left out, an answer with its question; what the system says stays.
class ChatSession {
 public:
  // `system`: what the model is told before the conversation; empty: nothing. `m` must outlive this.
  ChatSession(const TextModel& m, text::ChatTemplate chat, std::string system = "");

  // The tokens that the model continues with its answer to `message`: at least `room` more fit, where the
  // message itself leaves that. Throws Error, and forgets the message, where it is too long alone, or is no
  // UTF-8 text.
  std::vector<int32_t> ask(const std::string& message, int64_t room);
  // Adds the model's answer.
  void answer(const std::string& text);
  // Forgets all but the system's message.
  void reset();
  // Tokens of a conversation at most: the model's context, also where its positions have no end.
  int64_t longest() const;
  // Messages that no longer fit.
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
