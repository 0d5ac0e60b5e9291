#include "qkv/text/unicode_scripts.h"

#include <algorithm>
#include <iterator>

#include "qkv/text/unicode_scripts_table.h"

namespace qkv::text {

uint8_t script_of(int32_t codepoint) {
  const ScriptRange* const range = std::ranges::lower_bound(kScriptRanges, codepoint, {}, &ScriptRange::last);
  return range != std::end(kScriptRanges) && range->first <= codepoint ? range->script : kNoScript;
}

}  // namespace qkv::text
