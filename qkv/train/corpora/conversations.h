// Conversations as training data: their messages, and the parts that a model learns to write.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "qkv/base/json.h"
#include "qkv/base/json_value.h"
#include "qkv/chat/chat_template.h"
#include "qkv/data/labelled.h"
#include "qkv/data/text_file.h"
#include "qkv/text/tokenizer.h"

namespace qkv {

// ChatML, with the tokens <|im_start|> and <|im_end|>: the default template for conversations.
extern const char* const kChatMl;

// Messages in turn.
struct Conversation {
  OrderedJson variables;  // template variables: "messages", and others in its line (tools, documents)
  std::string place;      // FILE:LINE
};

// The lines of .jsonl files: an object with "messages" each, or a list of messages; a message has a "role".
// Throws Error naming file and line.
std::vector<Conversation> read_conversations(const std::vector<std::string>& files,
                                             const FileOptions& options = {});

// Returns a conversation as its template writes it, and the byte ranges of the assistant: the {% generation
// %} blocks. If the template has none, they are its additions for each message of the assistant, with the
// message's end. Throws Error naming the place if such a template rewrites earlier messages, or if the
// assistant says nothing.
text::ChatTemplate::Rendered written(const Conversation& c, const text::ChatTemplate& chat);

// Token sequences. A token's target is the next token if that is the assistant's, else kIgnored.
struct EncodedConversations {
  LabelledStream stream;
  int64_t cut = 0;                 // conversations truncated to the context
  int64_t lost = 0;                // conversations dropped because no target is left
  std::vector<int64_t> ends = {};  // special tokens that end the assistant's messages
};
EncodedConversations encode_conversations(const std::vector<Conversation>& all,
                                          const text::ChatTemplate& chat, const text::Tokenizer& tokenizer,
                                          int64_t context);

}  // namespace qkv
