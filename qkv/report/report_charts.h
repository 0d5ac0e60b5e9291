// The charts of a report: which there are, and their curves.
#pragma once

#include <string>
#include <vector>

#include "qkv/report/run_log.h"

namespace qkv {

// The runs that one report compares.
using Runs = std::vector<RunLog>;

// Parts of a noisy curve whose means show its course.
inline constexpr size_t kCourse = 150;

// The part of the target that a run's training loss spreads over the vocabulary; its validation loss has
// none.
double label_smoothing(const RunLog& run);

// A chart for each kind of number that the runs have recorded, the losses first; with several runs, their
// curves over each other, told apart by `names`.
std::string charts_html(const Runs& runs, const std::vector<std::string>& names);

}  // namespace qkv
