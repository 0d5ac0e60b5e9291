// Chat templates in the styles in use, and what expressions there are, against Jinja itself (make_cases.py).
#include "qkv/chat/chat_template.h"

#include <gtest/gtest.h>

#include "qkv/base/error.h"
#include "qkv/base/file.h"
#include "qkv/base/json_value.h"
#include "tests/source_dir.h"

namespace qkv::text::chat_template_test {
namespace {

using Json = nlohmann::ordered_json;

TEST(ChatTemplateGolden, WritesWhatJinjaWrites) {
  const std::string folder = testing::source_dir() + "/tests/golden/chat_templates/";
  const Json cases = Json::parse(read_file(folder + "cases.json"));
  ASSERT_GT(cases.size(), 150U);
  for (const Json& c : cases) {
    const auto name = c["name"].get<std::string>();
    const std::string source =
        c.contains("template") ? c["template"].get<std::string>() : read_file(folder + name);
    const auto render = [&] { return ChatTemplate(source, name).render(c["variables"], 0); };
    if (!c.contains("text")) {
      EXPECT_THROW(render(), Error) << name << " " << source;
      continue;
    }
    try {
      const ChatTemplate::Rendered r = render();
      EXPECT_EQ(r.text, c["text"].get<std::string>()) << name << " " << (source.size() < 300 ? source : "");
      Json spans = Json::array();
      for (const Range& g : r.generated) spans.push_back({g.begin, g.end});
      EXPECT_EQ(spans, c["generated"]) << name;
    } catch (const Error& e) {
      ADD_FAILURE() << e.what() << ": " << (source.size() < 300 ? source : "");
    }
  }
}

}  // namespace
}  // namespace qkv::text::chat_template_test
