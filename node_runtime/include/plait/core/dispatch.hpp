// Run-time choice between the baseline build of a loop and one for wider vector units.
//
// A loop is a struct with an always-inlined static `run`; `dispatch<Loop>(args...)` compiles it
// twice and takes the AVX2 copy when the CPU has it. The choice is an ordinary branch on a value
// read once, so it needs no linker support (ifunc) and works with GCC, Clang, glibc and musl alike;
// on other machines there is just the plain copy. Any thread may call anything here; nothing
// blocks.
#pragma once

#define PLAIT_INLINE [[gnu::always_inline]] inline
#define PLAIT_INLINE_LAMBDA __attribute__((always_inline))

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define PLAIT_HAS_WIDE 1
#define PLAIT_WIDE [[gnu::target("avx2,bmi,bmi2,popcnt"), gnu::noinline]]
#else
#define PLAIT_HAS_WIDE 0
#define PLAIT_WIDE [[gnu::noinline]]
#endif

namespace plait {

inline bool cpu_is_wide() {
#if PLAIT_HAS_WIDE
  static const bool yes = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2");
  return yes;
#else
  return false;
#endif
}

template <class Loop, class... Args>
PLAIT_WIDE auto run_wide(Args... args) {
  return Loop::run(args...);
}

template <class Loop, class... Args>
[[gnu::noinline]] auto run_plain(Args... args) {
  return Loop::run(args...);
}

template <class Loop, class... Args>
inline auto dispatch(Args... args) {
#if PLAIT_HAS_WIDE
  if (cpu_is_wide()) return run_wide<Loop>(args...);
#endif
  return run_plain<Loop>(args...);
}

}  // namespace plait
