// ReturnQueue: the queue of what has come back to a stage from outside, and whether more can come.
//
// Those who know what is outside (`Returns`, `LaneReturns`) build on it: under the lock they count
// what `went` and `ended`, `add` an item for each that is whole, and then say `came`; a worker of
// the engine takes the items in the order in which they were added. `break_off` says once why
// nothing comes any more.
//
// Threads: any, for all public calls; the protected ones want the caller to hold `lock_`. No caller
// waits for more than a few instructions under it. Empty: `take` is false. Full: never, since the
// stage's ring bounds what is outside. It outlives its stage if those outside still hold it;
// `close` says that the stage is gone.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <utility>

#include "plait/stages/stage_impl.hpp"

namespace plait {

template <class T>
class ReturnQueue {
 public:
  using Item = T;

  // Those outside who refused something have room again. An item says so too.
  void retry() {
    std::lock_guard<std::mutex> hold(lock_);
    if (closed()) return;
    chances_.fetch_add(1, std::memory_order_seq_cst);  // pairs with chances
    came();
  }

  // Those outside used so much processor time for the stage.
  void spent_cpu(int64_t ns) {
    std::lock_guard<std::mutex> hold(lock_);
    if (!closed()) stage_->stats.cpu.add(ns);
  }

  // The stage's side.
  bool take(Item& item) {
    if (!any()) return false;
    std::lock_guard<std::mutex> hold(lock_);
    if (items_.empty()) return false;
    item = std::move(items_.front());
    items_.pop_front();
    here_.fetch_sub(1, std::memory_order_relaxed);
    return true;
  }
  // The stage goes.
  void close() {
    std::lock_guard<std::mutex> hold(lock_);
    stage_ = nullptr;
  }

  // seq_cst pairs with add and retry: a worker that is about to sleep sees the item, or its waker
  // sees the sleeper (Bell).
  bool any() const { return here_.load(std::memory_order_seq_cst) != 0; }
  // How often those outside may have got room; it only rises.
  uint64_t chances() const { return chances_.load(std::memory_order_seq_cst); }
  // Serials outside; an estimate.
  uint32_t outside() const { return out_.load(std::memory_order_relaxed); }
  std::string why() const {
    std::lock_guard<std::mutex> hold(lock_);
    return why_;
  }
  FailureKind kind() const {
    std::lock_guard<std::mutex> hold(lock_);
    return kind_;
  }

 protected:
  explicit ReturnQueue(Stage& stage) : stage_(&stage) {}
  ~ReturnQueue() = default;

  bool closed() const { return !stage_; }
  bool broken() const { return !why_.empty(); }
  // Nothing comes from outside any more. False: that was known, or nobody is there to hear it.
  bool break_off(const std::string& why, FailureKind kind) {
    if (closed() || broken()) return false;
    why_ = why.empty() ? "it ended" : why;
    kind_ = kind;
    return true;
  }
  // A serial is outside; it is there no more.
  void went() { out_.fetch_add(1, std::memory_order_relaxed); }
  void ended() { out_.fetch_sub(1, std::memory_order_relaxed); }
  void add(Item&& item) {
    items_.push_back(std::move(item));
    chances_.fetch_add(1, std::memory_order_seq_cst);  // pairs with chances
    here_.fetch_add(1, std::memory_order_seq_cst);     // pairs with any
  }
  // Under the lock, too: after close the engine may be gone.
  void came() { stage_->came(); }

  mutable std::mutex lock_;
  std::string why_;                           // not empty: broken ...
  FailureKind kind_ = FailureKind::Internal;  // ... and what is to blame

 private:
  Stage* stage_;  // null: closed
  std::deque<Item> items_;
  std::atomic<uint32_t> here_{0}, out_{0};
  std::atomic<uint64_t> chances_{0};
};

}  // namespace plait
