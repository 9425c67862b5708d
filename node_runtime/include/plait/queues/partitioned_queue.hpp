// PartitionedQueue: a keyed stage's input as separate queues, each served by one worker at a time.
//
// Items wait in one queue a partition. A worker goes over the partitions that are its own
// (number modulo workers), then over the others, and drains each whose try-lock it gets. Nothing
// relates the order of two partitions, so outputs wait longer in the reorder buffer than with
// HybridQueue: this is the baseline to compare with.
//
// Threads: one producer at a time calls `try_add` (the role may pass on if the hand-over
// synchronises); any worker calls `consume` at any time. At most one worker is inside `operate` for
// a partition, and each call for a partition happens after the one before it. Progress: no worker
// waits; a partition whose lock is taken is passed over. An item added while the lock is being
// given back stays until the next `consume`: call again while size_approx() > 0. Full: `try_add`
// returns false and takes nothing. Empty: `consume` returns 0. Paper: section 4.2.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "plait/core/atomics.hpp"
#include "plait/core/cache_line.hpp"
#include "plait/core/capacity.hpp"
#include "plait/queues/spsc_ring.hpp"

namespace plait {

template <class T, class Policy = RealAtomics>
class PartitionedQueue {
 public:
  PartitionedQueue(std::size_t partitions, std::size_t capacity_per_partition, std::size_t workers)
      : workers_(checked_count("workers", workers)),
        cursors_(std::make_unique<Padded<Atomic<std::size_t>>[]>(workers)) {
    partitions_.reserve(checked_count("partitions", partitions));
    for (std::size_t p = 0; p < partitions; ++p) {
      partitions_.push_back(std::make_unique<LockedPartition>(capacity_per_partition));
    }
  }

  PartitionedQueue(const PartitionedQueue&) = delete;
  PartitionedQueue& operator=(const PartitionedQueue&) = delete;

  // Sole producer only. False if the partition's queue is full.
  [[nodiscard]] bool try_add(std::size_t partition, T* item) {
    return partitions_[partition]->queue.try_push(item);
  }

  // Calls `operate(partition, item)` for at most `max_items` items, and returns for how many.
  // `operate` must not throw: the partition would stay locked.
  template <class Operate>
  std::size_t consume(std::size_t worker, Operate&& operate, std::size_t max_items) {
    const std::size_t count = partitions_.size();
    const std::size_t own = worker % workers_;
    Atomic<std::size_t>& cursor = *cursors_[own];
    // Begins where the last call ended, so that a busy partition cannot starve those after it.
    // Relaxed: a hint, nothing hangs on its value.
    const std::size_t start = cursor.load(std::memory_order_relaxed);
    std::size_t processed = 0;
    for (const bool mine : {true, false}) {
      for (std::size_t i = 0; i < count; ++i) {
        const std::size_t number = (start + i) % count;
        if ((number % workers_ == own) != mine) continue;
        if (processed == max_items) {
          cursor.store(number, std::memory_order_relaxed);
          return processed;
        }
        processed += drain(number, operate, max_items - processed);
      }
    }
    cursor.store((start + 1) % count, std::memory_order_relaxed);
    return processed;
  }

  [[nodiscard]] std::size_t size_approx() const {
    std::size_t size = 0;
    for (const auto& partition : partitions_) size += partition->queue.size_approx();
    return size;
  }

  [[nodiscard]] std::size_t partitions() const noexcept { return partitions_.size(); }

 private:
  template <class U>
  using Atomic = typename Policy::template Atomic<U>;

  struct LockedPartition {
    explicit LockedPartition(std::size_t capacity) : queue(capacity) {}

    SpscRing<T*, Policy> queue;
    alignas(kCacheLine) Atomic<bool> locked{false};
  };

  template <class Operate>
  std::size_t drain(std::size_t number, Operate& operate, std::size_t max_items) {
    LockedPartition& partition = *partitions_[number];
    if (partition.queue.size_approx() == 0) return 0;
    // Acquire pairs with the release of locked below: we see the last holder's work.
    if (partition.locked.exchange(true, std::memory_order_acquire)) return 0;
    std::size_t processed = 0;
    T* item = nullptr;
    while (processed < max_items && partition.queue.try_pop(item)) {
      operate(number, item);
      ++processed;
    }
    // Release pairs with the acquire of locked above.
    partition.locked.store(false, std::memory_order_release);
    return processed;
  }

  const std::size_t workers_;
  const std::unique_ptr<Padded<Atomic<std::size_t>>[]> cursors_;
  std::vector<std::unique_ptr<LockedPartition>> partitions_;
};

}  // namespace plait
