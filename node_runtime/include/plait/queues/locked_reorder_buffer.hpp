// LockedReorderBuffer: the reorder buffer with one lock around everything, for comparison.
//
// A worker takes the lock, puts its item in slot `serial mod capacity`, and while it holds the lock
// hands items downstream from slot `next` on until a slot is empty or downstream is full. Adding an
// item therefore waits for the worker that is sending, which is the cost that ReorderBuffer avoids.
// The interface and the meaning of each result are those of ReorderBuffer, so that either can be
// used.
//
// Threads: any worker may call anything; `send` runs under the lock and must not call back.
// Progress: blocking. Full: the serial is `capacity` or more ahead of `next`. Empty: a null slot.
// Paper: Fig. 2, with a bounded waiting buffer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "plait/core/atomics.hpp"
#include "plait/core/capacity.hpp"

namespace plait {

template <class T, class Policy = RealAtomics>
class LockedReorderBuffer {
 public:
  explicit LockedReorderBuffer(std::size_t capacity, std::uint64_t first = 0)
      : mask_(checked_capacity(capacity) - 1),
        slots_(std::make_unique<T*[]>(capacity)),
        next_(first) {}

  LockedReorderBuffer(const LockedReorderBuffer&) = delete;
  LockedReorderBuffer& operator=(const LockedReorderBuffer&) = delete;

  // False if the serial does not fit yet; `item` must not be null.
  [[nodiscard]] bool try_add(std::uint64_t serial, T* item) {
    const std::lock_guard<Mutex> lock(mutex_);
    return add(serial, item);
  }

  // Hands ready items to `bool send(T*)` in serial order; false from it means downstream is full.
  template <class Send>
  void send_pending(Send&& send) {
    const std::lock_guard<Mutex> lock(mutex_);
    drain(send);
  }

  // Add, then send what is ready, under one lock. False: call again with the same item.
  template <class Send>
  [[nodiscard]] bool send(std::uint64_t serial, T* item, Send&& send) {
    const std::lock_guard<Mutex> lock(mutex_);
    const bool added = add(serial, item);
    drain(send);
    return added;
  }

  [[nodiscard]] std::uint64_t next() const {
    const std::lock_guard<Mutex> lock(mutex_);
    return next_;
  }

  [[nodiscard]] bool ready() const {
    const std::lock_guard<Mutex> lock(mutex_);
    return slots_[next_ & mask_] != nullptr;
  }

  [[nodiscard]] std::size_t capacity() const noexcept { return mask_ + 1; }

 private:
  using Mutex = typename Policy::Mutex;

  bool add(std::uint64_t serial, T* item) {
    if (serial < next_ || serial - next_ > mask_) return false;
    slots_[serial & mask_] = item;
    return true;
  }

  template <class Send>
  void drain(Send& send) {
    for (T** slot = &slots_[next_ & mask_]; *slot != nullptr; slot = &slots_[next_ & mask_]) {
      if (!send(*slot)) return;
      *slot = nullptr;
      ++next_;
    }
  }

  const std::size_t mask_;
  mutable Mutex mutex_;
  const std::unique_ptr<T*[]> slots_;  // Under mutex_, as is next_.
  std::uint64_t next_;
};

}  // namespace plait
