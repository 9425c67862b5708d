// ExploredAtomics: the policy that asks the explorer before each atomic operation.
//
// Under ThreadSanitizer the operation itself is std::atomic's, so that the sanitizer sees its
// order; otherwise it is the weak-memory model's, so that a load may return an old value. The mutex
// is built from the same atomics and steps back when it is taken.
#pragma once

#include <atomic>

#include "explorer.hpp"
#include "plait/core/atomics.hpp"
#include "weak_memory.hpp"

namespace plait::testing {

// std::atomic with a point before each operation.
template <class T>
class PlainAtomic {
 public:
  PlainAtomic() = default;
  explicit PlainAtomic(T value) : value_(value) {}

  T load(std::memory_order order) const {
    Explorer::point();
    return value_.load(order);
  }

  void store(T value, std::memory_order order) {
    Explorer::point();
    value_.store(value, order);
  }

  T exchange(T value, std::memory_order order) {
    Explorer::point();
    return value_.exchange(value, order);
  }

  T fetch_add(T value, std::memory_order order) {
    Explorer::point();
    return value_.fetch_add(value, order);
  }

  T fetch_sub(T value, std::memory_order order) {
    Explorer::point();
    return value_.fetch_sub(value, order);
  }

  bool compare_exchange_weak(T& expected, T desired, std::memory_order success,
                             std::memory_order failure) {
    Explorer::point();
    return value_.compare_exchange_strong(expected, desired, success, failure);
  }

 private:
  std::atomic<T> value_{};
};

struct ExploredAtomics : RealAtomics {
#if defined(__SANITIZE_THREAD__)
  template <class T>
  using Atomic = PlainAtomic<T>;
#else
  template <class T>
  using Atomic = WeakAtomic<T>;
#endif

  class Mutex {
   public:
    void lock() {
      while (locked_.exchange(true, std::memory_order_acquire)) Explorer::yield();
    }

    void unlock() { locked_.store(false, std::memory_order_release); }

   private:
    Atomic<bool> locked_;
  };
};

}  // namespace plait::testing
