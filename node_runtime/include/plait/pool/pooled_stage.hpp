// PooledStage: a stage whose state is with the worker processes of the pool, a lane in each.
//
// It begins as the stage it is made from, with the state in the engine's process. When PoolLanes
// says so it hands its bins over and from then on gives every batch to the lanes that have its
// keys, one worker at a time and in order; the last lane's answer brings the batch back, and the
// worker that takes it puts the answers together and publishes the slot. Control items, which go
// the same way, are in PooledControls.
//
// Threads: batches are given under the stage's flag; answers are taken by any worker. No worker
// waits for a lane. Full: what was refused is kept and tried again when there is room. After a
// failure nothing is needed: what is outside comes back at once.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plait/pool/pooled_controls.hpp"
#include "plait/workers/python_turn.hpp"

namespace plait {

// `Base`: PythonStateStage or ProcessStage.
template <class Base>
class PooledStage final : public PooledControls<Base> {
  using Controls = PooledControls<Base>;
  using Controls::asked, Controls::control_of, Controls::op;
  using Controls::backlog_, Controls::held_, Controls::lanes_, Controls::returns_;
  using Controls::waits_, Controls::work_;
  using typename Controls::Waits;

 public:
  // Takes all bins out of the state, or refuses and leaves it as it is.
  using HandOver = PythonStateStage::ControlFunction;

  template <class Op>
  PooledStage(std::string name, const StageLimits& limits, std::unique_ptr<Op> op,
              PythonStateStage::ControlFunction control, HandOver hand_over, void* context,
              std::unique_ptr<LaneWork> work, std::shared_ptr<PoolLanes> lanes)
      : Controls(std::move(name), limits, std::move(op), control, context, std::move(work),
                 std::move(lanes)),
        hand_over_(hand_over) {
    lanes_->attach(returns_);
  }
  ~PooledStage() override { returns_->close(); }

  uint32_t max_workers() const override { return lanes_->here() ? 1 : ~0u; }
  bool needs_python() const override { return lanes_->here(); }
  bool runnable() const override {
    if (lanes_->here()) return Base::runnable() || lanes_->wanted();
    if (returns_->any()) return true;
    switch (waits_.load(std::memory_order_relaxed)) {
      case Waits::Room:
        return returns_->outside() == 0 || chance();
      case Waits::Answers:
        return this->held_answered();
      case Waits::Look:
        return true;
      case Waits::Nothing:
        break;
    }
    return this->claimed() < this->pushed();
  }

  // A record counts when it goes and when it comes back.
  int64_t run(Worker& worker, int64_t records) override {
    if (lanes_->here() && lanes_->wanted()) go(worker);
    if (lanes_->here()) return Base::run(worker, records);
    const int64_t done = take_in(worker, records);
    return done >= records ? done : done + give_out(worker, records - done);
  }

 protected:
  // Another worker may have handed the state over since `run` looked; under the flag none can.
  bool ready(Batch& batch) override { return lanes_->here() && Base::ready(batch); }

 private:
  bool chance() const { return returns_->chances() != refused_at_.load(std::memory_order_relaxed); }

  // Hands the state over to the lanes.
  void go(Worker& worker) {
    PythonTurn turn(worker, true);
    if (!turn || !this->try_hold()) return;
    if (lanes_->here() && !this->moving_) {
      Control all;
      hand_over_(this->context_, all);
      if (all.errors.empty()) {
        (void)backlog_.put_bins(PoolLanes::kNobody, all.collected);
        waits_.store(Waits::Look, std::memory_order_relaxed);
        lanes_->gone();
      } else {
        lanes_->stays(all.errors.front());
      }
    }
    this->let_go();
  }

  // Takes what the lanes have answered.
  int64_t take_in(Worker& worker, int64_t records) {
    int64_t done = 0;
    LaneReturns::Item item;
    while (done < records && returns_->take(item)) {
      Slot& s = this->slot(item.serial);
      done += s.records + 1;
      if (s.batch.control && this->is_held(control_of(s))) {
        this->answer_held(std::move(item.answers));
      } else if (s.batch.control) {
        this->settle_control(s, item);
        this->finish(s, worker);
      } else {
        settle(s, item, worker);
      }
      if (worker.slice_over()) break;
    }
    return done;
  }
  void settle(Slot& s, LaneReturns::Item& item, Worker& worker) {
    Asked& what = asked(s.serial);
    if (item.dropped) {
      work_->drop(s.batch);
    } else {
      guarded(s.batch, op(), [&] { work_->settle(s.batch, item.answers, what, worker); });
      if (s.batch.failure) forget_after(s.serial);
    }
    what = Asked();
    this->finish(s, worker);
  }

  int64_t give_out(Worker& worker, int64_t records) {
    if (!this->try_hold()) return 0;
    int64_t done = 0;
    waits_.store(Waits::Nothing, std::memory_order_relaxed);
    while (done < records) {
      if (!give_rest()) break;
      if (held_) {
        if (!this->pass(worker)) break;
        continue;
      }
      Slot* s = this->try_claim(this->limits_.batches);
      if (!s) break;
      done += s->records + 1;
      this->stats.records_in.fetch_add(s->records, std::memory_order_relaxed);
      begin(*s, worker);
      if (worker.slice_over()) break;
    }
    const bool more = !backlog_.empty() || held_;
    if (more && waits_.load(std::memory_order_relaxed) == Waits::Nothing) {
      waits_.store(Waits::Look, std::memory_order_relaxed);
    }
    this->let_go();
    return done;
  }
  // Gives what was begun and not given yet. False: there is no room.
  bool give_rest() {
    uint64_t chances = 0;
    if (backlog_.give(chances)) return true;
    refused_at_.store(chances, std::memory_order_relaxed);
    waits_.store(Waits::Room, std::memory_order_relaxed);
    return false;
  }

  void begin(Slot& s, Worker& worker) {
    Batch& batch = s.batch;
    if (batch.end || broken(batch) || worker.leaves()) return this->finish(s, worker);
    if (batch.control) return this->begin_control(s, worker);
    if (s.serial > last_needed_.load(std::memory_order_relaxed)) {
      work_->drop(batch);
      return this->finish(s, worker);
    }
    Asked& what = asked(s.serial);
    bool asks = false;
    guarded(batch, op(), [&] { asks = work_->ask(batch, worker, what); });
    if (!asks) return this->finish(s, worker);
    const uint64_t serial = s.serial;
    backlog_.add(serial, what);
    if (!returns_->send(serial, what.count(), false)) {
      LaneReturns::Item item{serial, returns_->fatal(returns_->why(), returns_->kind()), false};
      return settle(s, item, worker);
    }
    // From here on the slot, and what was asked of it, belong to who takes the answers.
    (void)give_rest();
    // A failure may have come in between; see DeferredStage::give.
    const uint64_t last = last_needed_.load(std::memory_order_relaxed);
    if (serial > last) returns_->drop_after(last);
  }

  // Nothing behind this serial will be seen.
  void forget_after(uint64_t serial) {
    uint64_t last = last_needed_.load(std::memory_order_relaxed);
    while (serial < last &&  // relaxed: the lock of LaneReturns orders it
           !last_needed_.compare_exchange_weak(last, serial, std::memory_order_relaxed)) {
    }
    returns_->drop_after(serial);
  }

  const HandOver hand_over_;
  std::atomic<uint64_t> last_needed_{~uint64_t(0)};
  std::atomic<uint64_t> refused_at_{0};  // LaneReturns::chances before something was refused
};

}  // namespace plait
