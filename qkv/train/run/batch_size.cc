#include "qkv/train/run/batch_size.h"

#include <fmt/format.h>

#include "qkv/base/error.h"
#include "qkv/base/machine.h"
#include "qkv/train/run/plan.h"

namespace qkv {
namespace {

std::string bytes_text(int64_t bytes) {
  return memory_text(static_cast<double>(bytes));
}

// Throws Error, before any memory is taken, where a step needs more than `limit` bytes.
void expect_fits(const TrainConfig& config, int64_t batch, int64_t limit, int ranks) {
  const int64_t needed = memory_plan(config, batch, ranks).total();
  if (needed <= limit) return;
  const char* limited = config.memory_gb > 0 ? "are allowed (train.memory_gb)" : "are free";
  if (config.objective != Objective::next_token)
    fail("micro-batches of {} tokens need {}, but {} {}: lower train.batch_tokens{}", config.tokens_of_pass(),
         bytes_text(needed), bytes_text(limit), limited, config.shards > 1 ? ", or raise train.shards" : "");
  const int64_t fits = largest_batch(config, limit, ranks);
  TrainConfig frugal = config;
  frugal.recompute = true;
  const bool recompute_helps = !config.recompute && largest_batch(frugal, limit, ranks) > fits;
  fail("{} windows of {} tokens need {}, but {} {}: {}{}", batch, config.window_length(), bytes_text(needed),
       bytes_text(limit), limited,
       fits > 0 ? fmt::format("set train.batch = {}", fits * config.shards)
                : std::string("choose a smaller model"),
       recompute_helps ? ", or train.recompute = true" : "");
}

}  // namespace

int64_t resolve_batch_size(const TrainConfig& config, const Task& task, int64_t resumed, int ranks) {
  const int64_t limit = memory_limit(config);
  int64_t batch = config.batch > 0 ? config.windows_of_pass() : resumed;
  if (batch == 0)
    batch = std::clamp<int64_t>(largest_batch(config, limit, ranks), 1,
                                std::max<int64_t>(1, task.largest_batch()));
  expect_fits(config, batch, limit, ranks);
  task.expect_batch(batch);
  return batch;
}

}  // namespace qkv
