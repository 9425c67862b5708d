// PooledStage: a stage whose state is with the worker processes of the pool, a lane in each.
//
// It begins as the stage it is made from, with the state in the engine's process. When it is told
// to go it hands its bins over and from then on gives every batch to the lanes that have its keys,
// one worker at a time and in order; the last lane's answer brings the batch back, and whoever
// takes it puts the answers together and publishes the slot. Control items go the same way, between
// the same two batches on every lane. At a layout nothing more is given until the bins that go are
// shipped and those that come are with their lanes.
//
// Threads: batches are given under the stage's flag; answers are taken by any worker. No worker
// waits for a lane. Full: what was refused is kept and tried again when there is room. Behind a
// failure nothing is needed: what is outside there comes back at once.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plait/lane_work.hpp"

namespace plait {

// `Base`: OutsideStateStage or ProcessStage.
template <class Base>
class PooledStage final : public Base {
 public:
  // Takes all bins out of the state, or refuses and leaves it as it is.
  using HandOver = OutsideStateStage::ControlFunction;

  template <class Op>
  PooledStage(std::string name, const StageLimits& limits, std::unique_ptr<Op> op,
              OutsideStateStage::ControlFunction control, HandOver hand_over, void* context,
              std::unique_ptr<LaneWork> work, std::shared_ptr<PoolLanes> lanes)
      : Base(std::move(name), limits, std::move(op), control, context),
        hand_over_(hand_over),
        work_(std::move(work)),
        lanes_(std::move(lanes)),
        returns_(std::make_shared<LaneReturns>(*this, limits.batches, lanes_->lanes())),
        asked_(limits.batches) {
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
  struct Giving {
    uint64_t serial = 0;
    std::vector<PoolLanes::Message> messages;  // by lane; those that were given are null
    std::vector<std::vector<uint32_t>> bins;   // by lane: those that rows may change; or nothing
  };
  enum class Passing : uint8_t { Taking, Bringing, Putting };

  Control& control_of(Slot& s) const { return *s.batch.control; }
  Asked& asked(uint64_t serial) { return asked_[serial & (asked_.size() - 1)]; }
  uint32_t node() const { return this->state_operator().node(); }
  bool chance() const { return returns_->chances() != refused_at_.load(std::memory_order_relaxed); }

  // Hands the state over to the lanes.
  void go(Worker& worker) {
    PythonTurn turn(worker, true);
    if (!turn || !this->try_hold()) return;
    if (lanes_->here() && !this->moving_) {
      Control all;
      hand_over_(this->context_, all);
      if (all.errors.empty()) {
        (void)put_by_lane(all.collected, PoolLanes::kNobody);
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
      if (s.batch.control && control_of(s).kind == Control::Kind::Layout) {
        moved_ = std::move(item.answers);
        came_.store(true, std::memory_order_release);  // pairs with pass_layout
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
      guarded(s.batch, node(), [&] { work_->settle(s.batch, item.answers, what, worker); });
      if (s.batch.failure) forget_after(s.serial);
    }
    what = Asked();
    this->finish(s, worker);
  }
  void settle_control(Slot& s, LaneReturns::Item& item) {
    Control& c = control_of(s);
    std::vector<Control::Bin> bins;
    gather(c, item.answers, bins);
    if (c.kind != Control::Kind::Put) this->collect(c, asked(s.serial).head, bins);
    asked(s.serial) = Asked();
  }
  // What all lanes say of a control item.
  void gather(Control& c, std::vector<LaneAnswer>& answers, std::vector<Control::Bin>& bins) const {
    for (auto& a : answers) {
      for (auto& b : a.told.bins) bins.push_back({node(), b.bin, std::move(b.bytes)});
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
      if (layout_) {
        if (!pass_layout(worker)) break;
        continue;
      }
      Slot* s = this->try_claim(this->limits_.batches);
      if (!s) break;
      done += s->records + 1;
      this->stats.records_in.fetch_add(s->records, std::memory_order_relaxed);
      begin(*s, worker);
      if (worker.slice_over()) break;
    }
    const bool more = !giving_.empty() || layout_;
    if (more && waits_.load(std::memory_order_relaxed) == Waits::Nothing) {
      waits_.store(Waits::Look, std::memory_order_relaxed);
    }
    this->let_go();
    return done;
  }
  // Gives what was begun and not given yet. False: there is no room.
  bool give_rest() {
    for (Giving& g : giving_) {
      for (uint32_t lane = 0; lane < g.messages.size(); ++lane) {
        if (!g.messages[lane]) continue;
        if (!needed(g.serial)) break;
        const uint64_t chances = returns_->chances();
        if (!try_give(lane, g)) {
          refused_at_.store(chances, std::memory_order_relaxed);
          waits_.store(Waits::Room, std::memory_order_relaxed);
          return false;
        }
        g.messages[lane] = nullptr;
      }
    }
    giving_.clear();
    return true;
  }
  // False: it was dropped, or nobody is there to take it.
  bool needed(uint64_t serial) const {
    return serial == PoolLanes::kNobody ? returns_->why().empty() : returns_->waits(serial);
  }
  bool try_give(uint32_t lane, const Giving& g) {
    try {
      static const std::vector<uint32_t> kNone;
      return lanes_->try_give(lane, g.serial, g.messages[lane],
                              lane < g.bins.size() ? g.bins[lane] : kNone);
    } catch (const std::exception& error) {
      returns_->broke(std::string("the runtime failed: ") + error.what());
      return true;
    }
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
    guarded(batch, node(), [&] { asks = work_->ask(batch, worker, what); });
    if (!asks) return this->finish(s, worker);
    const uint64_t serial = s.serial;
    Giving giving{serial, {what.messages.begin(), what.messages.end()}, std::move(what.bins)};
    if (!returns_->send(serial, what.count(), false)) {
      LaneReturns::Item item{serial, returns_->fatal(returns_->why()), false};
      return settle(s, item, worker);
    }
    // From here on the slot, and what was asked of it, belong to who takes the answers.
    giving_.push_back(std::move(giving));
    (void)give_rest();
    // A failure may have come in between; see DeferredStage::give.
    const uint64_t last = last_needed_.load(std::memory_order_relaxed);
    if (serial > last) returns_->drop_after(last);
  }

  void begin_control(Slot& s, Worker& worker) {
    Control& c = control_of(s);
    if (c.kind == Control::Kind::Layout) {
      if (!this->moves_) return this->finish(s, worker);
      layout_ = &s;
      passing_ = Passing::Taking;
      const auto going = this->note_moves(c);
      if (going.empty() || !ask_bins(s, LaneDo::Take, going)) nothing_comes();
      return;
    }
    const bool snapshot = c.kind == Control::Kind::Snapshot;
    asked(s.serial).head = this->head_of(snapshot, c.epoch);
    if (snapshot) {
      (void)ask_bins(s, LaneDo::Copy, {});
    } else if (c.kind == Control::Kind::Take && c.node == node()) {
      (void)ask_bins(s, LaneDo::Take, c.bins);
    } else if (c.kind == Control::Kind::Put) {
      std::vector<Control::Bin> mine;
      for (const auto& bin : c.put) {
        std::string bytes;
        if (bin.node == node() && this->adopt(c, bin, bytes)) {
          mine.push_back({bin.node, bin.bin, std::move(bytes)});
        }
      }
      (void)put_by_lane(mine, s.serial);
    }
    if (giving_.empty() && !returns_->waits(s.serial)) {  // no lane is asked, or none ever answers
      if (!returns_->why().empty()) c.refuse(returns_->why());
      this->finish(s, worker);
    }
  }
  // Asks for bins; Copy: all lanes for all that have state. False: no answer comes.
  bool ask_bins(Slot& s, LaneDo what, const std::vector<uint32_t>& bins) {
    std::vector<std::shared_ptr<LaneMessage>> by_lane(lanes_->lanes());
    auto at = [&](uint32_t lane) -> LaneMessage& {
      if (!by_lane[lane]) by_lane[lane] = std::make_shared<LaneMessage>();
      by_lane[lane]->what = what;
      return *by_lane[lane];
    };
    for (uint32_t bin : bins) at(work_->lane_of(bin)).bins.push_back(bin);
    for (uint32_t lane = 0; what == LaneDo::Copy && lane < by_lane.size(); ++lane) {
      at(lane).all = true;
    }
    return send(s.serial, std::move(by_lane));
  }
  bool put_by_lane(std::vector<Control::Bin>& bins, uint64_t serial) {
    std::vector<std::shared_ptr<LaneMessage>> by_lane(lanes_->lanes());
    for (auto& bin : bins) {
      auto& m = by_lane[work_->lane_of(bin.bin)];
      if (!m) m = std::make_shared<LaneMessage>();
      m->what = LaneDo::Put;
      m->put.push_back({bin.bin, std::move(bin.bytes)});
    }
    return send(serial, std::move(by_lane));
  }
  bool send(uint64_t serial, std::vector<std::shared_ptr<LaneMessage>> by_lane) {
    Asked what;
    what.messages = std::move(by_lane);
    if (!what.count()) return false;
    if (serial != PoolLanes::kNobody && !returns_->send(serial, what.count(), true)) return false;
    giving_.push_back({serial, {what.messages.begin(), what.messages.end()}, {}});
    return true;
  }

  // One step of a layout; false: it has to wait for answers, or for bins.
  bool pass_layout(Worker& worker) {
    Control& c = control_of(*layout_);
    // Acquire pairs with take_in: the answers. If the pool broke some come too, and until then the
    // slot has to stay.
    if (passing_ != Passing::Bringing && !came_.exchange(false, std::memory_order_acquire)) {
      waits_.store(Waits::Answers, std::memory_order_relaxed);
      return false;
    }
    if (!returns_->why().empty()) {
      moved_.clear();
      c.refuse(returns_->why());
      return end_layout(worker);
    }
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
      if (this->adopt(c, one, bytes)) brought.push_back({one.node, one.bin, std::move(bytes)});
      return true;
    });
    if (!brought.empty()) {
      passing_ = Passing::Putting;
      if (!put_by_lane(brought, layout_->serial)) nothing_comes();
      return true;
    }
    if (this->missing_.empty()) return end_layout(worker);
    waits_.store(Waits::Look, std::memory_order_relaxed);
    return false;
  }
  void nothing_comes() { came_.store(true, std::memory_order_relaxed); }
  bool end_layout(Worker& worker) {
    Slot& s = *std::exchange(layout_, nullptr);
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
  std::vector<Giving> giving_;
  Slot* layout_ = nullptr;  // the one that is being passed
  Passing passing_ = Passing::Taking;
  // The lanes' answers to it: of who took them, then, once they came, of the holder of the flag.
  std::vector<LaneAnswer> moved_;
  std::atomic<bool> came_{false};
};

}  // namespace plait
