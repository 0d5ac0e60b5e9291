// How a conversation becomes the text that a model continues: chat_template of Hugging Face's directories, in
// the part of Jinja that such templates use.
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
  // Throws Error naming the line and what is not supported there. `where`: what errors call it.
  ChatTemplate(std::string_view source, const std::string& where);

  // That of a model directory: chat_template.jinja, or "chat_template" of tokenizer_config.json (of several
  // the one named "default"), with the special tokens that the directory names as variables. Nothing where
  // there is none.
  static std::optional<ChatTemplate> find(const std::string& dir);

  // Names the special tokens that a model directory's tokenizer_config.json and special_tokens_map.json name.
  void name_special_tokens(const std::string& dir);

  // A conversation as text, and which bytes of it lie in {% generation %} blocks: what a model learns to
  // write.
  struct Rendered {
    std::string text;
    std::vector<Range> generated;
  };

  // `variables`: an object with messages, [{"role": "user", "content": "..."}, ...], and what else the
  // template reads (tools, documents, add_generation_prompt). What templates may cost is bounded: throws
  // Error beyond, and where the template itself refuses. `now`: of its clock, seconds since 1970.
  Rendered render(const nlohmann::ordered_json& variables, int64_t now) const;

 private:
  struct Parsed;
  std::shared_ptr<Parsed> parsed_;
};

}  // namespace qkv::text
