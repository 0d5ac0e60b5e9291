// Text inside HTML.
#pragma once

#include <string>
#include <string_view>

namespace qkv {

// `text` escaped for an element or a quoted attribute. Bytes that HTML cannot represent (not UTF-8, control
// characters other than line breaks and tabs) become U+FFFD.
std::string escape_html(std::string_view text);

}  // namespace qkv
