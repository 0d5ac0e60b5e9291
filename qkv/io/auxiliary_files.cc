#include "qkv/io/auxiliary_files.h"

#include "qkv/base/file.h"
#include "qkv/base/json.h"
#include "qkv/base/json_value.h"
#include "qkv/io/adapter_dir.h"

namespace qkv {

std::optional<text::ChatTemplate> chat_template_of(const std::string& dir) {
  auto found = text::ChatTemplate::find(dir);
  if (!found && is_adapter_dir(dir)) found = text::ChatTemplate::find(read_adapter_config(dir).base);
  return found;
}

namespace {

// The generation settings that older directories keep in config.json.
OrderedJson of_generation(const OrderedJson& config) {
  OrderedJson out = OrderedJson::object();
  for (const char* key : {"do_sample",
                          "temperature",
                          "top_k",
                          "top_p",
                          "min_p",
                          "typical_p",
                          "repetition_penalty",
                          "suppress_tokens",
                          "begin_suppress_tokens",
                          "bad_words_ids",
                          "forced_bos_token_id",
                          "forced_eos_token_id",
                          "max_new_tokens",
                          "max_length",
                          "min_new_tokens",
                          "min_length",
                          "num_beams",
                          "length_penalty",
                          "early_stopping",
                          "no_repeat_ngram_size"})
    if (config.contains(key)) out[key] = config[key];
  return out;
}

}  // namespace

void keep_auxiliary_files(const std::string& from, const std::string& to) {
  for (const char* name : {"chat_template.jinja", "tokenizer_config.json", "special_tokens_map.json"})
    if (const std::string path = beside_or_base(from, name);
        file_exists(path) && !file_exists(to + "/" + name))
      write_file_atomically(to + "/" + name, read_file(path));
  const std::string ours = to + "/generation_config.json";
  std::string theirs = beside_or_base(from, "generation_config.json");
  const bool apart = file_exists(theirs);
  if (!apart) theirs = beside_or_base(from, "config.json");
  if (!file_exists(theirs)) return;
  parse_json(read_file(theirs), theirs);  // throws Error if it is malformed
  OrderedJson fields = OrderedJson::parse(read_file(theirs));
  check(fields.is_object(), "{}: expected an object", theirs);
  if (!apart) fields = of_generation(fields);
  if (fields.empty()) return;
  if (file_exists(ours)) fields.update(OrderedJson::parse(read_file(ours)));
  write_file_atomically(ours, fields.dump(2) + "\n");
}

}  // namespace qkv
