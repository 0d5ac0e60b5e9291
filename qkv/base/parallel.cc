#include "qkv/base/parallel.h"

#include <omp.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace qkv {
namespace {

int default_threads() {
  if (const char* text = std::getenv("OMP_NUM_THREADS")) {
    if (const int n = std::atoi(text); n > 0) return n;
  }
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1u, std::thread::hardware_concurrency());
}

int& thread_count() {
  static int n = default_threads();
  return n;
}

thread_local bool inside_region = false;

// Runs f(worker) on `workers` threads; the first exception thrown by one is rethrown here.
void run_team(int workers, const std::function<void(int)>& f) {
  if (workers <= 1 || inside_region) {
    for (int w = 0; w < workers; ++w) f(w);
    return;
  }
  std::exception_ptr error;
  std::mutex mutex;
  auto guarded = [&](int worker) {
    inside_region = true;
    try {
      f(worker);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
    }
    inside_region = false;
  };
#ifdef QKV_STD_THREAD
  std::vector<std::thread> team;
  for (int w = 1; w < workers; ++w) team.emplace_back(guarded, w);
  guarded(0);
  for (auto& t : team) t.join();
#else
#pragma omp parallel num_threads(workers)
  {
    // A nested or limited team may be smaller than requested: each thread takes every team-th worker.
    for (int w = omp_get_thread_num(); w < workers; w += omp_get_num_threads()) guarded(w);
  }
#endif
  if (error) std::rethrow_exception(error);
}

}  // namespace

int num_threads() {
  return thread_count();
}

void set_num_threads(int n) {
  thread_count() = std::max(1, n);
#ifndef QKV_STD_THREAD
  omp_set_num_threads(thread_count());  // also for oneDNN's regions
#endif
}

void share_openmp() {
#ifdef QKV_STD_THREAD
  omp_set_num_threads(1);
#endif
}

void limit_spinning([[maybe_unused]] char** argv) {
#ifndef QKV_STD_THREAD
  if (std::getenv("GOMP_SPINCOUNT") != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  setenv("GOMP_SPINCOUNT", "10000",
         1);                        // some microseconds, longer than the gap between two regions of a step
  ::execv("/proc/self/exe", argv);  // returns only if it fails; spinning is then unchanged
#endif
}

int64_t num_pieces(int64_t n, int64_t grain) {
  if (n <= 0) return 0;
  return std::clamp<int64_t>(n / std::max<int64_t>(1, grain), 1, num_threads());
}

void parallel_pieces(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t, int64_t)>& f) {
  const int64_t pieces = num_pieces(n, grain);
  if (pieces == 1) return f(0, 0, n);
  run_team(static_cast<int>(pieces), [&](int p) { f(p, n * p / pieces, n * (p + 1) / pieces); });
}

void parallel_for(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& f) {
  parallel_pieces(n, grain, [&](int64_t, int64_t begin, int64_t end) { f(begin, end); });
}

void parallel_tasks(int64_t n, const std::function<void(int64_t, int)>& f) {
  const int64_t workers = std::min<int64_t>(n, num_threads());
  if (workers == 1) {
    for (int64_t task = 0; task < n; ++task) f(task, 0);
    return;
  }
  struct alignas(64) Share {  // a cache line of its own
    std::atomic<int64_t> next;
    int64_t end;
  };
  std::vector<Share> shares(static_cast<size_t>(workers));
  for (int64_t w = 0; w < workers; ++w) {
    shares[w].next = n * w / workers;
    shares[w].end = n * (w + 1) / workers;
  }
  run_team(static_cast<int>(workers), [&](int worker) {
    for (int64_t i = 0; i < workers; ++i) {
      Share& share = shares[(worker + i) % workers];
      for (int64_t task; (task = share.next.fetch_add(1, std::memory_order_relaxed)) < share.end;)
        f(task, worker);
    }
  });
}

}  // namespace qkv
