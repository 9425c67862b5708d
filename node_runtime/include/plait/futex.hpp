// Futex: sleeping on a 32-bit word in memory that several processes share.
//
// `futex_wait` returns when the word is not `seen` any more, when it was woken, when the time is
// over or a signal came: the caller looks again. Waking is the last thing the waker does; whether
// anybody sleeps is said by a count beside the word, so that most wakes cost no system call.
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

inline void futex_wait(std::atomic<uint32_t>& word, uint32_t seen, int64_t timeout_ns) {
  timespec limit{time_t(timeout_ns / 1'000'000'000), long(timeout_ns % 1'000'000'000)};
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, seen,
          timeout_ns < 0 ? nullptr : &limit, nullptr, 0);
}
inline void futex_wake(std::atomic<uint32_t>& word, int waiters) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, waiters, nullptr, nullptr, 0);
}

}  // namespace plait
