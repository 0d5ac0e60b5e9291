// The part of a report that shows what heads attend to, and what layers would say, while a model trains.
#pragma once

#include <string>

#include "qkv/report/run_log.h"

namespace qkv {

// The traces of a run as charts of heads' roles, and pictures of one step at a time; "" without traces. The
// pictures' script follows its data, once a page.
std::string traces_html(const RunLog& run);

}  // namespace qkv
