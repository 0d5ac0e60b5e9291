// Drawn inputs, times and memory, as the benchmarks of single layers take them.
#pragma once

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "qkv/base/rng.h"
#include "qkv/ops/elementwise.h"

namespace qkv {

// Normally distributed numbers [rows, width].
inline Tensor draw(int64_t rows, int64_t width, uint64_t seed, DType dtype) {
  Tensor x = Tensor::empty({rows, width}, DType::f32);
  const RandomStream stream{seed, 0, 0};
  for (int64_t i = 0; i < x.count(); ++i)
    x.mutable_data<float>()[i] = static_cast<float>(stream.normal(static_cast<uint64_t>(i)));
  return convert(x, dtype);
}

// The median over half a second of runs, at least one and at most 51.
template <typename F>
double milliseconds(const F& f) {
  std::vector<double> times;
  f();  // takes the memory that it needs
  for (double all = 0; times.empty() || (all < 500 && times.size() < 51);) {
    const auto start = std::chrono::steady_clock::now();
    f();
    times.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
    all += times.back();
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

// The most memory that the process has held.
inline double peak_mb() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

}  // namespace qkv
