// LaneReturns: where the lanes' answers to one item of a stage come together.
//
// The stage says of a serial how many lanes are asked; each answers once, from any thread, in any
// order; when the last one has, a worker of the engine takes all of them from here. Every serial
// that was sent comes back exactly once for each `send`, whatever happens outside: an answer that
// is not awaited (after a failure, after `broke` or after the stage is gone) is let go.
//
// Threads, full and empty: as in `ReturnQueue`, all public calls from any thread.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "plait/pool/lane_message.hpp"
#include "plait/stages/return_queue.hpp"
#include "plait/stages/returns.hpp"

namespace plait {

struct ReturnedAnswers {
  uint64_t serial = 0;
  std::vector<LaneAnswer> answers;  // by lane; of those that were not asked an empty one
  bool dropped = false;             // nobody needs it any more, and it has no answers
};

class LaneReturns : public ReturnQueue<ReturnedAnswers> {
 public:
  // `batches`: at most so many serials in a row are outside; a power of two.
  LaneReturns(Stage& stage, uint32_t batches, uint32_t lanes)
      : ReturnQueue(stage), lanes_(lanes), outside_(batches) {}

  void complete(uint64_t serial, uint32_t lane, LaneAnswer&& answer) {
    std::lock_guard<std::mutex> hold(lock_);
    One& one = at(serial);
    if (closed() || one.serial != serial + 1) return;
    one.answers[lane] = std::move(answer);
    if (--one.left) return;
    add({serial, std::move(one.answers), false});
    end(one);
    came();
  }
  // Nothing will come back any more: all that is outside, and all that would go, fails.
  void broke(const std::string& why, FailureKind kind = FailureKind::Internal) {
    std::lock_guard<std::mutex> hold(lock_);
    if (!break_off(why, kind)) return;
    for (One& one : outside_) {
      if (!one.serial) continue;
      add({one.serial - 1, fatal(why_, kind_), false});
      end(one);
    }
    came();
  }

  // The stage's side: so many lanes are asked; false: nothing goes there any more, see `why`.
  // `needed`: also behind a failure.
  bool send(uint64_t serial, uint32_t left, bool needed) {
    std::lock_guard<std::mutex> hold(lock_);
    if (broken()) return false;
    One& one = at(serial);
    one.serial = serial + 1;
    one.left = left;
    one.needed = needed;
    one.answers.assign(lanes_, LaneAnswer());
    went();
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

  // Answers that say that it cannot be done; no record is to blame.
  std::vector<LaneAnswer> fatal(const std::string& why, FailureKind kind) const {
    std::vector<LaneAnswer> answers(lanes_);
    answers[0].outcome = fatal_outcome(why, kind);
    return answers;
  }

 private:
  struct One {
    uint64_t serial = 0;  // + 1; 0: nothing is outside
    uint32_t left = 0;
    bool needed = false;
    std::vector<LaneAnswer> answers;
  };
  One& at(uint64_t serial) { return outside_[serial & (outside_.size() - 1)]; }
  // Under the lock.
  void end(One& one) {
    one = One();
    ended();
  }

  const uint32_t lanes_;
  std::vector<One> outside_;  // by slot
};

}  // namespace plait
