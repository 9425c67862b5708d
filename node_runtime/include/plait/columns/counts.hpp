// Counts of one operator, added to once per batch by the worker that ran it; read at any time.
//
// CountSets keeps two sets of them, for the epochs before a boundary and for those from it on, so
// that the counts of the first are exact as soon as everything before the boundary is through,
// while the second goes on. The next boundary takes turns with the sets: it may come when all
// before the last one is through.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "plait/core/cache_line.hpp"

namespace plait {

struct alignas(kCacheLine) Counts {
  std::atomic<int64_t> in{0}, out{0}, filtered{0}, skipped{0}, dead_lettered{0}, made{0}, copied{0},
      late{0}, absorbed{0}, shed{0};
  static void add(std::atomic<int64_t>& counter, int64_t n) {
    if (n) counter.fetch_add(n, std::memory_order_relaxed);  // relaxed: a statistic
  }
  // in, out, filtered, skipped, dead-lettered, made, copied, late, absorbed, shed.
  std::array<int64_t, 10> values() const {
    auto get = [](const std::atomic<int64_t>& a) { return a.load(std::memory_order_relaxed); };
    return {get(in),   get(out),    get(filtered), get(skipped),  get(dead_lettered),
            get(made), get(copied), get(late),     get(absorbed), get(shed)};
  }
};

class CountSets {
 public:
  explicit CountSets(size_t operators) : sets_{Set(operators), Set(operators)} {}

  // Where a batch of this epoch is counted. Whoever has a batch from the boundary on sees the
  // boundary: it was set before the batch was made.
  Counts& of(uint32_t op, uint64_t epoch) {
    const uint64_t cut = cut_.load(std::memory_order_relaxed);
    return sets_[(uint64_t(epoch >= cut >> 1) ^ cut) & 1][op];
  }
  // Epochs from this one on are another interval. Before any of their batches is made.
  void begin(uint64_t epoch) {
    const uint64_t cut = cut_.load(std::memory_order_relaxed);
    const bool first = cut == kNoCut;
    cut_.store(epoch << 1 | (first ? 0 : ~cut & 1), std::memory_order_relaxed);
  }
  std::array<int64_t, 10> all(size_t op) const {
    std::array<int64_t, 10> sum = sets_[0][op].values();
    const auto other = sets_[1][op].values();
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += other[i];
    return sum;
  }
  // The set that the epochs before the last boundary were counted in.
  std::array<int64_t, 10> closed(size_t op) const {
    return sets_[cut_.load(std::memory_order_relaxed) & 1][op].values();
  }
  size_t size() const { return sets_[0].size(); }

 private:
  using Set = std::vector<Counts>;
  static constexpr uint64_t kNoCut = UINT64_MAX - 1;
  std::array<Set, 2> sets_;
  std::atomic<uint64_t> cut_{kNoCut};  // twice the boundary, plus the set of the epochs before it
};

}  // namespace plait
