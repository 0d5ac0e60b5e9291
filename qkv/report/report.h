// A training run as one page of HTML: key figures, charts, samples, settings. The page needs nothing else: no
// network, no other file; its script only shows the values under the pointer.
#pragma once

#include <string>
#include <vector>

namespace qkv {

// The page about one run, or about several with their curves laid over each other; about a folder with the
// folds of a cross-validation, with the scores of each fold, their means and their deviations. Throws Error
// naming file and line where a run's records are damaged. REQUIRES: at least one run.
std::string report_html(const std::vector<std::string>& run_dirs);

// Writes RUN/report.html.
void write_report(const std::string& run_dir);

}  // namespace qkv
