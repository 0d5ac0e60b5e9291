// A report of a training run as one HTML page: key figures, charts, samples, settings. The page is
// self-contained: it uses no network and no other file. Its script only shows values under the pointer.
#pragma once

#include <string>
#include <vector>

namespace qkv {

// The page about one run, or about several with overlaid curves. For a folder with the folds of a
// cross-validation it shows the scores of each fold, their means and deviations. Throws Error naming file
// and line if a run's records are damaged. REQUIRES: at least one run.
std::string report_html(const std::vector<std::string>& run_dirs);

// Writes RUN/report.html.
void write_report(const std::string& run_dir);

}  // namespace qkv
