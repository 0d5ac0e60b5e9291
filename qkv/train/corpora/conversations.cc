#include "qkv/train/corpora/conversations.h"

#include <algorithm>
#include <ctime>

#include "qkv/base/json_value.h"
#include "qkv/data/table.h"

namespace qkv {

const char* const kChatMl = R"({%- for message in messages -%}
{{ '<|im_start|>' + message.role + '\n' }}
{%- if message.role == 'assistant' -%}
{% generation %}{{ message.content + '<|im_end|>' }}{% endgeneration %}
{%- else -%}
{{ message.content + '<|im_end|>' }}
{%- endif -%}
{{ '\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\n' }}{%- endif -%}
)";

namespace {

Conversation conversation_of(const std::string& line, std::string place) {
  parse_json(line, place);  // rejects malformed or deeply nested JSON
  OrderedJson variables = OrderedJson::parse(line);
  if (variables.is_array()) variables = OrderedJson{{"messages", std::move(variables)}};
  check(variables.is_object() && variables.contains("messages") && variables["messages"].is_array(),
        "{}: expected an object with \"messages\", a list of {{\"role\", \"content\"}}", place);
  for (size_t i = 0; i < variables["messages"].size(); ++i) {
    const OrderedJson& message = variables["messages"][i];
    check(message.is_object() && message.contains("role") && message["role"].is_string(),
          "{}: messages[{}]: expected an object with a \"role\"", place, i);
  }
  variables.erase("add_generation_prompt");
  return {std::move(variables), std::move(place)};
}

bool says(const OrderedJson& message, const char* role) {
  return message["role"] == role;
}

// The bytes that a template without {% generation %} blocks adds for each message of the assistant.
std::vector<text::Range> additions(const Conversation& c, const text::ChatTemplate& chat, int64_t now,
                                   const std::string& whole) {
  std::vector<text::Range> out;
  OrderedJson so_far = c.variables;
  so_far["messages"] = OrderedJson::array();
  for (const OrderedJson& message : c.variables["messages"]) {
    const bool assistant = says(message, "assistant");
    std::string before;
    if (assistant) {
      so_far["add_generation_prompt"] = true;
      before = chat.render(so_far, now).text;
      so_far["add_generation_prompt"] = false;
    }
    so_far["messages"].push_back(message);
    if (!assistant) continue;
    const std::string after = chat.render(so_far, now).text;
    check(
        after.starts_with(before) && whole.starts_with(after),
        "{}: the chat template has no {{% generation %}} blocks, and writes the beginning of a conversation "
        "otherwise where more follows: put what the assistant says into such blocks",
        c.place);
    out.push_back({before.size(), after.size()});
  }
  return out;
}

}  // namespace

std::vector<Conversation> read_conversations(const std::vector<std::string>& files,
                                             const FileOptions& options) {
  std::vector<Conversation> out;
  for (const std::string& file : files) {
    int64_t number = 0;
    for (const std::string& line : lines_of(open_text(file, options).text)) {
      ++number;
      if (line.find_first_not_of(" \t") == std::string::npos) continue;
      out.push_back(conversation_of(line, fmt::format("{}:{}", file, number)));
    }
  }
  return out;
}

text::ChatTemplate::Rendered written(const Conversation& c, const text::ChatTemplate& chat) {
  try {
    const int64_t now = std::time(nullptr);
    text::ChatTemplate::Rendered out = chat.render(c.variables, now);
    if (out.generated.empty()) out.generated = additions(c, chat, now, out.text);
    std::erase_if(out.generated, [](const text::Range& r) { return r.begin == r.end; });
    check(!out.generated.empty(), "the assistant says nothing that could be learnt");
    return out;
  } catch (const Error& e) {
    fail("{}: {}", c.place, e.what());
  }
}

EncodedConversations encode_conversations(const std::vector<Conversation>& all,
                                          const text::ChatTemplate& chat, const text::Tokenizer& tokenizer,
                                          int64_t context) {
  EncodedConversations out;
  out.stream.output = Output::token_classes;  // one target for each token
  for (const Conversation& c : all) {
    const text::ChatTemplate::Rendered said = written(c, chat);
    text::Encoding tokens = tokenizer.encode(said.text, false);
    std::vector<int32_t> targets(tokens.size(), kIgnored);
    auto span = said.generated.begin();
    bool learnt = false;
    for (size_t i = 0; i < tokens.size() && span != said.generated.end(); ++i) {
      const text::Range at = tokens.offsets[i];
      while (span != said.generated.end() && span->end <= at.begin) ++span;
      if (span == said.generated.end() || at.end <= span->begin || i == 0) continue;
      targets[i - 1] = static_cast<int32_t>(tokens.ids[i]);
      learnt |= static_cast<int64_t>(i) <= context;
      const bool last = i + 1 == tokens.size() || tokens.offsets[i + 1].begin >= span->end;
      const auto id = static_cast<int64_t>(tokens.ids[i]);
      if (last && tokenizer.is_special(tokens.ids[i]) &&
          std::find(out.ends.begin(), out.ends.end(), id) == out.ends.end())
        out.ends.push_back(id);
    }
    // The last token has no target.
    std::vector<int32_t> ids(tokens.ids.begin(), tokens.ids.end());
    if (!ids.empty()) ids.pop_back(), targets.pop_back();
    out.cut += std::ssize(ids) > context;
    ids.resize(std::min<size_t>(ids.size(), static_cast<size_t>(context)));
    targets.resize(ids.size());
    if (!learnt) {
      ++out.lost;
      continue;
    }
    out.stream.append(ids, std::vector<int32_t>(ids.size(), 0), targets);
  }
  return out;
}

}  // namespace qkv
