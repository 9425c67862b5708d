// SharedQueue: a keyed stage's input as one queue; taking an item locks its partition with it.
//
// All items wait in one ring in arrival order. Under one global lock a worker looks at the head and
// takes it only if its partition is free, marking the partition busy in the same critical section,
// so two items of a partition can never be taken out of order. A head whose partition is busy holds
// up everything behind it: this is the baseline to compare HybridQueue with.
//
// Threads: anyone may call anything. At most one worker is inside `operate` for a partition, and
// each call for a partition happens after the one before it.
// Progress: blocking for the length of a few instructions (`operate` runs outside the lock); a
// worker that finds the head's partition busy leaves, it does not wait.
// Full: `try_add` returns false and takes nothing. Empty (or head busy): `consume` returns 0; call
// again while size_approx() > 0.
// Paper: section 4.1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "plait/core/atomics.hpp"
#include "plait/core/cache_line.hpp"
#include "plait/core/capacity.hpp"

namespace plait {

template <class T, class Policy = RealAtomics>
class SharedQueue {
 public:
  SharedQueue(std::size_t partitions, std::size_t capacity_per_partition)
      : partitions_(checked_count("partitions", partitions)),
        entries_(partitions * checked_capacity(capacity_per_partition)),
        busy_(std::make_unique<Padded<Atomic<bool>>[]>(partitions)) {}

  SharedQueue(const SharedQueue&) = delete;
  SharedQueue& operator=(const SharedQueue&) = delete;

  [[nodiscard]] bool try_add(std::size_t partition, T* item) {
    const std::lock_guard<Mutex> lock(mutex_);
    if (tail_ - head_ == entries_.size()) return false;
    entries_[tail_++ % entries_.size()] = {partition, item};
    return true;
  }

  // Calls `operate(partition, item)` for at most `max_items` items, and returns for how many.
  // `operate` must not throw: the partition would stay busy.
  template <class Operate>
  std::size_t consume([[maybe_unused]] std::size_t worker, Operate&& operate,
                      std::size_t max_items) {
    std::size_t processed = 0;
    QueuedItem entry{};
    while (processed < max_items && try_take(entry)) {
      operate(entry.partition, entry.item);
      // Release pairs with the acquire of busy_ in try_take: the next worker sees our work.
      (*busy_[entry.partition]).store(false, std::memory_order_release);
      ++processed;
    }
    return processed;
  }

  [[nodiscard]] std::size_t size_approx() const {
    const std::lock_guard<Mutex> lock(mutex_);
    return static_cast<std::size_t>(tail_ - head_);
  }

  [[nodiscard]] std::size_t partitions() const noexcept { return partitions_; }

 private:
  template <class U>
  using Atomic = typename Policy::template Atomic<U>;
  using Mutex = typename Policy::Mutex;

  struct QueuedItem {
    std::size_t partition;
    T* item;
  };

  // Takes the head and marks its partition busy, or does neither.
  bool try_take(QueuedItem& entry) {
    const std::lock_guard<Mutex> lock(mutex_);
    if (head_ == tail_) return false;
    const QueuedItem& first = entries_[head_ % entries_.size()];
    Atomic<bool>& busy = *busy_[first.partition];
    // Acquire pairs with the release of busy_ in consume.
    if (busy.load(std::memory_order_acquire)) return false;
    // Relaxed: only holders of the lock set it, and the lock orders them.
    busy.store(true, std::memory_order_relaxed);
    entry = first;
    ++head_;
    return true;
  }

  const std::size_t partitions_;
  mutable Mutex mutex_;
  std::vector<QueuedItem> entries_;  // Under mutex_, as are head_ and tail_.
  std::uint64_t head_ = 0;
  std::uint64_t tail_ = 0;
  const std::unique_ptr<Padded<Atomic<bool>>[]> busy_;
};

}  // namespace plait
