// Returns: where batches that are worked on outside the engine come back to their stage.
//
// The stage says of each serial that it goes outside; whoever works on it brings the outcome, from
// any thread, in any order; a worker of the engine takes it from here. Every serial that went out
// comes back exactly once, whatever happens outside: an outcome that nobody waits for (a second
// one, one after `broke` or after the stage is gone) is let go.
//
// Threads: any, for all calls. Nobody waits for more than a few instructions under the lock. Full:
// never, since the stage's ring bounds what is outside. It outlives its stage if those outside
// still hold it; `close` says that the stage is gone.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "plait/call_operator.hpp"
#include "plait/stage_impl.hpp"

namespace plait {

// Ends the run; no record is to blame.
inline CallOutcome fatal_outcome(std::string message) {
  CallOutcome outcome;
  outcome.fatal = true;
  outcome.failures.push_back({0, std::move(message), -1, 0});
  return outcome;
}

class Returns {
 public:
  struct Item {
    uint64_t serial = 0;
    CallOutcome outcome;
    bool dropped = false;  // nobody needs it any more, and it has no outcome
  };

  // `batches`: at most so many serials in a row are outside; a power of two.
  Returns(Stage& stage, uint32_t batches) : stage_(&stage), outside_(batches, 0) {}

  // The outcome of a serial. False: nobody waits for it.
  bool complete(uint64_t serial, CallOutcome&& outcome) {
    std::lock_guard<std::mutex> hold(lock_);
    if (!stage_ || !gone(serial)) return false;
    add({serial, std::move(outcome), false});
    stage_->came();  // under the lock: after close the engine may be gone
    return true;
  }
  // Nothing will come back any more: all that is outside, and all that would go, fails.
  void broke(const std::string& why) {
    std::lock_guard<std::mutex> hold(lock_);
    if (!stage_ || !why_.empty()) return;
    why_ = why.empty() ? "it ended" : why;
    for (uint64_t& one : outside_) {
      if (one) add({std::exchange(one, 0) - 1, fatal_outcome(why_), false});
    }
    out_.store(0, std::memory_order_relaxed);
    stage_->came();
  }
  // Those outside who refused a batch have room again. `complete` says so too.
  void retry() {
    std::lock_guard<std::mutex> hold(lock_);
    if (!stage_) return;
    chances_.fetch_add(1, std::memory_order_seq_cst);  // pairs with chances
    stage_->came();
  }

  // The stage's side. A serial goes outside; false: nothing goes there any more, see `why`.
  bool send(uint64_t serial) {
    std::lock_guard<std::mutex> hold(lock_);
    if (!why_.empty()) return false;
    at(serial) = serial + 1;
    out_.fetch_add(1, std::memory_order_relaxed);
    return true;
  }
  // It was refused. False: it has come back by itself meanwhile.
  bool take_back(uint64_t serial) {
    std::lock_guard<std::mutex> hold(lock_);
    return gone(serial);
  }
  // What is behind this serial comes back at once, without an outcome.
  void drop_after(uint64_t serial) {
    std::lock_guard<std::mutex> hold(lock_);
    for (uint64_t& one : outside_) {
      if (one <= serial + 1) continue;
      add({std::exchange(one, 0) - 1, CallOutcome(), true});
      out_.fetch_sub(1, std::memory_order_relaxed);
    }
  }
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

 private:
  uint64_t& at(uint64_t serial) { return outside_[serial & (outside_.size() - 1)]; }
  // Under the lock: the serial is outside no more. False: it was not there.
  bool gone(uint64_t serial) {
    if (at(serial) != serial + 1) return false;
    at(serial) = 0;
    out_.fetch_sub(1, std::memory_order_relaxed);
    return true;
  }
  void add(Item&& item) {
    items_.push_back(std::move(item));
    chances_.fetch_add(1, std::memory_order_seq_cst);  // pairs with chances
    here_.fetch_add(1, std::memory_order_seq_cst);     // pairs with any
  }

  mutable std::mutex lock_;
  Stage* stage_;                   // null: closed
  std::vector<uint64_t> outside_;  // by slot: serial + 1 of what is outside, or 0
  std::deque<Item> items_;
  std::string why_;  // not empty: broke
  std::atomic<uint32_t> here_{0}, out_{0};
  std::atomic<uint64_t> chances_{0};
};

}  // namespace plait
