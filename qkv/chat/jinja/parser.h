// Parses a template's text into statements.
#pragma once

#include <string_view>

#include "qkv/chat/jinja/nodes.h"

namespace qkv::text::jinja {

// Throws Error naming the line and the unknown statement, filter or test.
Body parse(std::string_view source);

}  // namespace qkv::text::jinja
