#include "qkv/io/companions.h"

#include "qkv/base/file.h"
#include "qkv/base/json.h"
#include "qkv/io/adapter_dir.h"

namespace qkv {

std::optional<text::ChatTemplate> chat_template_of(const std::string& dir) {
  auto found = text::ChatTemplate::find(dir);
  if (!found && is_adapter_dir(dir)) found = text::ChatTemplate::find(read_adapter_config(dir).base);
  return found;
}

void keep_companions(const std::string& from, const std::string& to) {
  for (const char* name : {"chat_template.jinja", "tokenizer_config.json", "special_tokens_map.json"})
    if (const std::string path = beside_or_base(from, name);
        file_exists(path) && !file_exists(to + "/" + name))
      write_file_atomically(to + "/" + name, read_file(path));
  const std::string theirs = beside_or_base(from, "generation_config.json"),
                    ours = to + "/generation_config.json";
  if (!file_exists(theirs)) return;
  parse_json(read_file(theirs), theirs);  // refuses what is malformed
  OrderedJson fields = OrderedJson::parse(read_file(theirs));
  check(fields.is_object(), "{}: expected an object", theirs);
  if (file_exists(ours)) fields.update(OrderedJson::parse(read_file(ours)));
  write_file_atomically(ours, fields.dump(2) + "\n");
}

}  // namespace qkv
