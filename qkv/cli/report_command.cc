// qkv report: training runs as a page of HTML.
#include <cstdio>

#include "qkv/base/error.h"
#include "qkv/base/file.h"
#include "qkv/cli/command.h"
#include "qkv/report/report.h"

namespace qkv {
namespace {

struct ReportOptions {
  std::vector<std::string> runs;
  std::string out;
};

void run_report(const ReportOptions& o) {
  if (o.out.empty() && o.runs.size() > 1)
    throw UsageError("several runs: say where to write the page, e.g. --out compare.html");
  const std::string out = o.out.empty() ? o.runs.front() + "/report.html" : o.out;
  write_file_atomically(out, report_html(o.runs));
  std::printf("%s\n", out.c_str());
}

}  // namespace

void add_report_command(Command& app) {
  auto o = std::make_shared<ReportOptions>();
  Command* c = app.add_subcommand("report", "Write an HTML report about training runs");
  c->add_option("RUN", o->runs, "Runs or cross-validations; several are compared in one page")->required();
  c->add_option("--out", o->out, "File to write (default for one run: RUN/report.html)");
  c->footer(
      "The page shows losses, scores beside baselines, the confusion matrix, speed, gradient norms, samples "
      "and settings.\n"
      "It needs no network, and can be made while the run is going on.\n"
      "The page about a cross-validation has the scores of each fold, their means and deviations.\n"
      "Example: qkv report runs/shakespeare");
  c->callback([o] { run_report(*o); });
}

}  // namespace qkv
