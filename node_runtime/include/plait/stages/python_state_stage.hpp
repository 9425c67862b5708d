// PythonStateStage: keyed or global state that is held in Python.
//
// The operator gets whole batches in order, and control items between them: a snapshot, bins to
// give up, bins to take in. On several nodes a new layout passes when the bins it brings have
// arrived; until then the stage holds the batches after it. Threads and progress: as SerialStage;
// everything here runs under its flag, except control_now (before the start).
//
// What the state was at a mark may be written behind it, some bins at a time, between two batches:
// by a thread beside the workers, or by the worker that it finds there.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plait/columns/control.hpp"
#include "plait/moves/state_moves.hpp"
#include "plait/stages/row_operators.hpp"
#include "plait/stages/serial_stage.hpp"

namespace plait {

class PythonStateStage : public SerialStage {
 public:
  using ControlFunction = void (*)(void* context, Control& control);
  PythonStateStage(std::string name, const StageLimits& limits, std::unique_ptr<Operator> op,
                   ControlFunction control, void* context)
      : SerialStage(std::move(name), limits),
        control_(control),
        context_(context),
        op_(std::move(op)) {}

  void control_now(Control& control) override { state_control(control); }
  void save_some() override {
    if (!saving_.load(std::memory_order_relaxed)) return;
    asked_.store(true, std::memory_order_relaxed);
    if (!try_hold()) return;
    between();
    let_go();
    came();  // a worker may have found it busy
  }

  // On several nodes: where bins go and come from; without, the state stays where it is. `keyless`:
  // the state is one bin.
  void moves(StateMoves& moves, bool keyless) {
    moves_ = &moves;
    keyless_ = keyless;
  }

 protected:
  // A new layout is passed when the bins it brings are here.
  bool ready(Batch& batch) override {
    if (!moves_ || !batch.control || batch.control->kind != Control::Kind::Layout) return true;
    Control& c = *batch.control;
    if (moving_ != &c) {
      moving_ = &c;
      Control take;
      take.bins = note_moves(c);
      if (!take.bins.empty()) give(c, take);
    }
    std::erase_if(missing_, [&](uint32_t bin) { return install(c, bin); });
    return missing_.empty();
  }
  void process(Batch& batch, Worker& worker) override {
    if (batch.control && batch.control->kind == Control::Kind::Layout) {
      moving_ = nullptr;
      return;
    }
    if (batch.control && batch.control->mark) return meet(batch.control);
    if (batch.control) return state_control(*batch.control);
    if (batch.end || broken(batch)) return;
    guarded(batch, op_->number(), [&] { op_->run(batch, worker); });
  }
  void between() override {
    asked_.store(false, std::memory_order_relaxed);
    if (!mark_) return;
    const int64_t began = now_ns();
    Control some;
    some.kind = Control::Kind::Save;
    control_(context_, some);
    for (auto& bin : some.collected) mark_->collect(std::move(bin));
    for (auto& why : some.errors) mark_->refuse(why);
    mark_->held(now_ns() - began);
    if (some.last || !some.errors.empty()) end_save();
  }
  // Whether bins may be written behind a mark.
  virtual bool saves_late() const { return true; }
  // Snapshot, Take or Put.
  virtual void state_control(Control& control) {
    if (control.kind == Control::Kind::Put) return put_all(control);
    control_(context_, control);
  }
  Operator& state_operator() const { return *op_; }

  // What stands in front of the bytes of a bin that goes, if anything ...
  virtual std::string head_of() const { return {}; }
  // ... and is taken over where one comes: leaves the rest. False: there is none, or it is refused.
  virtual bool adopt(Control& /*c*/, const Control::Bin& bin, std::string& bytes) {
    bytes = bin.bytes;
    return true;
  }
  // The bins of a Put that are of this operator, without their heads, which are taken over. If one
  // is refused there are none.
  std::vector<Control::Bin> adopted(const Control& c, Control& refused) {
    std::vector<Control::Bin> mine;
    for (const auto& bin : c.put) {
      std::string bytes;
      if (bin.op != op_->number()) continue;
      if (adopt(refused, bin, bytes)) mine.push_back({bin.op, bin.bin, std::move(bytes)});
      if (!refused.errors.empty()) return {};
    }
    return mine;
  }
  // Takes the head over that head_of gave here: bins were refused after theirs.
  void adopt_again(const std::string& head) {
    Control none;
    std::string rest;
    (void)adopt(none, {op_->number(), 0, head}, rest);
  }
  // Bins that go, with their head. That of a snapshot must be somewhere.
  void collect(Control& c, const std::string& head, std::vector<Control::Bin>& bins) {
    if (c.kind == Control::Kind::Snapshot && bins.empty() && !head.empty()) {
      bins.push_back({op_->number(), 0, {}});
    }
    for (auto& bin : bins) c.collect({bin.op, bin.bin, head + bin.bytes});
  }

  // What a layout takes from here; what it brings is missing then.
  std::vector<uint32_t> note_moves(const Control& c) {
    missing_.clear();
    std::vector<uint32_t> going;
    each_move(c, op_->number(), keyless_, 0, uint32_t(c.layout->owners.size()),
              [&](uint32_t bin, uint32_t from, uint32_t to) {
                if (from == moves_->here()) going.push_back(bin);
                if (to == moves_->here()) missing_.push_back(bin);
              });
    return going;
  }
  void ship(const Control& c, const std::vector<Control::Bin>& bins) {
    const auto& after = c.layout->owners;
    for (const auto& bin : bins) {
      BufferRef bytes = BufferRef::make(int64_t(bin.bytes.size()));
      std::memcpy(bytes.data(), bin.bytes.data(), bin.bytes.size());
      const uint32_t at = keyless_ ? singleton_bin(bin.op, after.size()) : bin.bin;
      const uint8_t* data = bytes.data();
      moves_->ship(after[at], bin.op, bin.bin,
                   {c.epoch, MoveKind::Whole, std::move(bytes), data, int64_t(bin.bytes.size())});
    }
  }
  // The state of a bin that a layout brings, if it is here.
  bool arrived(const Control& c, uint32_t bin, Control::Bin& out) {
    MovedBin moved;
    if (!moves_->take(op_->number(), bin, c.epoch, moved)) return false;
    out = {op_->number(), bin,
           std::string(reinterpret_cast<const char*>(moved.data), size_t(moved.size))};
    return true;
  }

  ControlFunction control_;
  void* context_;
  StateMoves* moves_ = nullptr;
  bool keyless_ = false;
  Control* moving_ = nullptr;  // the layout that is being passed; under the stage's flag
  std::vector<uint32_t> missing_;

 private:
  void meet(const std::shared_ptr<Control>& c) {
    const int64_t began = now_ns();
    if (mark_) {
      mark_->refuse("the next mark came before the state of this one was written");
      end_save();
    }
    if (saves_late() && begin_save(*c)) {
      mark_ = c;
      c->unsaved.fetch_add(1, std::memory_order_relaxed);  // before it arrives anywhere
      saving_.store(true, std::memory_order_relaxed);
    } else {
      state_control(*c);
    }
    c->held(now_ns() - began);
  }
  bool begin_save(Control& c) {
    Control met;
    met.kind = Control::Kind::Save;
    met.mark = true;
    met.number = c.number;
    met.since = c.since;
    control_(context_, met);
    if (met.last || !met.errors.empty()) return false;
    if (!met.partial.empty()) c.give_changes(op_->number());
    return true;
  }
  void end_save() {
    saving_.store(false, std::memory_order_relaxed);
    mark_->unsaved.fetch_sub(1, std::memory_order_release);  // pairs with Engine::save
    mark_.reset();
  }

  // Bins are in all together or not at all; the first that is refused says why.
  void put_all(Control& c) {
    const std::string head = head_of();
    Control one, undo;
    one.kind = Control::Kind::Put;
    undo.kind = Control::Kind::Take;
    undo.op = op_->number();
    for (auto& bin : adopted(c, one)) {
      const uint32_t number = bin.bin;
      one.put.clear();
      one.put.push_back(std::move(bin));
      control_(context_, one);
      if (!one.errors.empty()) break;
      undo.bins.push_back(number);
    }
    if (one.errors.empty()) return;
    c.refuse(one.errors.front());
    control_(context_, undo);
    for (auto& why : undo.errors) c.refuse(why);
    adopt_again(head);
  }
  // Ships the bins that go. Python state goes whole: no copy is made ahead.
  void give(Control& c, Control& take) {
    take.kind = Control::Kind::Take;
    take.op = op_->number();
    state_control(take);
    ship(c, take.collected);
    for (auto& why : take.errors) c.refuse(why);
  }
  bool install(Control& c, uint32_t bin) {
    Control put;
    put.kind = Control::Kind::Put;
    put.put.emplace_back();
    if (!arrived(c, bin, put.put.front())) return false;
    state_control(put);
    moves_->installed(int64_t(put.put.front().bytes.size()));
    for (auto& why : put.errors) c.refuse(why);
    return true;
  }

  std::unique_ptr<Operator> op_;
  std::shared_ptr<Control> mark_;  // that the state is written for
  std::atomic<bool> saving_{false};
};

}  // namespace plait
