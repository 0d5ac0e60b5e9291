// From a template's text to its statements.
#pragma once

#include <string_view>

#include "qkv/chat/jinja/nodes.h"

namespace qkv::text::jinja {

// Throws Error naming the line, and what is not known there: a statement, a filter, a test.
Body parse(std::string_view source);

}  // namespace qkv::text::jinja
