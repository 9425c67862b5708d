// Cache-line layout and the waiting hint shared by the native structures.
//
// Values written by different threads live on separate lines (`Padded`), because one shared line
// costs a transfer between cores at each write. A thread that must wait spins for a few pauses and
// then gives its core away (`Backoff`); pure spinning loses when there are more workers than cores.
// Everything here is local to the calling thread.
#pragma once

#include <cstddef>
#include <thread>
#include <utility>

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

namespace plait {

inline constexpr std::size_t kCacheLine = 64;

// Tells the core that this is a spin loop; never a system call.
inline void cpu_relax() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  _mm_pause();
#elif defined(__aarch64__)
  // `yield` is a no-op on most cores; `isb` really waits for the pipeline to drain.
  asm volatile("isb" ::: "memory");
#endif
}

// A value that shares its cache line with no other value.
template <class T>
struct alignas(kCacheLine) Padded {
  T value;

  Padded() : value() {}

  template <class... Args>
  explicit Padded(std::in_place_t, Args&&... args) : value(std::forward<Args>(args)...) {}

  T& operator*() noexcept { return value; }
  const T& operator*() const noexcept { return value; }
  T* operator->() noexcept { return &value; }
  const T* operator->() const noexcept { return &value; }
};

static_assert(alignof(Padded<char>) == kCacheLine);
static_assert(sizeof(Padded<char>) == kCacheLine);

// Spins briefly, then yields the core. `reset` after each success.
class Backoff {
 public:
  static constexpr unsigned kSpins = 64;

  void wait() noexcept {
    if (spins_ < kSpins) {
      ++spins_;
      cpu_relax();
    } else {
      std::this_thread::yield();
    }
  }

  void reset() noexcept { spins_ = 0; }

  // True once the next `wait` gives the core away: the moment to consider parking.
  [[nodiscard]] bool yielding() const noexcept { return spins_ >= kSpins; }

 private:
  unsigned spins_ = 0;
};

}  // namespace plait
