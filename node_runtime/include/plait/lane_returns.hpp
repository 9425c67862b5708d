// LaneReturns: where the lanes' answers to one item of a stage come together.
//
// The stage says of a serial how many lanes are asked; each answers once, from any thread, in any
// order; when the last one has, a worker of the engine takes all of them from here. Every serial
// that was sent comes back exactly once for each `send`, whatever happens outside: an answer that
// nobody waits for (behind a failure, after `broke` or after the stage is gone) is let go.
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

#include "plait/lane_message.hpp"
#include "plait/returns.hpp"

namespace plait {

class LaneReturns {
 public:
  struct Item {
    uint64_t serial = 0;
    std::vector<LaneAnswer> answers;  // by lane; of those that were not asked an empty one
    bool dropped = false;             // nobody needs it any more, and it has no answers
  };

  // `batches`: at most so many serials in a row are outside; a power of two.
  LaneReturns(Stage& stage, uint32_t batches, uint32_t lanes)
      : stage_(&stage), lanes_(lanes), outside_(batches) {}

  void complete(uint64_t serial, uint32_t lane, LaneAnswer&& answer) {
    std::lock_guard<std::mutex> hold(lock_);
    One& one = at(serial);
    if (!stage_ || one.serial != serial + 1) return;
    one.answers[lane] = std::move(answer);
    if (--one.left) return;
    add({serial, std::move(one.answers), false});
    end(one);
    stage_->came();  // under the lock: after close the engine may be gone
  }
  // Nothing will come back any more: all that is outside, and all that would go, fails.
  void broke(const std::string& why) {
    std::lock_guard<std::mutex> hold(lock_);
    if (!stage_ || !why_.empty()) return;
    why_ = why.empty() ? "it ended" : why;
    for (One& one : outside_) {
      if (!one.serial) continue;
      add({one.serial - 1, fatal(why_), false});
      end(one);
    }
    stage_->came();
  }
  // There may be room again.
  void retry() {
    std::lock_guard<std::mutex> hold(lock_);
    if (!stage_) return;
    chances_.fetch_add(1, std::memory_order_seq_cst);  // pairs with chances
    stage_->came();
  }

  // The stage's side: so many lanes are asked; false: nothing goes there any more, see `why`.
  // `needed`: also behind a failure.
  bool send(uint64_t serial, uint32_t left, bool needed) {
    std::lock_guard<std::mutex> hold(lock_);
    if (!why_.empty()) return false;
    One& one = at(serial);
    one.serial = serial + 1;
    one.left = left;
    one.needed = needed;
    one.answers.assign(lanes_, LaneAnswer());
    out_.fetch_add(1, std::memory_order_relaxed);
    return true;
  }
  // Whether answers to it are still waited for.
  bool waits(uint64_t serial) {
    std::lock_guard<std::mutex> hold(lock_);
    return at(serial).serial == serial + 1;
  }
  // What is behind this serial comes back at once, without answers, unless it is needed.
  void drop_after(uint64_t serial) {
    std::lock_guard<std::mutex> hold(lock_);
    for (One& one : outside_) {
      if (one.serial <= serial + 1 || one.needed) continue;
      add({one.serial - 1, {}, true});
      end(one);
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

  // Answers that say that it cannot be done; no record is to blame.
  std::vector<LaneAnswer> fatal(const std::string& why) const {
    std::vector<LaneAnswer> answers(lanes_);
    answers[0].outcome = fatal_outcome(why);
    return answers;
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
  struct One {
    uint64_t serial = 0;  // + 1; 0: nothing is outside
    uint32_t left = 0;
    bool needed = false;
    std::vector<LaneAnswer> answers;
  };
  One& at(uint64_t serial) { return outside_[serial & (outside_.size() - 1)]; }
  void end(One& one) {
    one = One();
    out_.fetch_sub(1, std::memory_order_relaxed);
  }
  void add(Item&& item) {
    items_.push_back(std::move(item));
    chances_.fetch_add(1, std::memory_order_seq_cst);  // pairs with chances
    here_.fetch_add(1, std::memory_order_seq_cst);     // pairs with any
  }

  mutable std::mutex lock_;
  Stage* stage_;  // null: closed
  const uint32_t lanes_;
  std::vector<One> outside_;  // by slot
  std::deque<Item> items_;
  std::string why_;  // not empty: broke
  std::atomic<uint32_t> here_{0}, out_{0};
  std::atomic<uint64_t> chances_{0};
};

}  // namespace plait
