// Futex: sleeping on a 32-bit word in memory that several processes share.
//
// `futex_wait` returns when the word is not `seen` any more, when it was woken, when the time is
// over or a signal came: the caller looks again. Waking is the last thing the waker does; a count
// beside the word says whether a thread sleeps, so that most wakes cost no system call. Who sleeps
// may give bits, and is woken only by a wake with one of them.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>
#include <ctime>

namespace plait {

static_assert(sizeof(std::atomic<uint32_t>) == 4 && std::atomic<uint32_t>::is_always_lock_free);

inline constexpr uint32_t kAnyBit = FUTEX_BITSET_MATCH_ANY;

inline void futex_wait(std::atomic<uint32_t>& word, uint32_t seen, int64_t timeout_ns) {
  timespec limit{time_t(timeout_ns / 1'000'000'000), long(timeout_ns % 1'000'000'000)};
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, seen,
          timeout_ns < 0 ? nullptr : &limit, nullptr, 0);
}
// The time of this form is a point in time, of the monotonic clock.
inline void futex_wait(std::atomic<uint32_t>& word, uint32_t seen, int64_t timeout_ns,
                       uint32_t bits) {
  timespec limit{};
  clock_gettime(CLOCK_MONOTONIC, &limit);
  const int64_t ns = limit.tv_nsec + timeout_ns;
  limit.tv_sec += time_t(ns / 1'000'000'000);
  limit.tv_nsec = long(ns % 1'000'000'000);
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_BITSET, seen, &limit, nullptr,
          bits);
}
inline void futex_wake(std::atomic<uint32_t>& word, int waiters, uint32_t bits = kAnyBit) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_BITSET, waiters, nullptr,
          nullptr, bits);
}

}  // namespace plait
