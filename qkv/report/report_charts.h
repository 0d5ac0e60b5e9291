// The charts of a report and their curves.
#pragma once

#include <string>
#include <vector>

#include "qkv/report/run_log.h"

namespace qkv {

// The runs that one report compares.
using Runs = std::vector<RunLog>;

// Number of parts of a noisy curve whose means show its trend.
inline constexpr size_t kCourse = 150;

// Label smoothing of a run's training loss; the validation loss has none.
double label_smoothing(const RunLog& run);

// A chart for each kind of number that the runs have recorded, the losses first. Curves of several runs are
// overlaid and distinguished by `names`.
std::string charts_html(const Runs& runs, const std::vector<std::string>& names);

}  // namespace qkv
