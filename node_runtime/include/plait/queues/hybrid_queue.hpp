// HybridQueue: the input of a keyed stage; any worker takes any partition, each partition in order.
//
// Items wait in one queue a partition, and the master queue holds the partition number of each, in
// arrival order. A worker takes a number from the master queue and adds 1 to that partition's
// count: if the count was 0 the worker is the active one and takes items from the partition's
// queue, giving 1 back after each, until the count is 0 again. If the count was not 0, the item is
// thereby delegated to the active worker, and this worker goes on to the next number.
//
// Threads: one producer at a time calls `try_add` (the worker that releases the stage upstream);
// the role may pass on if the hand-over synchronises. Any worker calls `consume` at any time, also
// from inside `operate`. At most one worker is inside `operate` for a partition, and each call for
// a partition happens after the one before it. Progress: no worker waits for another; a worker
// preempted inside `operate` holds up its partition only. Full: `try_add` returns false and takes
// nothing. Empty: `consume` returns 0; items may still be with active workers. Paper: Fig. 7 and
// theorem 4.1.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "plait/core/atomics.hpp"
#include "plait/core/cache_line.hpp"
#include "plait/core/capacity.hpp"
#include "plait/queues/mpmc_ring.hpp"
#include "plait/queues/spsc_ring.hpp"

namespace plait {

template <class T, class Policy = RealAtomics>
class HybridQueue {
 public:
  HybridQueue(std::size_t partitions, std::size_t capacity_per_partition)
      : master_(std::bit_ceil(checked_count("partitions", partitions) *
                              checked_capacity(capacity_per_partition) * 2)) {
    partitions_.reserve(partitions);
    for (std::size_t p = 0; p < partitions; ++p) {
      partitions_.push_back(std::make_unique<CountedPartition>(capacity_per_partition));
    }
  }

  HybridQueue(const HybridQueue&) = delete;
  HybridQueue& operator=(const HybridQueue&) = delete;

  // Sole producer only. False if the partition's queue (or, when a consumer is stuck, the master
  // queue) is full.
  [[nodiscard]] bool try_add(std::size_t partition, T* item) {
    // Asked first: a sole producer's room cannot go away, so an item that is in its partition's
    // queue always gets its entry in the master queue too.
    if (!master_.can_push()) return false;
    if (!partitions_[partition]->queue.try_push(item)) return false;
    // The master queue publishes the push above: whoever holds an entry finds an item.
    return master_.try_push(static_cast<std::uint32_t>(partition));
  }

  // Calls `operate(partition, item)` for items, and returns for how many. Takes at most `max_items`
  // entries from the master queue; items delegated meanwhile are operated on as well, so the
  // result may be larger, or 0 although entries were taken. `operate` must not throw.
  template <class Operate>
  std::size_t consume([[maybe_unused]] std::size_t worker, Operate&& operate,
                      std::size_t max_items) {
    std::size_t processed = 0;
    std::uint32_t number = 0;
    for (std::size_t taken = 0; taken < max_items && master_.try_pop(number); ++taken) {
      CountedPartition& partition = *partitions_[number];
      // Release pairs with the acquire of the active worker's fetch_sub: it sees the item behind
      // the entry we delegate. Acquire pairs with the release of the last active worker's
      // fetch_sub: we see all that its operate did, and its side of the partition's queue.
      if (partition.count.fetch_add(1, std::memory_order_acq_rel) == 0) {
        processed += run(partition, number, operate);
      }
    }
    return processed;
  }

  // Items not taken by a worker yet, over all partitions.
  [[nodiscard]] std::size_t size_approx() const {
    std::size_t size = 0;
    for (const auto& partition : partitions_) size += partition->queue.size_approx();
    return size;
  }

  // Entries in the master queue: what a `consume` could take now.
  [[nodiscard]] std::size_t entries_approx() const { return master_.size_approx(); }

  [[nodiscard]] std::size_t partitions() const noexcept { return partitions_.size(); }

 private:
  struct CountedPartition {
    explicit CountedPartition(std::size_t capacity) : queue(capacity) {}

    SpscRing<T*, Policy> queue;
    alignas(kCacheLine) typename Policy::template Atomic<std::uint64_t> count{0};
  };

  // The calling worker is the partition's active one: it raised the count from 0.
  template <class Operate>
  std::size_t run(CountedPartition& partition, std::uint32_t number, Operate& operate) {
    std::size_t processed = 0;
    bool more = true;
    while (more) {
      T* item = nullptr;
      // There is an item behind each entry, and each entry counts 1: an empty queue here means that
      // two producers were at work, and to go on would lose the order in silence.
      if (!partition.queue.try_pop(item)) std::abort();
      ++processed;
      if constexpr (Policy::kOperateThenRelease) operate(std::size_t{number}, item);
      // Acquire and release pair with the fetch_add in consume.
      more = partition.count.fetch_sub(1, std::memory_order_acq_rel) > 1;
      if constexpr (!Policy::kOperateThenRelease) operate(std::size_t{number}, item);
    }
    return processed;
  }

  MpmcRing<std::uint32_t, Policy> master_;
  std::vector<std::unique_ptr<CountedPartition>> partitions_;
};

}  // namespace plait
