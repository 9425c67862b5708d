// ProcessStage: state machines with timers, and operators with their own loop, outside the engine
// (Python), one worker at a time, in order.
//
// The function gets every unit's rows in turn, with the watermark when each is taken: before it
// what is due then fires, and behind the rows what the watermark and the wall clock behind the unit
// have reached. Units without rows reach it only if a timer is due, or if it asked to be told of
// the end of each source. It says of each row that it makes when it was made, in order: at once and
// the place of its row, or by a timer, its time and its place; times by the wall clock are above
// all event times. What is known of time goes with the bins. It never waits.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plait/stages/python_state_stage.hpp"
#include "plait/time/timed_rows.hpp"
#include "plait/time/unit_time.hpp"

namespace plait {

// What the function is given.
struct ProcessUnit {
  const Batch* rows;
  uint64_t base;              // the place of row i is base + (order ? order[i] : i)
  const uint32_t* order;      // several nodes only
  const int64_t* watermarks;  // when each row is taken; it rises
  int64_t watermark;          // behind the unit; kNoTime: nothing is due
  int64_t behind;             // at its last row
  int64_t now;                // the wall clock of the unit
  int64_t clock;              // what is due by it: as `watermark`
  int64_t ended;              // the source that is at its end behind the unit, told once; else -1
};

// What the function says of a unit.
struct ProcessOutcome {
  Batch out;                         // columns and length only
  std::vector<int64_t> times;        // of each row: kAtOnce, or that of its timer
  std::vector<uint64_t> places;      // of each row; both ascending together
  std::vector<RowFailure> failures;  // ascending; with the policy fail only the first counts
  RowFailure timer;                  // a timer that failed, if `stopped`: it ends the run
  Emitter::Order timer_order{};      // its time and place
  bool stopped = false;
  bool fatal = false;  // failures[0] ends the run, and no row goes on
  // The times of the first timers that are pending, of event time and by the wall clock.
  int64_t next_timer = kAllTime, next_timeout = kAllTime;
};

class ProcessOperator final : public Operator {
 public:
  using Function = void (*)(void* context, const ProcessUnit& unit, ProcessOutcome& outcome);
  // `nodes` and `sub_bits`: see TimedPlan. `ends`: it is told of the end of every source.
  ProcessOperator(uint32_t op, OnError on_error, Function function, void* context,
                  std::vector<Type> types, UnitTime time, bool nodes, int sub_bits, bool ends)
      : Operator(op, on_error),
        time(std::move(time)),
        function_(function),
        context_(context),
        types_(std::move(types)),
        nodes_(nodes),
        sub_bits_(sub_bits),
        ends_(ends) {}

  // A unit as it is when the operator comes to it.
  struct Begun {
    ProcessUnit unit{};
    BufferRef order, watermarks;  // of its rows
    UnitClock time;
    int64_t after = kNoTime, clock = kNoTime;  // how far time is, whatever is delivered of it
  };

  void run(Batch& batch, Worker& worker) override {
    const Begun begun = begin(batch, worker);
    ProcessOutcome o;
    if (batch.length || begun.unit.ended >= 0 || next_timer_ <= begun.after ||
        next_timeout_ <= begun.clock) {
      function_(context_, begun.unit, o);
      next_timer_ = o.next_timer;
      next_timeout_ = o.next_timeout;
    }
    finish(batch, o, begun, worker);
  }
  // Counts the rows, and lets time go on. Units in order.
  Begun begin(Batch& batch, Worker& worker) {
    Counts::add(counts(worker, batch).in, batch.length);
    Begun b;
    b.time = time.watermarks.pass(batch);
    b.after = b.time.end();
    b.watermarks = BufferRef::make(8 * batch.length);
    for (int64_t i = 0; i < batch.length; ++i) {
      b.watermarks.as<int64_t>()[i] = b.time.at(batch.position(i));
    }
    if (nodes_) b.order = order_of(batch, sub_bits_);
    const uint32_t* rows = nodes_ && batch.length ? b.order.as<uint32_t>() : nullptr;
    const bool failed = batch.failure != nullptr;
    const int64_t ended = failed ? -1 : newly_ended(batch);
    const int64_t now = time.watermarks.clock();
    b.clock = b.after == kAllTime ? kAllTime : now;
    // What is due by a fact of the unit comes behind a failure in it, and is not delivered.
    b.unit = {&batch,  time.place(batch),
              rows,    b.watermarks.as<int64_t>(),
              b.after, b.time.at(2 * batch.rows + 1),
              now,     failed ? kNoTime : b.clock,
              ended};
    return b;
  }
  // Puts what the function said in place of the rows. Any worker.
  void finish(Batch& batch, ProcessOutcome& o, const Begun& begun, Worker& worker) {
    settle(batch, o, begun, worker);
  }
  // Lets the rows go: nobody will see them.
  void drop(Batch& batch) {
    batch.length = 0;
    batch.tags = nullptr;
    batch.subs = nullptr;
    clear(batch);
  }

  // Gives an order of what was made of a unit its tag.
  static auto tags(const Batch& unit, const Begun& begun) {
    return [find = TagFinder{unit, begun.unit.order, begun.time},
            last = 2 * unit.rows](Emitter::Order order) {
      order.tag = find(order, find.clock.end(), last);
      return order;
    };
  }

  // Timers came or went by themselves.
  void timers_changed() { next_timer_ = next_timeout_ = kNoTime; }

  UnitTime time;

 private:
  int64_t newly_ended(const Batch& unit) {
    if (!ends_ || unit.flow < Flow::Cut) return -1;
    if (ended_.size() <= unit.source) ended_.resize(unit.source + 1, false);
    if (ended_[unit.source]) return -1;
    ended_[unit.source] = true;
    return unit.source;
  }

  void clear(Batch& batch) {
    batch.columns.clear();
    for (Type type : types_) batch.columns.push_back(empty_column(type));
  }
  void settle(Batch& batch, ProcessOutcome& o, const Begun& begun, Worker& worker) {
    const Batch input = batch;
    const auto tag_of = tags(input, begun);
    std::vector<TimedRow> rows;
    for (size_t i = 0; i < o.times.size(); ++i) {
      rows.push_back({tag_of({o.times[i], o.places[i]}), uint32_t(i)});
    }
    const auto order_at = [&](int64_t i) { return rows[size_t(i)].order; };
    set_tags(batch, int64_t(rows.size()), order_at, nodes_);
    batch.columns = std::move(o.out.columns);
    batch.length = o.out.length;
    if (batch.length == 0) clear(batch);
    Counts& c = counts(worker, batch);
    if (o.fatal)
      return stop(batch, input, o.failures.front(), fatal_kind(o.failures.front()), -1,
                  {kAtOnce, 0, 1});
    Counts::add(c.absorbed, settle_failures(batch, input, o, begun, worker));
    Counts::add(c.made, batch.length);
    Counts::add(c.out, batch.length);
  }

  // How many rows did not fail.
  int64_t settle_failures(Batch& batch, const Batch& input, ProcessOutcome& o, const Begun& begun,
                          Worker& worker) {
    const bool ends = on_error() == OnError::Fail && !o.failures.empty();
    if (ends) o.failures.resize(1);
    for (auto& failure : o.failures) note(batch, input, failure, worker);
    if (o.stopped) {
      const Emitter::Order at = tags(input, begun)(o.timer_order);
      stop(batch, input, o.timer, FailureKind::Timer, input.base + (at.tag >> 1), at);
    } else if (nodes_ && batch.failure) {
      batch.failure = placed(*batch.failure, input, begun.unit.base, sub_bits_);
    }
    return ends ? o.failures.front().row : input.length - int64_t(o.failures.size());
  }

  // A failure that is no record's.
  void stop(Batch& batch, const Batch& input, RowFailure& failure, FailureKind kind, int64_t row,
            Emitter::Order order) {
    Letter letter;
    letter.op = number();
    letter.source = batch.source;
    letter.epoch = batch.epoch;
    letter.row = row;
    letter.half = order.tag & 1;
    letter.kind = kind;
    letter.time = order.time;
    letter.sub = order.place;
    letter.message = std::move(failure.message);
    letter.handle = failure.handle;
    for (const Column& column : input.columns) letter.record.columns.push_back(column.slice(0, 0));
    batch.failure = std::make_shared<Failure>(Failure{std::move(letter), false});
  }

  const Function function_;
  void* const context_;
  const std::vector<Type> types_;  // of the output
  const bool nodes_;
  const int sub_bits_;
  const bool ends_;
  std::vector<bool> ended_;  // by source
  int64_t next_timer_ = kAllTime, next_timeout_ = kAllTime;
};

class ProcessStage : public PythonStateStage {
 public:
  ProcessStage(std::string name, const StageLimits& limits, std::unique_ptr<ProcessOperator> op,
               ControlFunction control, void* context)
      : PythonStateStage(std::move(name), limits, std::move(op), control, context) {}

 protected:
  // What is known of time stands in front of each bin, and timers are in no bin's turn.
  bool saves_late() const override { return false; }
  void state_control(Control& c) override {
    op().timers_changed();
    if (c.kind == Control::Kind::Put) return PythonStateStage::state_control(c);
    Control inner;
    inner.kind = c.kind;
    inner.op = c.op;
    inner.bins = c.bins;
    PythonStateStage::state_control(inner);
    for (auto& why : inner.errors) c.refuse(std::move(why));
    collect(c, head_of(), inner.collected);
  }
  // What is known of time, in front of the bytes of each bin that goes.
  std::string head_of() const override {
    const UnitTime& time = op().time;
    std::string head(time.head_size(), '\0');
    time.write_head(reinterpret_cast<uint8_t*>(head.data()));
    return head;
  }
  bool adopt(Control& c, const Control::Bin& bin, std::string& bytes) override {
    const auto* data = reinterpret_cast<const uint8_t*>(bin.bytes.data());
    if (!op().time.adopt(data, bin.bytes.size())) {
      c.refuse("bin " + std::to_string(bin.bin) + ": damaged: its times");
      return false;
    }
    bytes = bin.bytes.substr(op().time.head_size());
    return !bytes.empty();
  }

 private:
  ProcessOperator& op() const { return static_cast<ProcessOperator&>(state_operator()); }
};

}  // namespace plait
