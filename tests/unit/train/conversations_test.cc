// Conversations: the tokens that a model learns.
#include "qkv/train/corpora/conversations.h"

#include <gtest/gtest.h>

#include "qkv/text/trainer.h"
#include "tests/unit/expect_error.h"
#include "tests/unit/scratch_dir.h"

namespace qkv::conversations_test {
namespace {

using testing::expect_error;

// A tokenizer of bytes, with the tokens around messages.
text::Tokenizer bytes() {
  text::TrainerOptions options;
  options.special_tokens = {"<|im_start|>", "<|im_end|>"};
  return text::train_bytes(options);
}

Conversation talk(const char* messages) {
  return {{{"messages", OrderedJson::parse(messages)}}, "talk:1"};
}

// The targets as text, with "|" between separate parts, and the whole text without its last token.
std::pair<std::string, std::string> learnt(const EncodedConversations& e, const text::Tokenizer& tokenizer) {
  const auto ids = e.stream.tokens.tokens();
  std::string said;
  std::vector<int32_t> run;
  for (size_t i = 0; i <= ids.size(); ++i) {
    if (i < ids.size() && e.stream.targets[i] != kIgnored) {
      EXPECT_TRUE(i + 1 == ids.size() || e.stream.targets[i] == ids[i + 1]);
      run.push_back(e.stream.targets[i]);
    } else if (!run.empty()) {
      said += (said.empty() ? "" : "|") + tokenizer.decode(run);
      run.clear();
    }
  }
  return {said, tokenizer.decode(std::vector<int32_t>(ids.begin(), ids.end()))};
}

const char* const kTwoTurns = R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "bé"},
                                  {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}])";

TEST(Conversations, OfChatMlTheAssistantsWordsAndTheirEndsAreLearnt) {
  const text::Tokenizer tokenizer = bytes();
  const auto e = encode_conversations({talk(kTwoTurns)}, text::ChatTemplate(kChatMl, "t"), tokenizer, 1000);
  const auto [said, whole] = learnt(e, tokenizer);
  EXPECT_EQ(said, "bé<|im_end|>|d<|im_end|>");
  EXPECT_EQ(whole,
            "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nbé<|im_end|>\n"
            "<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\nd<|im_end|>");
  EXPECT_EQ(e.ends, (std::vector<int64_t>{static_cast<int64_t>(*tokenizer.token_to_id("<|im_end|>"))}));
  EXPECT_EQ(e.cut + e.lost, 0);
}

// The text before an answer is the prompt of a chat.
TEST(Conversations, AnAnswersPromptIsThatOfAChat) {
  const text::ChatTemplate chat(kChatMl, "t");
  const auto whole = written(talk(kTwoTurns), chat);
  OrderedJson first = talk(kTwoTurns).variables;
  first["messages"] = OrderedJson::array({first["messages"][0]});
  first["add_generation_prompt"] = true;
  EXPECT_EQ(chat.render(first, 0).text, whole.text.substr(0, whole.generated[0].begin));
}

TEST(Conversations, OfATemplateWithoutBlocksWhatItAddsIsLearnt) {
  const text::Tokenizer tokenizer = bytes();
  const text::ChatTemplate plain(
      "{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor %}{% if add_generation_prompt %}a:{% "
      "endif %}",
      "t");
  const auto e = encode_conversations({talk(kTwoTurns)}, plain, tokenizer, 1000);
  EXPECT_EQ(learnt(e, tokenizer).first, "bé;|d;");
  EXPECT_TRUE(e.ends.empty());
  const text::ChatTemplate shy("{% for m in messages %}{{ m.content if loop.last else '-' }}{% endfor %}",
                               "t");
  expect_error([&] { written(talk(kTwoTurns), shy); }, {"talk:1", "generation", "otherwise"});
}

TEST(Conversations, WhatIsLongerThanTheContextIsCut) {
  const text::Tokenizer tokenizer = bytes();
  const text::ChatTemplate chat(
      "{% for m in messages %}{{ m.content }}{% if m.role == 'assistant' %}{% generation %}!{% endgeneration "
      "%}{% endif %}{% endfor %}",
      "t");
  const Conversation c =
      talk(R"([{"role": "user", "content": "12345"}, {"role": "assistant", "content": "67"}])");
  const auto at = [&](int64_t context) { return encode_conversations({c}, chat, tokenizer, context); };
  EXPECT_EQ(learnt(at(7), tokenizer), (std::pair<std::string, std::string>("!", "1234567")));
  EXPECT_EQ(at(7).cut, 0);
  EXPECT_EQ(at(6).cut, 1);
  EXPECT_EQ(at(6).lost, 1);
  EXPECT_EQ(at(6).stream.size(), 0);
}

TEST(Conversations, LinesAreObjectsOrLists) {
  const testing::ScratchDir dir;
  dir.write("talks.jsonl", R"([{"role": "user", "content": 1}]

{"tools": {"b": 1, "a": 2}, "messages": [], "add_generation_prompt": true}
)");
  const auto all = read_conversations({dir.path() + "/talks.jsonl"});
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].variables["messages"][0]["content"], 1);
  EXPECT_EQ(all[1].variables["tools"].dump(), R"({"b":1,"a":2})");  // in the order of the file
  EXPECT_FALSE(all[1].variables.contains("add_generation_prompt"));
  EXPECT_TRUE(all[1].place.ends_with("talks.jsonl:3"));
  expect_error([&] { written(all[1], text::ChatTemplate(kChatMl, "t")); },
               {"talks.jsonl:3", "assistant says nothing"});
}

}  // namespace
}  // namespace qkv::conversations_test
