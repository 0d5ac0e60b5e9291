// The single team of threads, driven by one thread. Only parallel.cc knows its implementation: OpenMP
// (shared with oneDNN), or std::thread if QKV_STD_THREAD is defined, since ThreadSanitizer does not support
// libgomp.
#pragma once

#include <cstdint>
#include <functional>

namespace qkv {

// Number of threads of parallel regions: OMP_NUM_THREADS, or else the processors that this process may use.
int num_threads();
// REQUIRES: n >= 1. Results may differ in the last bit between thread counts, never within one.
void set_num_threads(int n);

// Call before using a library with OpenMP regions of its own (oneDNN). If the team consists of std::thread,
// such regions run on the calling thread only.
void share_openmp();

// Limits how long OpenMP's threads spin while they wait; only main() may call it. They spin for
// milliseconds, which makes short regions fifty times slower on processors that others use too. The runtime
// reads the limit from the environment before main() begins. This sets it and restarts the program, unless
// the environment already has a setting.
void limit_spinning(char** argv);

// Splits [0, n) into at most num_threads() contiguous pieces of at least `grain` and calls f(begin, end)
// for each. The pieces depend only on n, grain and num_threads().
void parallel_for(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& f);

// Calls f(piece, begin, end) with piece in [0, num_pieces(n, grain)), for reductions with one slot per
// piece.
void parallel_pieces(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t, int64_t)>& f);
int64_t num_pieces(int64_t n, int64_t grain);

// Calls f(task, worker) for every task in [0, n), for tasks of uneven length. Each worker begins with a share
// of neighbouring tasks, the same in calls alike, so that their data stay in its caches. Then it takes what
// is left of others' shares. A task may use `worker` only to select scratch memory.
void parallel_tasks(int64_t n, const std::function<void(int64_t, int)>& f);

}  // namespace qkv
