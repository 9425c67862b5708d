// The kinds of stage without keyed state: parallel (stateless), serial (a state machine or a sink,
// one worker at a time, in order).
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "plait/stages/row_operators.hpp"
#include "plait/stages/stage_impl.hpp"
#include "plait/moves/state_moves.hpp"

namespace plait {

using Operators = std::vector<std::unique_ptr<Operator>>;

// Runs `step`; if it throws, the batch goes on without rows and with the failure, so its serial is
// published all the same.
template <class Step>
void guarded(Batch& batch, uint32_t node, Step&& step) {
  try {
    step();
  } catch (const std::exception& error) {
    batch.failure = std::make_shared<Failure>(runtime_failure(node, error));
    batch.failure->broken = true;
    batch.failure->letter.source = batch.source;
    batch.failure->letter.epoch = batch.epoch;
    batch.columns.clear();
    batch.length = 0;
  }
}

inline bool broken(const Batch& batch) { return batch.failure && batch.failure->broken; }

// A batch whose operators failed in the runtime itself has no columns any more and is passed over.
inline void run_all(const Operators& operators, Batch& batch, Worker& worker) {
  for (const auto& op : operators) {
    if (broken(batch)) return;
    guarded(batch, op->node(), [&] { op->run(batch, worker); });
  }
}

// Holds the right to run Python code, if a stage needs it and nobody has it. Meanwhile the thread
// has another name: threads that a library starts from there keep it, and are not taken for
// workers.
class PythonTurn {
 public:
  PythonTurn(Worker& worker, bool needed) : worker_(worker), needed_(needed) {
    // Acquire and release pair with each other from holder to holder.
    got_ = !needed || !worker.shared.python_busy.exchange(true, std::memory_order_acquire);
    if (needed_ && got_) name_thread("outside");
  }
  ~PythonTurn() {
    if (!needed_ || !got_) return;
    name_thread(worker_.name.c_str());
    worker_.shared.python_busy.store(false, std::memory_order_release);
    for (Bell* bell : worker_.shared.python_bells) {
      if (bell != worker_.bell) bell->ring();
    }
  }
  explicit operator bool() const { return got_; }

 private:
  Worker& worker_;
  const bool needed_;
  bool got_;
};

// Stateless operators: any number of workers, each on its own batch.
class ParallelStage final : public Stage {
 public:
  ParallelStage(std::string name, const StageLimits& limits, Operators operators)
      : Stage(std::move(name), limits), operators_(std::move(operators)) {}

  int64_t run(Worker& worker, int64_t records) override {
    PythonTurn turn(worker, python);
    if (!turn) return 0;
    int64_t done = 0;
    while (done < records) {
      Slot* s = try_claim(limits_.batches);
      if (!s) break;
      done += s->records + 1;
      stats.records_in.fetch_add(s->records, std::memory_order_relaxed);
      if (!s->batch.control && !s->batch.end && !worker.leaves()) {
        run_all(operators_, s->batch, worker);
      }
      finish(*s, worker);
      if (worker.slice_over()) break;
    }
    return done;
  }

 private:
  const Operators operators_;
};

// One worker at a time, in serial order: a global state machine, keyed Python state, or a sink.
class SerialStage : public Stage {
 public:
  using Stage::Stage;
  uint32_t max_workers() const override { return 1; }

  int64_t run(Worker& worker, int64_t records) override {
    if (!runnable()) return 0;
    PythonTurn turn(worker, needs_python());
    if (!turn) return 0;
    if (!try_hold()) return 0;
    int64_t done = 0;
    while (done < records) {
      // Only the holder of the flag claims, so the next slot cannot be claimed by another
      // meanwhile.
      if (claimed() >= pushed() || !ready(slot(claimed()).batch)) break;
      Slot* s = try_claim(limits_.batches);
      if (!s) break;
      done += s->records + 1;
      stats.records_in.fetch_add(s->records, std::memory_order_relaxed);
      if (!worker.leaves()) process(s->batch, worker);
      finish(*s, worker);
      if (worker.slice_over()) break;
    }
    let_go();
    return done;
  }

 protected:
  virtual void process(Batch& batch, Worker& worker) = 0;
  // Whether the next batch can be processed now; asked in order.
  virtual bool ready(Batch& /*batch*/) { return true; }

  // The one worker that may claim. Acquire and release pair with each other from holder to holder:
  // the state as the last one left it.
  bool try_hold() { return !busy_.exchange(true, std::memory_order_acquire); }
  void let_go() { busy_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> busy_{false};
};

// Keyed or global state held outside the engine (Python): the operator gets whole batches in order,
// and control items.
class OutsideStateStage : public SerialStage {
 public:
  using ControlFunction = void (*)(void* context, Control& control);
  OutsideStateStage(std::string name, const StageLimits& limits, std::unique_ptr<Operator> op,
                    ControlFunction control, void* context)
      : SerialStage(std::move(name), limits),
        control_(control),
        context_(context),
        op_(std::move(op)) {}

  void control_now(Control& control) override { state_control(control); }

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
    if (batch.control) return state_control(*batch.control);
    if (batch.end || broken(batch)) return;
    guarded(batch, op_->node(), [&] { op_->run(batch, worker); });
  }
  // Snapshot, Take or Put.
  virtual void state_control(Control& control) {
    if (control.kind == Control::Kind::Put) return put_all(control);
    control_(context_, control);
  }
  Operator& state_operator() const { return *op_; }

  // What stands in front of the bytes of a bin that goes, if anything ...
  virtual std::string head_of(bool /*snapshot*/, uint64_t /*epoch*/) const { return {}; }
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
      if (bin.node != op_->node()) continue;
      if (adopt(refused, bin, bytes)) mine.push_back({bin.node, bin.bin, std::move(bytes)});
      if (!refused.errors.empty()) return {};
    }
    return mine;
  }
  // Takes the head over that head_of(false, ..) gave here: bins were refused behind theirs.
  void adopt_again(const std::string& head) {
    Control none;
    std::string rest;
    (void)adopt(none, {op_->node(), 0, head}, rest);
  }
  // Bins that go, with their head. That of a snapshot must be somewhere.
  void collect(Control& c, const std::string& head, std::vector<Control::Bin>& bins) {
    if (c.kind == Control::Kind::Snapshot && bins.empty() && !head.empty()) {
      bins.push_back({op_->node(), 0, {}});
    }
    for (auto& bin : bins) c.collect({bin.node, bin.bin, head + bin.bytes});
  }

  // What a layout takes from here; what it brings is missing then.
  std::vector<uint32_t> note_moves(const Control& c) {
    missing_.clear();
    std::vector<uint32_t> going;
    each_move(c, op_->node(), keyless_, 0, uint32_t(c.layout->owners.size()),
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
      const uint32_t at = keyless_ ? singleton_bin(bin.node, after.size()) : bin.bin;
      const uint8_t* data = bytes.data();
      moves_->ship(after[at], bin.node, bin.bin,
                   {c.epoch, MoveKind::Whole, std::move(bytes), data, int64_t(bin.bytes.size())});
    }
  }
  // The state of a bin that a layout brings, if it is here.
  bool arrived(const Control& c, uint32_t bin, Control::Bin& out) {
    MovedBin moved;
    if (!moves_->take(op_->node(), bin, c.epoch, moved)) return false;
    out = {op_->node(), bin,
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
  // Bins are in all together or not at all; the first that is refused says why.
  void put_all(Control& c) {
    const std::string head = head_of(false, c.epoch);
    Control one, undo;
    one.kind = Control::Kind::Put;
    undo.kind = Control::Kind::Take;
    undo.node = op_->node();
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
    take.node = op_->node();
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
};

// The end of a stream. What it gets is delivered; latency is taken here.
class SinkStage final : public SerialStage {
 public:
  // Returns false if the sink failed; `message` says why.
  using Write = bool (*)(void* context, const Batch& batch, std::string& message, int64_t& handle);
  SinkStage(std::string name, const StageLimits& limits, uint32_t node, Write write, void* context)
      : SerialStage(std::move(name), limits), node_(node), write_(write), context_(context) {}

  // What a sink without a write function keeps (if it keeps).
  std::vector<Batch> kept;
  bool keep = false;
  int64_t limit = -1;  // stop the run after so many rows

 protected:
  void process(Batch& batch, Worker& worker) override {
    if (batch.control || batch.end || batch.length == 0) return;
    if (limit >= 0 && delivered_ + batch.length > limit) truncate(batch, limit - delivered_);
    Shared& shared = worker.shared;
    Counts& c = shared.counts[node_];
    Counts::add(c.in, batch.length);
    if (keep) {
      kept.push_back(batch);
    } else if (write_) {
      std::string message;
      int64_t handle = -1;
      if (!write_(context_, batch, message, handle)) {
        Failure failure;
        failure.letter.node = node_;
        failure.letter.message = std::move(message);
        failure.letter.handle = handle;
        failure.letter.row = -1;
        shared.fail(failure);
        return;
      }
    }
    Counts::add(c.out, batch.length);
    delivered_ += batch.length;
    shared.delivered.fetch_add(batch.length, std::memory_order_relaxed);
    const int64_t waited = now_ns() - batch.ingest_ns;
    worker.latency.record(uint64_t(waited > 0 ? waited : 0), uint64_t(batch.length));
    if (limit >= 0 && delivered_ >= limit) shared.end();
  }

 private:
  const uint32_t node_;
  const Write write_;
  void* const context_;
  int64_t delivered_ = 0;
};

}  // namespace plait
