// Counts of one operator, added to once per batch by the worker that ran it; read at any time.
#pragma once

#include <atomic>
#include <cstdint>

#include "plait/core/cache_line.hpp"

namespace plait {

struct alignas(kCacheLine) Counts {
  std::atomic<int64_t> in{0}, out{0}, filtered{0}, skipped{0}, dead_lettered{0}, made{0}, copied{0},
      late{0}, absorbed{0};
  static void add(std::atomic<int64_t>& counter, int64_t n) {
    if (n) counter.fetch_add(n, std::memory_order_relaxed);  // relaxed: a statistic
  }
};

}  // namespace plait
