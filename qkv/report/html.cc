#include "qkv/report/html.h"

#include "qkv/text/unicode.h"

namespace qkv {

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text::to_valid_utf8(std::string(text))) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else if (c == '\'')
      out += "&#39;";
    else if ((byte < 0x20 && c != '\n' && c != '\t' && c != '\r') || byte == 0x7F)
      out += "\xEF\xBF\xBD";
    else
      out.push_back(c);
  }
  return out;
}

}  // namespace qkv
