// The one team of threads, driven by one thread. Only parallel.cc knows how it is made: OpenMP (shared with
// oneDNN), or std::thread where QKV_STD_THREAD is defined, since ThreadSanitizer does not understand libgomp.
#pragma once

#include <cstdint>
#include <functional>

namespace qkv {

// Threads used by parallel regions: OMP_NUM_THREADS, or else the processors this process may run on.
int num_threads();
// REQUIRES: n >= 1. Results may differ in the last bit between thread counts, never within one.
void set_num_threads(int n);

// Before a call of a library that has OpenMP regions of its own (oneDNN): where the team is made of
// std::thread, such regions run on the calling thread alone.
void share_openmp();

// OpenMP's threads spin for milliseconds while they wait, which on processors that others use too makes short
// regions fifty times slower. The runtime reads how long from the environment before main() begins: this sets
// it and starts the program anew, unless the environment has a setting already. For main() alone.
void limit_spinning(char** argv);

// Splits [0, n) into at most num_threads() contiguous pieces of at least `grain` and calls f(begin, end) for
// each. Which elements form a piece depends on n, grain and num_threads() alone.
void parallel_for(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& f);

// Calls f(piece, begin, end) with piece in [0, num_pieces(n, grain)): for reductions with a slot a piece.
void parallel_pieces(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t, int64_t)>& f);
int64_t num_pieces(int64_t n, int64_t grain);

// Calls f(task, worker) for every task in [0, n), handed out as workers come free: for tasks of uneven
// length. A task's result may depend on `worker` only as the owner of scratch memory.
void parallel_tasks(int64_t n, const std::function<void(int64_t, int)>& f);

}  // namespace qkv
