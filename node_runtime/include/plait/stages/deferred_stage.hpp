// DeferredStage: stateless operators whose batches are worked on outside the engine's workers (by
// processes, by a loop of coroutines) and come back later, in any order.
//
// A worker claims a slot and gives its batch to an Outside, which keeps it or refuses it when it
// is full; the outcome comes back to Returns from any thread, and the next worker that passes puts
// it in place of the rows and publishes the slot. Control items, ends, batches without rows and
// broken ones do not go outside. Behind a failure nothing is needed: what is outside there comes
// back at once, and the rest does not go. An Outside may also say that the workers are to run the
// operators themselves, in Python's turn, and later that batches go outside from now on: that is as
// good an order as any, because each has its serial.
//
// Threads: batches are given by one worker at a time, in serial order; outcomes are taken by any.
// No worker waits for what is outside. Full: the refused batch is kept and tried again when an
// outcome came, or `Returns::retry` was called, or nothing of this stage is outside. At most
// `in_flight` batches are between claim and release. The end: those outside may bring outcomes as
// long as they like; what comes after the stage is gone is let go. If those outside die, they say
// so by `Returns::broke`, and every serial still comes out, with the failure.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plait/stages/call_chain.hpp"
#include "plait/stages/returns.hpp"
#include "plait/stages/stage_impl.hpp"
#include "plait/workers/python_turn.hpp"

namespace plait {

class Outside {
 public:
  virtual ~Outside() = default;
  // Before the first batch: where outcomes go.
  virtual void attach(std::shared_ptr<Returns> returns) = 0;
  // Takes the batch (moves it out) and returns true, or leaves it as it is: full. Must not wait.
  // The outcome may come back before this returns.
  [[nodiscard]] virtual bool try_submit(uint64_t serial, Batch& batch) = 0;
  // Nobody needs what is behind this serial; work on it may stop. May be called by any worker at
  // any time.
  virtual void forget_after(uint64_t /*serial*/) {}
  // The stage is gone: nothing will be submitted or taken any more.
  virtual void gone() {}
  // Whether the workers run the operators themselves. Once it was false, it stays so.
  virtual bool here() const { return false; }
};

class DeferredStage final : public Stage {
 public:
  DeferredStage(std::string name, const StageLimits& limits, CallChain chain,
                std::shared_ptr<Outside> outside, uint32_t in_flight)
      : Stage(std::move(name), limits),
        chain_(std::move(chain)),
        outside_(std::move(outside)),
        returns_(std::make_shared<Returns>(*this, limits.batches)),
        in_flight_(std::clamp(in_flight, 1u, limits.batches)) {
    outside_->attach(returns_);
  }
  ~DeferredStage() override {
    returns_->close();
    outside_->gone();
  }

  // A record counts when it goes and when it comes back.
  int64_t run(Worker& worker, int64_t records) override {
    const int64_t done = take_in(worker, records);
    if (done >= records) return done;
    const int64_t more = records - done;
    // What is outside is worked on meanwhile, so more is given whether the slice is over or not.
    return done + (outside_->here() ? run_here(worker, more) : give_out(worker, more));
  }

  bool needs_python() const override { return python || outside_->here(); }
  bool runnable() const override {
    if (returns_->any()) return true;
    if (outside_->here()) return claimed() < pushed();
    if (pending_.load(std::memory_order_relaxed)) return returns_->outside() == 0 || chance();
    return claimed() < pushed() && claimed() - released() < in_flight_;
  }

 private:
  // Publishes what has come back.
  int64_t take_in(Worker& worker, int64_t records) {
    int64_t done = 0;
    Returns::Item item;
    while (done < records && returns_->take(item)) {
      Slot& s = slot(item.serial);
      done += s.records + 1;
      if (item.dropped) {
        chain_.drop(s.batch);
        finish(s, worker);
      } else {
        settle(s, item.outcome, worker);
      }
      if (worker.slice_over()) break;
    }
    return done;
  }
  void settle(Slot& s, CallOutcome& outcome, Worker& worker) {
    guarded(s.batch, chain_.op(), [&] { chain_.finish(s.batch, outcome, worker); });
    if (s.batch.failure) forget_after(s.serial);
    finish(s, worker);
  }

  int64_t run_here(Worker& worker, int64_t records) {
    PythonTurn turn(worker, true);
    if (!turn) return 0;
    int64_t done = 0;
    while (done < records && outside_->here()) {
      Slot* s = try_claim(limits_.batches);
      if (!s) break;
      done += s->records + 1;
      stats.records_in.fetch_add(s->records, std::memory_order_relaxed);
      Batch& batch = s->batch;
      const bool dropped = worker.shared.aborting.load(std::memory_order_acquire);
      if (!batch.control && !batch.end && !broken(batch) && !dropped) {
        guarded(batch, chain_.op(), [&] { chain_.run(batch, worker); });
      }
      finish(*s, worker);
    }
    return done;
  }

  int64_t give_out(Worker& worker, int64_t records) {
    // Acquire pairs with the release below: the pending batch as the last holder left it.
    if (giving_.exchange(true, std::memory_order_acquire)) return 0;
    int64_t done = 0;
    while (done < records) {
      Slot* s = pending_.load(std::memory_order_relaxed);
      if (!s) {
        s = try_claim(in_flight_);
        if (!s) break;
        stats.records_in.fetch_add(s->records, std::memory_order_relaxed);
        if (!goes_outside(*s, worker)) {
          done += s->records + 1;
          finish(*s, worker);
          continue;
        }
        given_ = s->batch;
      }
      const int64_t moved = s->records + 1;  // a slot that was given belongs to who takes it in
      if (!give(*s, worker)) break;
      done += moved;
      if (worker.slice_over()) break;
    }
    giving_.store(false, std::memory_order_release);
    return done;
  }

  // False: the batch is as it has to be already.
  bool goes_outside(Slot& s, Worker& worker) {
    Batch& batch = s.batch;
    if (batch.control || batch.end || broken(batch)) return false;
    if (worker.leaves()) return false;
    bool asked = false;
    guarded(batch, chain_.op(), [&] { asked = chain_.begin(batch, worker); });
    return asked;
  }

  // Gives the slot's batch outside, or ends it here. False: it was refused and is pending.
  bool give(Slot& s, Worker& worker) {
    const uint64_t serial = s.serial, chances = returns_->chances();
    if (serial > last_needed_.load(std::memory_order_relaxed)) {
      chain_.drop(s.batch);
      finish(s, worker);
    } else if (!returns_->send(serial)) {
      CallOutcome outcome = fatal_outcome(returns_->why(), returns_->kind());
      settle(s, outcome, worker);
    } else if (!submit(serial) && returns_->take_back(serial)) {
      refused_at_.store(chances, std::memory_order_relaxed);
      pending_.store(&s, std::memory_order_relaxed);
      return false;
    } else {
      // A failure may have come in between: drop_after there was before send here, and the lock of
      // Returns shows us its last_needed_; or it came after, and has dropped this serial too.
      const uint64_t last = last_needed_.load(std::memory_order_relaxed);
      if (serial > last) returns_->drop_after(last);
    }
    pending_.store(nullptr, std::memory_order_relaxed);
    given_ = Batch();
    return true;
  }
  bool submit(uint64_t serial) {
    try {
      return outside_->try_submit(serial, given_);
    } catch (const std::exception& error) {
      returns_->complete(serial, fatal_outcome(std::string("the runtime failed: ") + error.what()));
      return true;
    }
  }

  // Nothing behind this serial will be seen.
  void forget_after(uint64_t serial) {
    uint64_t last = last_needed_.load(std::memory_order_relaxed);
    while (serial < last &&  // relaxed: the lock of Returns orders it, see give
           !last_needed_.compare_exchange_weak(last, serial, std::memory_order_relaxed)) {
    }
    returns_->drop_after(serial);
    outside_->forget_after(serial);
  }

  bool chance() const { return returns_->chances() != refused_at_.load(std::memory_order_relaxed); }

  const CallChain chain_;
  const std::shared_ptr<Outside> outside_;
  const std::shared_ptr<Returns> returns_;
  const uint32_t in_flight_;
  std::atomic<uint64_t> last_needed_{~uint64_t(0)};
  alignas(kCacheLine) std::atomic<bool> giving_{false};
  std::atomic<Slot*> pending_{nullptr};  // claimed and refused; written under the flag
  Batch given_;                          // its batch, under the flag
  std::atomic<uint64_t> refused_at_{0};  // Returns::chances before it was refused
};

}  // namespace plait
