// AsyncTray: an Outside that an event loop empties: the loop waits for a descriptor.
//
// Workers leave batches and ring; the loop is woken by the descriptor, hushes it, and then takes
// batches as it has room for them, so what comes after the hush rings again. Outcomes go straight
// to `returns`. Never full: the stage's bound on batches in flight is the tray's too.
//
// Threads: workers call what Outside has; everything else is for the loop, from one thread.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <utility>

#include "plait/stages/deferred_stage.hpp"

namespace plait {

class AsyncTray final : public Outside {
 public:
  AsyncTray() : bell_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    if (bell_ < 0) throw std::system_error(errno, std::generic_category(), "no event descriptor");
  }
  ~AsyncTray() override { ::close(bell_); }
  AsyncTray(const AsyncTray&) = delete;

  void attach(std::shared_ptr<Returns> returns) override { returns_ = std::move(returns); }
  bool try_submit(uint64_t serial, Batch& batch) override {
    {
      std::lock_guard<std::mutex> hold(lock_);
      waiting_.emplace_back(serial, std::move(batch));
    }
    ring();
    return true;
  }
  void forget_after(uint64_t serial) override {
    {
      std::lock_guard<std::mutex> hold(lock_);
      last_needed_ = std::min(last_needed_, serial);
    }
    ring();
  }
  void gone() override {
    over_.store(true, std::memory_order_release);  // pairs with over
    ring();
  }

  int bell() const { return bell_; }
  void hush() {
    uint64_t count = 0;
    const ssize_t n = ::read(bell_, &count, sizeof count);
    (void)n;  // nothing to read: it was hushed already
    rung_.store(false, std::memory_order_seq_cst);
  }
  bool take(uint64_t& serial, Batch& batch) {
    std::lock_guard<std::mutex> hold(lock_);
    if (waiting_.empty()) return false;
    serial = waiting_.front().first;
    batch = std::move(waiting_.front().second);
    waiting_.pop_front();
    return true;
  }
  uint64_t last_needed() const {
    std::lock_guard<std::mutex> hold(lock_);
    return last_needed_;
  }
  bool over() const { return over_.load(std::memory_order_acquire); }
  // Null before a stage has it.
  Returns* returns() const { return returns_.get(); }

 private:
  void ring() {
    // seq_cst pairs with hush: either it comes later and sees what we left, or we ring again.
    if (rung_.exchange(true, std::memory_order_seq_cst)) return;
    const uint64_t one = 1;
    const ssize_t n = ::write(bell_, &one, sizeof one);
    (void)n;  // it fails only when a signal is there already
  }

  const int bell_;
  std::shared_ptr<Returns> returns_;
  mutable std::mutex lock_;
  std::deque<std::pair<uint64_t, Batch>> waiting_;
  uint64_t last_needed_ = ~uint64_t(0);
  std::atomic<bool> rung_{false}, over_{false};
};

}  // namespace plait
