// Text inside a page of HTML.
#pragma once

#include <string>
#include <string_view>

namespace qkv {

// `text` as HTML shows it, in an element or a quoted attribute. What HTML cannot hold (bytes that are not
// UTF-8, control characters other than line breaks and tabs) becomes U+FFFD.
std::string escape_html(std::string_view text);

}  // namespace qkv
