// The filters, tests, methods and functions that templates may use.
#pragma once

#include <string>

#include "qkv/chat/jinja/value.h"

namespace qkv::text::jinja {

// The filter or test with this name; null if there is none. Its first argument is the value that it is
// applied to.
const Function* find_filter(const std::string& name);
const Function* find_test(const std::string& name);

// A method of a string, a list, a mapping or a namespace, bound to it; undefined if it has none. Throws
// Error for methods that would change the object.
Value find_method(const Value& object, const std::string& name);

// range, namespace, dict, raise_exception and strftime_now, whose clock is `now` (seconds since 1970).
Dict global_functions(int64_t now);

// The names of all filters or tests, for errors.
std::string filter_names();
std::string test_names();

}  // namespace qkv::text::jinja
