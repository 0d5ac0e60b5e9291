// Formats a conversation as the text that a model continues: chat_template of Hugging Face's directories,
// in the subset of Jinja that such templates use.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "qkv/text/regex.h"

namespace qkv::text {

// A parsed template; copies share it, and all functions may be called from several threads.
class ChatTemplate {
 public:
  // Throws Error naming the line and the unsupported construct. `where`: the name of the template in
  // errors.
  ChatTemplate(std::string_view source, const std::string& where);

  // Reads the template of a model directory: chat_template.jinja, or "chat_template" of
  // tokenizer_config.json (in a list, the one named "default"). The special tokens that the directory names
  // become variables. Returns nullopt if there is none.
  static std::optional<ChatTemplate> find(const std::string& dir);

  // Adds the special tokens named in a model directory's tokenizer_config.json and special_tokens_map.json
  // as variables.
  void name_special_tokens(const std::string& dir);

  // A conversation as text, and the bytes of it in {% generation %} blocks, which a model learns to write.
  struct Rendered {
    std::string text;
    std::vector<Range> generated;
  };

  // `variables`: an object with messages, [{"role": "user", "content": "..."}, ...], and other variables of
  // the template (tools, documents, add_generation_prompt). `now`: the template's clock, seconds since
  // 1970. Throws Error if the template exceeds the limits on time and memory, or calls raise_exception().
  Rendered render(const nlohmann::ordered_json& variables, int64_t now) const;

 private:
  struct Parsed;
  std::shared_ptr<Parsed> parsed_;
};

}  // namespace qkv::text
