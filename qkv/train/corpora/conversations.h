// Conversations to learn from: what is said in them, and which of it a model learns to write.
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

// ChatML, of the tokens <|im_start|> and <|im_end|>: what conversations are written in where nothing else is
// said.
extern const char* const kChatMl;

// What is said, in turn.
struct Conversation {
  OrderedJson variables;  // of the template: "messages", and what else its line has (tools, documents)
  std::string place;      // FILE:LINE
};

// The lines of .jsonl files: an object with "messages" each, or a list of messages; a message has a "role".
// Throws Error naming file and line.
std::vector<Conversation> read_conversations(const std::vector<std::string>& files,
                                             const FileOptions& options = {});

// A conversation as its template writes it, and the bytes that the assistant says: of {% generation %}
// blocks; of a template without them what it adds to the conversation so far for each message of the
// assistant, its end included. Throws Error naming the place where a template without blocks does not go on
// as it began, or where the assistant says nothing.
text::ChatTemplate::Rendered written(const Conversation& c, const text::ChatTemplate& chat);

// Token sequences; a token's target is the next one where that is the assistant's, else kIgnored.
struct EncodedConversations {
  LabelledStream stream;
  int64_t cut = 0;                 // longer than the context: their ends are left out,
  int64_t lost = 0;                // and with them all that was to be learnt
  std::vector<int64_t> ends = {};  // special tokens that end what the assistant says
};
EncodedConversations encode_conversations(const std::vector<Conversation>& all,
                                          const text::ChatTemplate& chat, const text::Tokenizer& tokenizer,
                                          int64_t context);

}  // namespace qkv
