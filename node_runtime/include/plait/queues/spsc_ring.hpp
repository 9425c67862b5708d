// SpscRing: a bounded first-in first-out queue from one producer to one consumer.
//
// The producer owns `tail_`, the consumer owns `head_`, and each is published by a release store
// after the slot was written or emptied. Each side keeps a private copy of the other's position and
// refreshes it only when the ring looks full or empty, so that in the steady state no line moves
// between cores but the data itself. Positions are 64-bit, only grow, and become slots by a mask.
//
// Threads: one producer calls `try_push`, one consumer calls `try_pop`; either role may pass to
// another thread if the hand-over itself synchronises (release by the old, acquire by the new).
// `size_approx` may be called by anyone.
// Progress: wait-free. Full: `capacity` items are in the ring, `try_push` returns false and takes
// nothing. Empty: `try_pop` returns false and leaves its argument alone.
// Paper: the worklist of a stateful operator (section 5) and a partition queue of Fig. 7.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "plait/core/atomics.hpp"
#include "plait/core/cache_line.hpp"
#include "plait/core/capacity.hpp"

namespace plait {

template <class T, class Policy = RealAtomics>
class SpscRing {
 public:
  explicit SpscRing(std::size_t capacity)
      : mask_(checked_capacity(capacity) - 1), slots_(std::make_unique<T[]>(capacity)) {}

  SpscRing(const SpscRing&) = delete;
  SpscRing& operator=(const SpscRing&) = delete;

  // Producer only.
  [[nodiscard]] bool try_push(T item) {
    const std::uint64_t tail = tail_.load(std::memory_order_relaxed);
    if (tail - head_seen_ > mask_) {
      // Acquire pairs with the release of head_ in try_pop: the slot has been emptied.
      head_seen_ = head_.load(std::memory_order_acquire);
      if (tail - head_seen_ > mask_) return false;
    }
    slots_[tail & mask_] = std::move(item);
    // Release pairs with the acquire of tail_ in try_pop: the slot has been filled.
    tail_.store(tail + 1, Policy::kPublish);
    return true;
  }

  // Consumer only.
  [[nodiscard]] bool try_pop(T& item) {
    const std::uint64_t head = head_.load(std::memory_order_relaxed);
    if (head == tail_seen_) {
      // Acquire pairs with the release of tail_ in try_push: the slot has been filled.
      tail_seen_ = tail_.load(std::memory_order_acquire);
      if (head == tail_seen_) return false;
    }
    item = std::move(slots_[head & mask_]);
    // Release pairs with the acquire of head_ in try_push: the slot has been emptied.
    head_.store(head + 1, std::memory_order_release);
    return true;
  }

  // Exact when nobody pushes or pops meanwhile; never above the capacity.
  [[nodiscard]] std::size_t size_approx() const {
    const std::uint64_t head = head_.load(std::memory_order_relaxed);
    const std::uint64_t tail = tail_.load(std::memory_order_relaxed);
    if (tail <= head) return 0;
    return tail - head > capacity() ? capacity() : static_cast<std::size_t>(tail - head);
  }

  [[nodiscard]] std::size_t capacity() const noexcept { return mask_ + 1; }

 private:
  template <class U>
  using Atomic = typename Policy::template Atomic<U>;

  const std::size_t mask_;
  const std::unique_ptr<T[]> slots_;
  alignas(kCacheLine) Atomic<std::uint64_t> tail_{0};
  std::uint64_t head_seen_ = 0;  // The producer's, on the producer's line.
  alignas(kCacheLine) Atomic<std::uint64_t> head_{0};
  std::uint64_t tail_seen_ = 0;  // The consumer's, on the consumer's line.
};

static_assert(alignof(SpscRing<int>) == kCacheLine);
static_assert(sizeof(SpscRing<int>) == 3 * kCacheLine);

}  // namespace plait
