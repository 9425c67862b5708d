// Ticks: the processor's own counter, for time that is asked for with every batch.
//
// Reading it takes a few nanoseconds, the system's clock some twenty-five: with batches of single
// records that was a tenth of all time. The counter runs at a constant rate on all cores of today's
// processors; where it should not, a slice is longer or shorter, and nothing else depends on it.
#pragma once

#include <chrono>
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace plait {

inline uint64_t ticks() {
#if defined(__x86_64__)
  return __rdtsc();
#elif defined(__aarch64__)
  uint64_t count;
  asm volatile("mrs %0, cntvct_el0" : "=r"(count));
  return count;
#else
  return uint64_t(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}

// Measured once in a process, over a fifth of a millisecond.
inline double ticks_per_ns() {
  static const double rate = [] {
    using Clock = std::chrono::steady_clock;
    const auto start = Clock::now();
    const uint64_t first = ticks();
    std::chrono::nanoseconds passed{0};
    while (passed.count() < 200'000) passed = Clock::now() - start;
    return double(ticks() - first) / double(passed.count());
  }();
  return rate;
}

}  // namespace plait
