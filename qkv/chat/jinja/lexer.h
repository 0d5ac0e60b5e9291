// Cuts templates into tokens.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace qkv::text::jinja {

// A token of a template.
struct Token {
  enum class Kind {
    text,            // between tags
    block_begin,     // {%
    block_end,       // %}
    variable_begin,  // {{
    variable_end,    // }}
    name,
    string,  // unescaped
    integer,
    real,
    sign,  // operator or bracket
    end,   // end of the template
  };
  Kind kind;
  std::string text;
  size_t line;  // from 1
};

// Tokenizes as Jinja does with trim_blocks and lstrip_blocks, for which chat templates are written. A
// newline after a block is removed, and so is white space before a block that begins its line. "-" removes
// all white space on its side, "+" keeps it. Comments and raw blocks are resolved. Throws Error naming the
// line.
std::vector<Token> tokenize(std::string_view source);

}  // namespace qkv::text::jinja
