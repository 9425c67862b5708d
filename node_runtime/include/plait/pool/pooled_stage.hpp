// PooledStage: a stage whose state is with the worker processes of the pool, a lane in each.
//
// It begins as the stage it is made from, with the state in the engine's process. When PoolLanes
// says so it hands its bins over and from then on gives every batch to the lanes that have its
// keys, one worker at a time and in order; the last lane's answer brings the batch back, and the
// worker that takes it puts the answers together and publishes the slot. Control items go the same
// way, between the same two batches on every lane. At a layout nothing more is given until the bins
// that go are shipped and those that come are with their lanes; nor where bins are put, since they
// are in all together or not at all, and a lane does not know of the others.
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

#include "plait/pool/lane_backlog.hpp"
#include "plait/stages/python_state_stage.hpp"
#include "plait/workers/python_turn.hpp"

namespace plait {

// `Base`: PythonStateStage or ProcessStage.
template <class Base>
class PooledStage final : public Base {
 public:
  // Takes all bins out of the state, or refuses and leaves it as it is.
  using HandOver = PythonStateStage::ControlFunction;

  template <class Op>
  PooledStage(std::string name, const StageLimits& limits, std::unique_ptr<Op> op,
              PythonStateStage::ControlFunction control, HandOver hand_over, void* context,
              std::unique_ptr<LaneWork> work, std::shared_ptr<PoolLanes> lanes)
      : Base(std::move(name), limits, std::move(op), control, context),
        hand_over_(hand_over),
        work_(std::move(work)),
        lanes_(std::move(lanes)),
        returns_(std::make_shared<LaneReturns>(*this, limits.batches, lanes_->lanes())),
        asked_(limits.batches),
        backlog_(*work_, *lanes_, *returns_) {
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
        return came_.load(std::memory_order_acquire);
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
  // What the giver waits for; Look: it goes on when somebody comes by (its slice was over, or bins
  // may have come).
  enum class Waits : uint8_t { Nothing, Room, Answers, Look };
  // How far the item is that the giver holds: Putting and Undoing are all of a Put.
  enum class Passing : uint8_t { Taking, Bringing, Putting, Undoing };

  Control& control_of(Slot& s) const { return *s.batch.control; }
  Asked& asked(uint64_t serial) { return asked_[serial & (asked_.size() - 1)]; }
  uint32_t op() const { return this->state_operator().number(); }
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
      if (s.batch.control && is_held(control_of(s))) {
        moved_ = std::move(item.answers);
        came_.store(true, std::memory_order_release);  // pairs with pass
      } else if (s.batch.control) {
        settle_control(s, item);
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
  void settle_control(Slot& s, LaneReturns::Item& item) {
    Control& c = control_of(s);
    std::vector<Control::Bin> bins;
    gather(c, item.answers, bins);
    this->collect(c, asked(s.serial).head, bins);
    asked(s.serial) = Asked();
  }
  // What all lanes say of a control item.
  void gather(Control& c, std::vector<LaneAnswer>& answers, std::vector<Control::Bin>& bins) const {
    for (auto& a : answers) {
      for (auto& b : a.told.bins) bins.push_back({op(), b.bin, std::move(b.bytes)});
      if (!a.told.refused.empty()) c.refuse(a.told.refused);
      if (a.outcome.fatal) c.refuse(a.outcome.failures.front().message);
    }
  }

  int64_t give_out(Worker& worker, int64_t records) {
    if (!this->try_hold()) return 0;
    int64_t done = 0;
    waits_.store(Waits::Nothing, std::memory_order_relaxed);
    while (done < records) {
      if (!give_rest()) break;
      if (held_) {
        if (!pass(worker)) break;
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
    if (batch.control) return begin_control(s, worker);
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

  // Whether the giver waits for the answers to it.
  static bool is_held(const Control& c) {
    return c.kind == Control::Kind::Layout || c.kind == Control::Kind::Put;
  }
  void begin_control(Slot& s, Worker& worker) {
    Control& c = control_of(s);
    const bool snapshot = c.kind == Control::Kind::Snapshot;
    if (c.kind == Control::Kind::Layout) return begin_layout(s, worker);
    asked(s.serial).head = this->head_of(snapshot, c.epoch);
    if (c.kind == Control::Kind::Put) return begin_put(s, worker);
    if (snapshot) {
      (void)backlog_.ask_bins(s.serial, LaneDo::Copy, {});
    } else if (c.kind == Control::Kind::Take && c.op == op()) {
      (void)backlog_.ask_bins(s.serial, LaneDo::Take, c.bins);
    }
    if (backlog_.empty() && !returns_->waits(s.serial)) {  // no lane is asked, or none ever answers
      if (!returns_->why().empty()) c.refuse(returns_->why());
      this->finish(s, worker);
    }
  }
  void begin_layout(Slot& s, Worker& worker) {
    if (!this->moves_) return this->finish(s, worker);
    hold(s, Passing::Taking);
    const auto going = this->note_moves(control_of(s));
    if (going.empty() || !backlog_.ask_bins(s.serial, LaneDo::Take, going)) nothing_comes();
  }
  void begin_put(Slot& s, Worker& worker) {
    Control heads;
    std::vector<Control::Bin> mine = this->adopted(control_of(s), heads);
    if (mine.empty()) {
      if (!heads.errors.empty()) not_put(s, heads.errors.front());
      asked(s.serial) = Asked();
      return this->finish(s, worker);
    }
    hold(s, Passing::Putting);
    putting_.clear();
    for (const auto& bin : mine) putting_.push_back(bin.bin);
    if (!backlog_.put_bins(s.serial, mine)) nothing_comes();
  }
  void hold(Slot& s, Passing passing) {
    held_ = &s;
    passing_ = passing;
  }

  // One step of what is held; false: it has to wait for answers, or for bins.
  bool pass(Worker& worker) {
    Control& c = control_of(*held_);
    // Acquire pairs with take_in: the answers. If the pool broke some come too, and until then the
    // slot has to stay.
    if (passing_ != Passing::Bringing && !came_.exchange(false, std::memory_order_acquire)) {
      waits_.store(Waits::Answers, std::memory_order_relaxed);
      return false;
    }
    if (!returns_->why().empty()) {
      moved_.clear();
      c.refuse(returns_->why());
      return end_held(worker);
    }
    return c.kind == Control::Kind::Put ? pass_put(c, worker) : pass_layout(c, worker);
  }
  // If a lane refused a bin, the others give theirs back: the first bin that is refused says why.
  bool pass_put(Control& c, Worker& worker) {
    std::vector<Control::Bin> back;
    if (passing_ == Passing::Undoing) {
      gather(c, moved_, back);
      moved_.clear();
      return end_held(worker);
    }
    std::vector<uint32_t> in;
    const std::string* why = nullptr;
    for (uint32_t bin : putting_) {
      const LaneTold& told = moved_[work_->lane_of(bin)].told;
      if (told.refused.empty()) {
        in.push_back(bin);
      } else if (!why && (told.bins.empty() || told.bins.front().bin == bin)) {
        why = &told.refused;
      }
    }
    if (!why) {
      moved_.clear();
      return end_held(worker);
    }
    not_put(*held_, *why);
    moved_.clear();
    passing_ = Passing::Undoing;
    if (in.empty() || !backlog_.ask_bins(held_->serial, LaneDo::Take, in)) nothing_comes();
    return true;
  }
  // What is known of time is as it was.
  void not_put(Slot& s, const std::string& why) {
    control_of(s).refuse(why);
    this->adopt_again(asked(s.serial).head);
  }
  bool pass_layout(Control& c, Worker& worker) {
    std::vector<Control::Bin> bins;
    if (passing_ != Passing::Bringing) gather(c, moved_, bins);
    moved_.clear();
    if (passing_ == Passing::Taking) {
      const std::string head = this->head_of(false, c.epoch);
      for (auto& bin : bins) bin.bytes = head + bin.bytes;
      this->ship(c, bins);
    }
    passing_ = Passing::Bringing;
    return bring(c, worker);
  }
  bool bring(Control& c, Worker& worker) {
    std::vector<Control::Bin> brought;
    std::erase_if(this->missing_, [&](uint32_t bin) {
      Control::Bin one;
      if (!this->arrived(c, bin, one)) return false;
      this->moves_->installed(int64_t(one.bytes.size()));
      std::string bytes;
      if (this->adopt(c, one, bytes)) brought.push_back({one.op, one.bin, std::move(bytes)});
      return true;
    });
    if (!brought.empty()) {
      passing_ = Passing::Putting;
      if (!backlog_.put_bins(held_->serial, brought)) nothing_comes();
      return true;
    }
    if (this->missing_.empty()) return end_held(worker);
    waits_.store(Waits::Look, std::memory_order_relaxed);
    return false;
  }
  void nothing_comes() { came_.store(true, std::memory_order_relaxed); }
  bool end_held(Worker& worker) {
    Slot& s = *std::exchange(held_, nullptr);
    asked(s.serial) = Asked();
    this->finish(s, worker);
    return true;
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
  const std::unique_ptr<LaneWork> work_;
  const std::shared_ptr<PoolLanes> lanes_;
  const std::shared_ptr<LaneReturns> returns_;
  std::vector<Asked> asked_;  // by slot; of the giver, then of who takes the answers
  std::atomic<uint64_t> last_needed_{~uint64_t(0)};
  std::atomic<Waits> waits_{Waits::Nothing};
  std::atomic<uint64_t> refused_at_{0};  // LaneReturns::chances before something was refused
  // Under the stage's flag:
  LaneBacklog backlog_;
  Slot* held_ = nullptr;  // the layout, or the bins to be put, that nothing is given behind
  Passing passing_ = Passing::Taking;
  std::vector<uint32_t> putting_;  // of a Put: its bins, in their order
  // The lanes' answers to what is held: of who took them, then, once they came, of the holder of
  // the flag.
  std::vector<LaneAnswer> moved_;
  std::atomic<bool> came_{false};
};

}  // namespace plait
