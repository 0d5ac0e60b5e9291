// The filters, tests, methods and functions that templates may use.
#pragma once

#include <string>

#include "qkv/chat/jinja/value.h"

namespace qkv::text::jinja {

// By name; null where there is none. The first argument is what they are applied to.
const Function* find_filter(const std::string& name);
const Function* find_test(const std::string& name);

// A method of a string, a list, a mapping or a namespace, bound to it; undefined where it has none. Those
// that would change it are refused.
Value find_method(const Value& object, const std::string& name);

// range, namespace, dict, raise_exception and strftime_now, whose clock says `now` (seconds since 1970).
Dict global_functions(int64_t now);

// For errors: the names of all filters, or tests.
std::string filter_names();
std::string test_names();

}  // namespace qkv::text::jinja
