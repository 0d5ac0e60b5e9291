// Scripts of characters, as Hugging Face's pre-tokenizer UnicodeScripts tells them apart.
#pragma once

#include <cstdint>

namespace qkv::text {

// The number of a character's script in Unicode 9. Hiragana, Katakana and the prolonged sound mark count as
// Han. kNoScript: a space, or not a character of Unicode 9.
inline constexpr uint8_t kNoScript = 0;
uint8_t script_of(int32_t codepoint);

}  // namespace qkv::text
