// Templates cut into tokens.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace qkv::text::jinja {

// One of them.
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
    sign,  // an operator or a bracket
    end,   // of the template
  };
  Kind kind;
  std::string text;
  size_t line;  // from 1
};

// As Jinja cuts them with trim_blocks and lstrip_blocks, which chat templates are written for: a newline
// behind a block goes, and so does white space before one that begins its line; "-" takes all white space on
// its side, "+" keeps it. Comments and raw blocks are resolved. Throws Error naming the line.
std::vector<Token> tokenize(std::string_view source);

}  // namespace qkv::text::jinja
