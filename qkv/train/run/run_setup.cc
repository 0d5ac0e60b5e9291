#include "qkv/train/run/run_setup.h"

#include "qkv/train/run/batch_size.h"
#include "qkv/train/run/resume.h"

namespace qkv {
namespace {

std::unique_ptr<Task> task_of(const TrainConfig& config, StartMode mode, const RunFolder& folder) {
  if (mode != StartMode::resume) return make_task(config, nullptr);
  const Origin last = Origin::at(folder.last());
  return make_task(config, &last);
}

}  // namespace

RunSetup set_up_run(const TrainConfig& config, StartMode mode, const RunFolder& folder, Progress& progress,
                    int ranks) {
  RunSetup run{.config = config, .task = task_of(config, mode, folder), .ranks = ranks};
  complete_model(run.config, *run.task);
  if (mode == StartMode::resume) resume_from(folder.last(), run, progress);
  run.state.batch = resolve_batch_size(run.config, *run.task, run.state.batch, ranks);
  if (mode != StartMode::resume) {
    find_steps(run.config, *run.task, run.state.batch);
    run.state.fingerprint = run_fingerprint(run.config, *run.task);
  }
  return run;
}

}  // namespace qkv
