// MpmcRing: a bounded first-in first-out queue between any number of producers and consumers.
//
// Each cell has a sequence number that says whose turn it is: `position` for the producer of that
// round, `position + 1` for its consumer, `position + capacity` for the producer of the next round.
// A thread claims a position by a compare-and-swap of `tail_` or `head_`, works on the cell alone,
// and passes the turn on by a release store of the sequence. This is the well-known bounded queue
// of Dmitry Vyukov, after which the code is written.
//
// Threads: anyone may call anything, except `can_push` (see there). Progress: a thread preempted
// between its claim and its turn holds up that one cell only: others then see "full" or "empty" and
// leave; no thread waits. Order is that of the claims. Full: the next cell still holds (or is being
// relieved of) an old item. Empty: the next cell holds no item yet, even if a later one does.
// Paper: the shared worklist of a stateless operator (section 5) and the master queue of Fig. 7.
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
class MpmcRing {
 public:
  // With a single cell "filled" and "free again" would be the same number: at least two.
  explicit MpmcRing(std::size_t capacity)
      : mask_(checked_capacity(capacity, 2) - 1), cells_(std::make_unique<Cell[]>(capacity)) {
    for (std::size_t i = 0; i < capacity; ++i) {
      cells_[i].sequence.store(i, std::memory_order_relaxed);
    }
  }

  MpmcRing(const MpmcRing&) = delete;
  MpmcRing& operator=(const MpmcRing&) = delete;

  [[nodiscard]] bool try_push(T item) {
    std::uint64_t position = tail_.load(std::memory_order_relaxed);
    for (;;) {
      Cell& cell = cells_[position & mask_];
      // Acquire pairs with the release in try_pop: the cell has been emptied.
      const std::uint64_t sequence = cell.sequence.load(std::memory_order_acquire);
      const auto lead = static_cast<std::int64_t>(sequence - position);
      if (lead < 0) return false;
      if (lead > 0) {
        position = tail_.load(std::memory_order_relaxed);
      } else if (tail_.compare_exchange_weak(position, position + 1, std::memory_order_relaxed,
                                             std::memory_order_relaxed)) {
        cell.item = std::move(item);
        // Release pairs with the acquire of the sequence in try_pop: the cell has been filled.
        cell.sequence.store(position + 1, Policy::kPublish);
        return true;
      }
    }
  }

  [[nodiscard]] bool try_pop(T& item) {
    std::uint64_t position = head_.load(std::memory_order_relaxed);
    for (;;) {
      Cell& cell = cells_[position & mask_];
      // Acquire pairs with the release in try_push: the cell has been filled.
      const std::uint64_t sequence = cell.sequence.load(std::memory_order_acquire);
      const auto lead = static_cast<std::int64_t>(sequence - (position + 1));
      if (lead < 0) return false;
      if (lead > 0) {
        position = head_.load(std::memory_order_relaxed);
      } else if (head_.compare_exchange_weak(position, position + 1, std::memory_order_relaxed,
                                             std::memory_order_relaxed)) {
        item = std::move(cell.item);
        // Release pairs with the acquire in try_push: the cell has been emptied.
        cell.sequence.store(position + mask_ + 1, std::memory_order_release);
        return true;
      }
    }
  }

  // Whether the next try_push will succeed. Holds only while the caller is the sole producer.
  [[nodiscard]] bool can_push() const {
    const std::uint64_t position = tail_.load(std::memory_order_relaxed);
    // Relaxed: the try_push that follows acquires the emptied cell itself.
    return cells_[position & mask_].sequence.load(std::memory_order_relaxed) == position;
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

  struct Cell {
    Atomic<std::uint64_t> sequence{0};
    T item{};
  };

  const std::size_t mask_;
  const std::unique_ptr<Cell[]> cells_;
  alignas(kCacheLine) Atomic<std::uint64_t> tail_{0};
  alignas(kCacheLine) Atomic<std::uint64_t> head_{0};
};

static_assert(alignof(MpmcRing<int>) == kCacheLine);
static_assert(sizeof(MpmcRing<int>) == 3 * kCacheLine);

}  // namespace plait
