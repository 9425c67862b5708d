// The atomics policy: where the native structures take their atomics and their mutex from.
//
// Every structure is a template over a policy, so that a test can put a scheduler behind each
// atomic operation and explore interleavings of the very code that production runs. A policy has
// `Atomic<T>` (the interface of std::atomic), `Mutex` (the interface of std::mutex) and the
// constants below. The constants exist for the tests of the tests: a policy that weakens one of
// them must be caught by the sanitizer or by the explorer. Production code uses `RealAtomics` and
// no other.
#pragma once

#include <atomic>
#include <mutex>

namespace plait {

struct RealAtomics {
  template <class T>
  using Atomic = std::atomic<T>;

  using Mutex = std::mutex;

  // Order of the store that makes an item visible to its consumer.
  static constexpr std::memory_order kPublish = std::memory_order_release;

  // Order of the exchange that raises the reorder buffer's flag: its release half tells the holder
  // of the flag what was added (acquire and release are both needed).
  static constexpr std::memory_order kRaiseFlag = std::memory_order_acq_rel;

  // Look again after the reorder buffer's flag is cleared (Fig. 4, lines 39-42).
  static constexpr bool kRecheck = true;

  // Order of the exchanges of a free list's mark, each of which must see what the one before did.
  static constexpr std::memory_order kMark = std::memory_order_acq_rel;

  // Clear the mark before looking at what there is to do.
  static constexpr bool kUnlistFirst = true;

  // Operate on an item before its count is given back (Fig. 7, lines 13-14).
  static constexpr bool kOperateThenRelease = true;
};

// A write before it and a read behind it, here and in another thread: one of the two reads sees the
// other's write. ThreadSanitizer does not know fences; there a read-modify-write that orders
// nothing else stands for it.
inline void full_fence() {
#if defined(__SANITIZE_THREAD__)
  static std::atomic<unsigned> fence{0};
  fence.fetch_add(1, std::memory_order_relaxed);
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

static_assert(std::atomic<void*>::is_always_lock_free);
static_assert(std::atomic<unsigned long long>::is_always_lock_free);

}  // namespace plait
