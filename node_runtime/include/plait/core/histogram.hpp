// Histogram: counts latencies in buckets whose width grows with the value, within 1/32 (3.1 %).
//
// A value below 32 has its own bucket; above, each power of two is cut into 32 equal buckets, so
// all of uint64 fits into 1,920 counters. A worker records into its own histogram by plain relaxed
// loads and stores; a reader merges the workers' histograms into its own and asks that one. A
// percentile is the upper edge of its bucket, never above the largest value recorded.
//
// Threads: one writer calls `record` and `merge`; anyone may read, and be merged from, at any time.
// A reader that races with the writer may miss its last values; it never sees torn counters.
// Progress: wait-free. Empty: count, percentile, max and mean are 0.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "plait/core/atomics.hpp"

namespace plait {

template <class Policy = RealAtomics>
class BasicHistogram {
 public:
  static constexpr unsigned kSubBits = 5;
  static constexpr std::size_t kSubBuckets = std::size_t{1} << kSubBits;
  static constexpr std::size_t kBuckets = (64 - kSubBits + 1) * kSubBuckets;

  // Writer only.
  void record(std::uint64_t value, std::uint64_t count = 1) {
    if (count == 0) return;
    add(counts_[bucket_of(value)], count);
    add(sum_, static_cast<double>(value) * static_cast<double>(count));
    raise_max(value);
  }

  // Writer only: adds all that `other` has recorded so far.
  void merge(const BasicHistogram& other) {
    for (std::size_t i = 0; i < kBuckets; ++i) {
      const std::uint64_t count = other.counts_[i].load(std::memory_order_relaxed);
      if (count != 0) add(counts_[i], count);
    }
    add(sum_, other.sum_.load(std::memory_order_relaxed));
    raise_max(other.max());
  }

  [[nodiscard]] std::uint64_t count() const {
    std::uint64_t total = 0;
    for (const auto& count : counts_) total += count.load(std::memory_order_relaxed);
    return total;
  }

  // The value that `percent` (0 to 100) of the recorded values do not exceed.
  [[nodiscard]] std::uint64_t percentile(double percent) const {
    const std::uint64_t total = count();
    if (total == 0) return 0;
    const double share = percent / 100.0 * static_cast<double>(total);
    const double rank = share < 1.0 ? 1.0 : std::ceil(share);
    std::uint64_t seen = 0;
    for (std::size_t i = 0; i < kBuckets; ++i) {
      seen += counts_[i].load(std::memory_order_relaxed);
      if (static_cast<double>(seen) >= rank) {
        const std::uint64_t edge = upper_edge(i);
        return edge < max() ? edge : max();
      }
    }
    return max();
  }

  // Calls visit(upper edge, count) for every bucket that has something, edges ascending.
  template <class Visit>
  void each(Visit visit) const {
    for (std::size_t i = 0; i < kBuckets; ++i) {
      const std::uint64_t count = counts_[i].load(std::memory_order_relaxed);
      if (count != 0) visit(upper_edge(i), count);
    }
  }

  [[nodiscard]] std::uint64_t max() const { return max_.load(std::memory_order_relaxed); }

  [[nodiscard]] double mean() const {
    const std::uint64_t total = count();
    if (total == 0) return 0.0;
    return sum_.load(std::memory_order_relaxed) / static_cast<double>(total);
  }

  [[nodiscard]] static constexpr std::size_t bucket_of(std::uint64_t value) {
    if (value < kSubBuckets) return static_cast<std::size_t>(value);
    const unsigned shift = static_cast<unsigned>(std::bit_width(value)) - kSubBits - 1;
    // The top bit of the shifted value is always set and stands for the bucket row itself.
    return shift * kSubBuckets + static_cast<std::size_t>(value >> shift);
  }

  // The largest value that falls into `bucket`.
  [[nodiscard]] static constexpr std::uint64_t upper_edge(std::size_t bucket) {
    if (bucket < 2 * kSubBuckets) return bucket;
    const auto shift = static_cast<unsigned>(bucket / kSubBuckets - 1);
    const std::uint64_t low = static_cast<std::uint64_t>(bucket - shift * kSubBuckets) << shift;
    return low + ((std::uint64_t{1} << shift) - 1);
  }

 private:
  template <class U>
  using Atomic = typename Policy::template Atomic<U>;

  // Not a fetch_add: with a single writer a load and a store are enough, and cheaper.
  template <class U>
  static void add(Atomic<U>& counter, U amount) {
    counter.store(counter.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
  }

  void raise_max(std::uint64_t value) {
    if (value > max()) max_.store(value, std::memory_order_relaxed);
  }

  std::array<Atomic<std::uint64_t>, kBuckets> counts_{};
  Atomic<double> sum_{0.0};
  Atomic<std::uint64_t> max_{0};
};

using Histogram = BasicHistogram<>;

static_assert(Histogram::bucket_of(~std::uint64_t{0}) == Histogram::kBuckets - 1);
static_assert(Histogram::upper_edge(Histogram::kBuckets - 1) == ~std::uint64_t{0});

}  // namespace plait
