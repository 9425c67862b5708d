// Returns: where batches that are worked on outside the engine come back to their stage.
//
// The stage says of each serial that it goes outside; what works on it brings the outcome, from any
// thread, in any order; a worker of the engine takes it from here. Every serial that went out comes
// back exactly once, whatever happens outside: an outcome that is not awaited (a second one, one
// after `broke` or after the stage is gone) is let go.
//
// Threads, full and empty: as in `ReturnQueue`, all public calls from any thread.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "plait/stages/call_operator.hpp"
#include "plait/stages/return_queue.hpp"

namespace plait {

// Ends the run; no record is to blame.
inline CallOutcome fatal_outcome(std::string message, FailureKind kind = FailureKind::Internal) {
  CallOutcome outcome;
  outcome.fatal = true;
  outcome.failures.push_back({0, std::move(message), -1, 0, nullptr, kind});
  return outcome;
}

struct ReturnedBatch {
  uint64_t serial = 0;
  CallOutcome outcome;
  bool dropped = false;  // nobody needs it any more, and it has no outcome
};

class Returns : public ReturnQueue<ReturnedBatch> {
 public:
  // `batches`: at most so many serials in a row are outside; a power of two.
  Returns(Stage& stage, uint32_t batches) : ReturnQueue(stage), outside_(batches, 0) {}

  // The outcome of a serial. False: nobody waits for it.
  bool complete(uint64_t serial, CallOutcome&& outcome) {
    std::lock_guard<std::mutex> hold(lock_);
    if (closed() || !gone(serial)) return false;
    add({serial, std::move(outcome), false});
    came();
    return true;
  }
  // Nothing will come back any more: all that is outside, and all that would go, fails.
  void broke(const std::string& why, FailureKind kind = FailureKind::Internal) {
    std::lock_guard<std::mutex> hold(lock_);
    if (!break_off(why, kind)) return;
    for (uint64_t& one : outside_) {
      if (one) add({end(one), fatal_outcome(why_, kind_), false});
    }
    came();
  }

  // The stage's side. A serial goes outside; false: nothing goes there any more, see `why`.
  bool send(uint64_t serial) {
    std::lock_guard<std::mutex> hold(lock_);
    if (broken()) return false;
    at(serial) = serial + 1;
    went();
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
      if (one > serial + 1) add({end(one), CallOutcome(), true});
    }
  }

 private:
  uint64_t& at(uint64_t serial) { return outside_[serial & (outside_.size() - 1)]; }
  // Under the lock: the serial is outside no more. False: it was not there.
  bool gone(uint64_t serial) {
    if (at(serial) != serial + 1) return false;
    end(at(serial));
    return true;
  }
  // Under the lock: empties a slot and gives the serial that was in it.
  uint64_t end(uint64_t& one) {
    ended();
    return std::exchange(one, 0) - 1;
  }

  std::vector<uint64_t> outside_;  // by slot: serial + 1 of what is outside, or 0
};

}  // namespace plait
