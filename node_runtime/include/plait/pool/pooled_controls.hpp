// PooledControls: control items of a stage whose state is with the worker processes of the pool.
//
// They go to the lanes between the same two batches on every lane. A layout, and bins that are put,
// are held: nothing more is given until the bins that go are shipped and those that come are with
// their lanes. Bins are in all together or not at all, and a lane does not know of the others.
//
// Threads: all runs under the stage's flag, except `settle_control` and `answer_held`, which are
// for the worker that takes the answers. No worker waits: `pass` says that answers or bins are
// missing.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plait/pool/lane_backlog.hpp"
#include "plait/stages/python_state_stage.hpp"

namespace plait {

// `Base`: PythonStateStage or ProcessStage.
template <class Base>
class PooledControls : public Base {
 protected:
  // What the giver waits for; Look: it goes on when somebody comes by (its slice was over, or bins
  // may have come).
  enum class Waits : uint8_t { Nothing, Room, Answers, Look };

  template <class Op>
  PooledControls(std::string name, const StageLimits& limits, std::unique_ptr<Op> op,
                 PythonStateStage::ControlFunction control, void* context,
                 std::unique_ptr<LaneWork> work, std::shared_ptr<PoolLanes> lanes)
      : Base(std::move(name), limits, std::move(op), control, context),
        work_(std::move(work)),
        lanes_(std::move(lanes)),
        returns_(std::make_shared<LaneReturns>(*this, limits.batches, lanes_->lanes())),
        backlog_(*work_, *lanes_, *returns_),
        asked_(limits.batches) {}

  Control& control_of(Slot& s) const { return *s.batch.control; }
  Asked& asked(uint64_t serial) { return asked_[serial & (asked_.size() - 1)]; }
  uint32_t op() const { return this->state_operator().number(); }

  // Whether the giver waits for the answers to it.
  static bool is_held(const Control& c) {
    return c.kind == Control::Kind::Layout || c.kind == Control::Kind::Put;
  }
  void begin_control(Slot& s, Worker& worker) {
    Control& c = control_of(s);
    const bool snapshot = c.kind == Control::Kind::Snapshot;
    if (c.kind == Control::Kind::Layout) return begin_layout(s, worker);
    asked(s.serial).head = this->head_of();
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
  void settle_control(Slot& s, LaneReturns::Item& item) {
    Control& c = control_of(s);
    std::vector<Control::Bin> bins;
    gather(c, item.answers, bins);
    this->collect(c, asked(s.serial).head, bins);
    asked(s.serial) = Asked();
  }
  // The answers to what is held have come.
  void answer_held(std::vector<LaneAnswer>&& answers) {
    moved_ = std::move(answers);
    came_.store(true, std::memory_order_release);  // pairs with pass
  }
  bool held_answered() const { return came_.load(std::memory_order_acquire); }

  // One step of what is held; false: it has to wait for answers, or for bins.
  bool pass(Worker& worker) {
    Control& c = control_of(*held_);
    // Acquire pairs with answer_held: the answers. If the pool broke some come too, and until then
    // the slot has to stay.
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

  const std::unique_ptr<LaneWork> work_;
  const std::shared_ptr<PoolLanes> lanes_;
  const std::shared_ptr<LaneReturns> returns_;
  std::atomic<Waits> waits_{Waits::Nothing};
  // Under the stage's flag:
  LaneBacklog backlog_;
  Slot* held_ = nullptr;  // the layout, or the bins to be put, that nothing is given behind

 private:
  // How far the item is that the giver holds: Putting and Undoing are all of a Put.
  enum class Passing : uint8_t { Taking, Bringing, Putting, Undoing };

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
      const std::string head = this->head_of();
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
  // What all lanes say of a control item.
  void gather(Control& c, std::vector<LaneAnswer>& answers, std::vector<Control::Bin>& bins) const {
    for (auto& a : answers) {
      for (auto& b : a.told.bins) bins.push_back({op(), b.bin, std::move(b.bytes)});
      if (!a.told.refused.empty()) c.refuse(a.told.refused);
      if (a.outcome.fatal) c.refuse(a.outcome.failures.front().message);
    }
  }

  std::vector<Asked> asked_;  // by slot; of the giver, then of who takes the answers
  // Under the stage's flag:
  Passing passing_ = Passing::Taking;
  std::vector<uint32_t> putting_;  // of a Put: its bins, in their order
  // The lanes' answers to what is held: of who took them, then, once they came, of the holder of
  // the flag.
  std::vector<LaneAnswer> moved_;
  std::atomic<bool> came_{false};
};

}  // namespace plait
