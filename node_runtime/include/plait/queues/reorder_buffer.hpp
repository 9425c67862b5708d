// ReorderBuffer: puts the outputs of concurrent workers back into serial order, without blocking.
//
// A worker stores its item in slot `serial mod capacity` if the serial lies in [next, next +
// capacity). It then tries to set the flag; the worker that sets it hands items downstream from
// slot `next` on until a slot is empty, clears the flag and looks once more, so that no item that
// could go is left behind. A worker that finds the flag set leaves: the holder will see its item.
//
// Threads: any worker may call anything; a serial is added at most once (a failed try_add may be
// repeated). `send` runs on one thread at a time, and each run happens after the one before.
// Progress: try_add is wait-free; send_pending never waits, but a preempted holder of the flag
// delays the release until it runs again (non-waiting, not lock-free). Full: the serial is
// `capacity` or more ahead of `next`; try again after send_pending. Empty: a null slot. Each serial
// must be added on every path (an item without rows if there is nothing to send): a serial left out
// stops the buffer for ever. The buffer does not own the items. Downstream full: `send` returns
// false; the item stays at the head and no signal says when there is room again. A single call of
// send_pending at that moment is not enough, since it may meet the flag of the very worker that is
// being refused: poll, and call it as long as `ready` holds. Paper: Fig. 4 and theorem 3.1, with a
// loop in place of the recursion.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "plait/core/atomics.hpp"
#include "plait/core/cache_line.hpp"
#include "plait/core/capacity.hpp"

namespace plait {

template <class T, class Policy = RealAtomics>
class ReorderBuffer {
 public:
  explicit ReorderBuffer(std::size_t capacity, std::uint64_t first = 0)
      : mask_(checked_capacity(capacity) - 1),
        slots_(std::make_unique<Atomic<T*>[]>(capacity)),
        next_(first) {
    for (std::size_t i = 0; i < capacity; ++i) slots_[i].store(nullptr, std::memory_order_relaxed);
  }

  ReorderBuffer(const ReorderBuffer&) = delete;
  ReorderBuffer& operator=(const ReorderBuffer&) = delete;

  // False if the serial does not fit yet (or was sent long ago); `item` must not be null.
  [[nodiscard]] bool try_add(std::uint64_t serial, T* item) {
    // Acquire pairs with the release of next_ in drain: our store to the slot comes after its
    // emptying for the serial one round earlier.
    const std::uint64_t next = next_.load(std::memory_order_acquire);
    if (serial < next || serial - next > mask_) return false;
    // Release pairs with the acquire of the slot in drain: the item's content is visible.
    slots_[serial & mask_].store(item, Policy::kPublish);
    return true;
  }

  // Hands ready items to `bool send(T*)` in serial order; false from it means downstream is full.
  template <class Send>
  void send_pending(Send&& send) {
    for (;;) {
      // Both exchanges of flag_ are read-modify-writes, so they form one chain in which each
      // synchronises with the next. If this one finds the flag set, the holder's clearing exchange
      // comes later in the chain and acquires what we released here: our item in its slot.
      if (flag_.exchange(true, Policy::kRaiseFlag)) return;
      const Drained end = drain(send);
      // Release pairs with the acquire of the next holder's exchange (next_ and all that `send`
      // wrote); the acquire pairs with the release of those who found the flag set meanwhile.
      flag_.exchange(false, std::memory_order_acq_rel);
      if (end.refused || !Policy::kRecheck) return;
      // Relaxed: the exchange above has acquired the item if its worker met our flag; drain
      // acquires its content.
      if (slots_[end.next & mask_].load(std::memory_order_relaxed) == nullptr) return;
    }
  }

  // try_add, then send_pending whether it fitted or not. False: call again with the same item.
  template <class Send>
  [[nodiscard]] bool send(std::uint64_t serial, T* item, Send&& send) {
    const bool added = try_add(serial, item);
    send_pending(send);
    return added;
  }

  // The first serial not sent yet.
  [[nodiscard]] std::uint64_t next() const { return next_.load(std::memory_order_acquire); }

  // Whether the item with serial `next` is here: someone is sending it, or downstream was full.
  [[nodiscard]] bool ready() const {
    return slots_[next() & mask_].load(std::memory_order_acquire) != nullptr;
  }

  [[nodiscard]] std::size_t capacity() const noexcept { return mask_ + 1; }

 private:
  template <class U>
  using Atomic = typename Policy::template Atomic<U>;

  struct Drained {
    std::uint64_t next;
    bool refused;
  };

  // The exit section of Fig. 4; the caller holds the flag. `send` must not throw: the flag would
  // stay set.
  template <class Send>
  Drained drain(Send& send) {
    // Relaxed: the flag's exchange has acquired the former holder's writes.
    std::uint64_t next = next_.load(std::memory_order_relaxed);
    for (;;) {
      Atomic<T*>& slot = slots_[next & mask_];
      // Acquire pairs with the release in try_add.
      T* const item = slot.load(std::memory_order_acquire);
      if (item == nullptr) return {next, false};
      if (!send(item)) return {next, true};
      // Relaxed: published by the release of next_ just below.
      slot.store(nullptr, std::memory_order_relaxed);
      // Release pairs with the acquire of next_ in try_add.
      next_.store(++next, std::memory_order_release);
    }
  }

  const std::size_t mask_;
  const std::unique_ptr<Atomic<T*>[]> slots_;
  alignas(kCacheLine) Atomic<std::uint64_t> next_;
  alignas(kCacheLine) Atomic<bool> flag_{false};
};

static_assert(alignof(ReorderBuffer<int>) == kCacheLine);
static_assert(sizeof(ReorderBuffer<int>) == 3 * kCacheLine);

}  // namespace plait
