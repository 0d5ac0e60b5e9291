// Hostile chat templates: whatever the bytes, parsing and rendering end within their budget or throw
// qkv::Error, and generation blocks lie within the text.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "qkv/base/error.h"
#include "qkv/base/json_value.h"
#include "qkv/chat/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const nlohmann::ordered_json variables = nlohmann::ordered_json::parse(
      R"({"messages": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": null, "tool_calls":
          [{"function": {"name": "f", "arguments": {"x": 1.5, "y": [true]}}}]}], "add_generation_prompt": true})");
  try {
    const qkv::text::ChatTemplate chat({reinterpret_cast<const char*>(data), size}, "template");
    const auto rendered = chat.render(variables, 0);
    for (const qkv::text::Range& r : rendered.generated)
      if (r.begin > r.end || r.end > rendered.text.size()) std::abort();
  } catch (const qkv::Error&) {
  }
  return 0;
}
