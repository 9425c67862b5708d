// LinkBell: one thread waits for its connections, and others can end that wait.
//
// `ring` leaves a signal, and writes to the descriptor only if a thread waits; `wait` says that it
// waits, then looks for a signal. Both in seq_cst, so one of them sees the other: a ring before the
// wait keeps it from waiting, a ring during it ends it, and what was done before the ring is seen
// after the wait. Threads: ring, waiting: any; wait, ready: the thread that polls.
#pragma once

#include <poll.h>
#include <sys/eventfd.h>

#include <atomic>
#include <cstdint>
#include <ctime>
#include <stdexcept>

#include "plait/links/link_context.hpp"

namespace plait {

class LinkBell final : public Watched {
 public:
  explicit LinkBell(LinkContext& context) : signal_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    if (!signal_ || !context.watch(signal_.fd(), EPOLLIN, *this, id_)) {
      throw std::runtime_error("no event descriptor: " + errno_text(errno));
    }
  }

  void ring() {
    rung_.store(true, std::memory_order_seq_cst);
    if (!waiting_.load(std::memory_order_seq_cst)) return;
    const uint64_t one = 1;
    const ssize_t n = ::write(signal_.fd(), &one, sizeof one);
    (void)n;  // it fails only when a signal is there already
  }
  bool waiting() const { return waiting_.load(std::memory_order_acquire); }

  // Until something is ready in the epoll set, or so long.
  void wait(int epoll, int64_t ns) {
    if (ns <= 0) return;
    waiting_.store(true, std::memory_order_seq_cst);
    if (!rung_.exchange(false, std::memory_order_seq_cst)) {
      pollfd set{epoll, POLLIN, 0};
      const timespec time{time_t(ns / 1'000'000'000), long(ns % 1'000'000'000)};
      ::ppoll(&set, 1, &time, nullptr);  // epoll_wait alone would count in whole milliseconds
      rung_.exchange(false, std::memory_order_seq_cst);
    }
    waiting_.store(false, std::memory_order_release);
  }

  void ready(uint32_t) override {
    uint64_t count = 0;
    const ssize_t n = ::read(signal_.fd(), &count, sizeof count);
    (void)n;  // nothing to read: the signal was taken already
  }

 private:
  const Socket signal_;
  uint64_t id_ = 0;
  std::atomic<bool> waiting_{false}, rung_{false};
};

}  // namespace plait
