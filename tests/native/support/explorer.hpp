// Explorer: runs a few threads of a test as fibers, and decides at each atomic operation who is
// next.
//
// A run is a pure function of its seed. Half of the seeds use random priorities with a few points
// at which the running fiber drops to the lowest priority (finds bugs of small preemption depth),
// the other half switch at random. Interleavings are sequentially consistent; under ThreadSanitizer
// the fibers are threads to it and a switch synchronises nothing, so the memory orders are checked
// too, along each interleaving. A run that takes too many operations is a livelock and fails.
#pragma once

#include <sys/mman.h>
#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "check.hpp"

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#define PLAIT_UNSEEN __attribute__((no_sanitize_thread, noinline))
#else
#define PLAIT_UNSEEN __attribute__((noinline))
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace plait::testing {

// A small generator with its whole state in one word (splitmix64).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  PLAIT_UNSEEN std::uint64_t next() {
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }

  PLAIT_UNSEEN std::uint64_t below(std::uint64_t bound) { return next() % bound; }

 private:
  std::uint64_t state_;
};

class Explorer {
 public:
  static constexpr std::size_t kMaxFibers = 6;
  static constexpr std::size_t kStackBytes = 256 * 1024;
  static constexpr std::uint64_t kMaxSteps = 200'000;
  static constexpr std::uint64_t kExpectedSteps = 120;
  static constexpr std::uint64_t kDrops = 4;

  // Runs all bodies to their end under the schedule of `seed`.
  static void run(std::uint64_t seed, std::vector<std::function<void()>> bodies) {
    CHECK(bodies.size() <= kMaxFibers);
    Explorer& self = instance();
    self.prepare(seed, bodies);
    while (self.running_ > 0) self.enter(self.pick());
    self.dispose();
  }

  // Which fiber is running; kMaxFibers when none is.
  PLAIT_UNSEEN static std::size_t current() {
    Explorer& self = instance();
    return self.inside_ ? self.current_ : kMaxFibers;
  }

  // True in one of `bound` cases, by the seed.
  PLAIT_UNSEEN static bool one_in(std::uint64_t bound) {
    return instance().random_.below(bound) == 0;
  }

  PLAIT_UNSEEN static std::uint64_t below(std::uint64_t bound) {
    return instance().random_.below(bound);
  }

  // A place where another fiber may take over; before each atomic operation.
  PLAIT_UNSEEN static void point() {
    Explorer& self = instance();
    if (self.inside_) self.step(false);
  }

  // A fiber that cannot go on alone steps back behind all others.
  PLAIT_UNSEEN static void yield() {
    Explorer& self = instance();
    if (self.inside_) self.step(true);
  }

 private:
  struct Fiber {
    ucontext_t context;
    void* stack = nullptr;
    void* sanitizer = nullptr;
    std::function<void()>* body = nullptr;
    std::uint64_t priority = 0;
    bool done = false;
  };

  PLAIT_UNSEEN static Explorer& instance() {
    static Explorer* const explorer = new Explorer;
    return *explorer;
  }

  void prepare(std::uint64_t seed, std::vector<std::function<void()>>& bodies) {
    random_ = Random(seed);
    by_priority_ = random_.below(2) == 0;
    one_in_ = 1 + random_.below(6);
    steps_ = 0;
    lowest_ = 1000;
    for (auto& drop : drops_) drop = random_.below(kExpectedSteps);
    count_ = running_ = bodies.size();
    for (std::size_t i = 0; i < count_; ++i) {
      Fiber& fiber = fibers_[i];
      fiber.body = &bodies[i];
      fiber.priority = 1001 + random_.below(1'000'000);
      fiber.done = false;
      if (fiber.stack == nullptr) fiber.stack = map_stack();
      getcontext(&fiber.context);
      fiber.context.uc_stack.ss_sp = fiber.stack;
      fiber.context.uc_stack.ss_size = kStackBytes;
      fiber.context.uc_link = nullptr;
      makecontext(&fiber.context, &Explorer::trampoline, 0);
#if defined(__SANITIZE_THREAD__)
      fiber.sanitizer = __tsan_create_fiber(0);
#endif
    }
  }

  void dispose() {
#if defined(__SANITIZE_THREAD__)
    for (std::size_t i = 0; i < count_; ++i) __tsan_destroy_fiber(fibers_[i].sanitizer);
#endif
  }

  static void* map_stack() {
    void* const stack =
        mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(stack != MAP_FAILED);
    return stack;
  }

  PLAIT_UNSEEN static void trampoline() {
    Explorer& self = instance();
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(nullptr, &self.main_stack_, &self.main_stack_bytes_);
#endif
    (*self.fibers_[self.current_].body)();
    self.finish();
  }

  PLAIT_UNSEEN void finish() {
    fibers_[current_].done = true;
    --running_;
    leave(true);
  }

  PLAIT_UNSEEN void step(bool stand_back) {
    if (++steps_ > kMaxSteps) {
      inside_ = false;
      fail("the threads stopped making progress", __FILE__, __LINE__);
    }
    Fiber& fiber = fibers_[current_];
    bool drop = stand_back;
    if (by_priority_) {
      for (const std::uint64_t at : drops_) drop = drop || at == steps_;
    }
    if (drop) fiber.priority = --lowest_;
    if (lowest_ == 0) renumber();
    const bool may_switch = drop || (!by_priority_ && random_.below(one_in_) == 0);
    if (!may_switch) return;
    const std::size_t chosen = pick();
    if (chosen == current_) return;
    wanted_ = chosen;
    leave(false);
  }

  // Keeps priorities positive through long waits.
  PLAIT_UNSEEN void renumber() {
    for (std::size_t i = 0; i < count_; ++i) fibers_[i].priority += 1000;
    lowest_ = 1000;
  }

  PLAIT_UNSEEN std::size_t pick() {
    if (wanted_ != kMaxFibers) {
      const std::size_t chosen = wanted_;
      wanted_ = kMaxFibers;
      return chosen;
    }
    if (!by_priority_) {
      std::uint64_t nth = random_.below(running_);
      for (std::size_t i = 0; i < count_; ++i) {
        if (!fibers_[i].done && nth-- == 0) return i;
      }
    }
    std::size_t best = kMaxFibers;
    for (std::size_t i = 0; i < count_; ++i) {
      if (fibers_[i].done) continue;
      if (best == kMaxFibers || fibers_[i].priority > fibers_[best].priority) best = i;
    }
    return best;
  }

  PLAIT_UNSEEN void enter(std::size_t next) {
    current_ = next;
    inside_ = true;
#if defined(__SANITIZE_THREAD__)
    main_sanitizer_ = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(fibers_[next].sanitizer, __tsan_switch_to_fiber_no_sync);
#endif
#if defined(__SANITIZE_ADDRESS__)
    void* fake = nullptr;
    __sanitizer_start_switch_fiber(&fake, fibers_[next].stack, kStackBytes);
#endif
    swapcontext(&main_, &fibers_[next].context);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
    inside_ = false;
  }

  // Back to the loop in `run`. A fiber's end is the one switch that synchronises.
  PLAIT_UNSEEN void leave([[maybe_unused]] bool last) {
    inside_ = false;
#if defined(__SANITIZE_THREAD__)
    __tsan_switch_to_fiber(main_sanitizer_, last ? 0 : __tsan_switch_to_fiber_no_sync);
#endif
#if defined(__SANITIZE_ADDRESS__)
    void* fake = nullptr;
    __sanitizer_start_switch_fiber(last ? nullptr : &fake, main_stack_, main_stack_bytes_);
#endif
    swapcontext(&fibers_[current_].context, &main_);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fake, &main_stack_, &main_stack_bytes_);
#endif
    inside_ = true;
  }

  Random random_{0};
  Fiber fibers_[kMaxFibers];
  ucontext_t main_;
  void* main_sanitizer_ = nullptr;
  const void* main_stack_ = nullptr;
  std::size_t main_stack_bytes_ = 0;
  std::size_t count_ = 0;
  std::size_t running_ = 0;
  std::size_t current_ = 0;
  std::size_t wanted_ = kMaxFibers;
  std::uint64_t drops_[kDrops] = {};
  std::uint64_t steps_ = 0;
  std::uint64_t lowest_ = 0;
  std::uint64_t one_in_ = 1;
  bool by_priority_ = false;
  bool inside_ = false;
};

}  // namespace plait::testing
