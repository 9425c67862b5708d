// LaneWork: what a stage with its state in the pool asks the lanes about a batch, and how it puts
// their answers together.
//
// Rows of different lanes are worked on at the same time, so where one of them ends the run the
// others may have gone on: what they made behind it is let go, as if it had never been. `ask` is
// called by one worker at a time, batch by batch in order; `settle` by any, on its own batch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plait/pool/lane_split.hpp"
#include "plait/pool/pool_lanes.hpp"
#include "plait/stages/call_operator.hpp"
#include "plait/stages/process_stage.hpp"

namespace plait {

// What is known of a batch while the lanes work on it.
struct Asked {
  LaneRowLists lists;
  std::vector<std::shared_ptr<LaneMessage>> messages;  // by lane; null: it is not asked
  std::vector<std::vector<uint32_t>> bins;             // by lane: those that its rows may change
  ProcessOperator::Begun begun;                        // of a unit
  std::string head;                                    // of a control item: in front of its bins

  uint32_t count() const {
    return uint32_t(std::count_if(messages.begin(), messages.end(), [](auto& m) { return !!m; }));
  }
};

class LaneWork {
 public:
  LaneWork(std::shared_ptr<PoolLanes> lanes, std::shared_ptr<const KeyedPlan> plan)
      : lanes_(std::move(lanes)), plan_(std::move(plan)) {}
  virtual ~LaneWork() = default;
  // Counts the rows, and says what to ask. False: nothing, and the batch is as it has to be.
  virtual bool ask(Batch& batch, Worker& worker, Asked& asked) = 0;
  virtual void settle(Batch& batch, std::vector<LaneAnswer>& answers, Asked& asked,
                      Worker& worker) = 0;
  virtual void drop(Batch& batch) = 0;

  uint32_t lane_of(uint32_t bin) const {
    return plan_->key_types.empty() ? 0 : lane_of_bin(bin, lanes_->lanes(), plan_->bin_bits);
  }

 protected:
  void split(const Batch& batch, Asked& asked) const {
    asked.messages.assign(lanes_->lanes(), nullptr);
    asked.bins.assign(lanes_->lanes(), {});
    if (batch.length == 0) {
      asked.lists.rows.resize(lanes_->lanes());
      return;
    }
    asked.lists = rows_by_lane(*plan_, batch, lanes_->lanes(), [&](uint32_t lane, uint32_t bin) {
      asked.bins[lane].push_back(bin);
    });
  }
  std::shared_ptr<LaneMessage> message(const Batch& batch, const Asked& asked, uint32_t lane,
                                       LaneDo what) const {
    auto m = std::make_shared<LaneMessage>();
    m->what = what;
    m->length = asked.lists.count(lane, batch.length);
    m->columns = columns_of_lane(batch, asked.lists, lane);
    return m;
  }
  // No lane has answered: nothing comes back from there any more.
  static const LaneAnswer* fatal_of(const std::vector<LaneAnswer>& answers) {
    for (const auto& a : answers) {
      if (a.outcome.fatal) return &a;
    }
    return nullptr;
  }
  // The lane that stopped first, and where; `at(lane)` is where it did. -1: none has.
  template <class At>
  static std::pair<Emitter::Order, int> first_stop(const std::vector<LaneAnswer>& answers,
                                                   At&& at) {
    std::pair<Emitter::Order, int> first{{}, -1};
    for (uint32_t lane = 0; lane < answers.size(); ++lane) {
      if (!answers[lane].told.stopped) continue;
      const Emitter::Order here = at(lane);
      if (first.second < 0 || here < first.first) first = {here, int(lane)};
    }
    return first;
  }
  // The rows of all lanes that failed, ascending.
  static std::vector<RowFailure> failures_of(std::vector<LaneAnswer>& answers, const Asked& asked) {
    std::vector<RowFailure> all;
    for (uint32_t lane = 0; lane < answers.size(); ++lane) {
      LaneAnswer& a = answers[lane];
      const int64_t dead = a.died.empty() ? 0 : asked.messages[lane]->length;
      for (int64_t i = 0; i < dead; ++i) {
        all.push_back({asked.lists.row(lane, uint32_t(i)), a.died});
      }
      for (auto& failure : a.outcome.failures) {
        failure.row = asked.lists.row(lane, failure.row);
        all.push_back(std::move(failure));
      }
    }
    std::sort(all.begin(), all.end(), [](auto& a, auto& b) { return a.row < b.row; });
    return all;
  }
  static std::vector<const std::vector<Column>*> made_by(const std::vector<LaneAnswer>& answers) {
    std::vector<const std::vector<Column>*> made;
    for (const auto& a : answers) made.push_back(&a.outcome.out.columns);
    return made;
  }

  const std::shared_ptr<PoolLanes> lanes_;
  const std::shared_ptr<const KeyedPlan> plan_;
};

// Folds and state machines: at most one row for each row.
class RowsWork final : public LaneWork {
 public:
  RowsWork(CallOperator& op, std::shared_ptr<PoolLanes> lanes,
           std::shared_ptr<const KeyedPlan> plan)
      : LaneWork(std::move(lanes), std::move(plan)), op_(op) {}

  bool ask(Batch& batch, Worker& worker, Asked& asked) override {
    if (!op_.begin(batch, worker)) return false;
    split(batch, asked);
    for (uint32_t lane = 0; lane < lanes_->lanes(); ++lane) {
      if (asked.lists.count(lane, batch.length)) {
        asked.messages[lane] = message(batch, asked, lane, LaneDo::Rows);
      }
    }
    return true;
  }
  void settle(Batch& batch, std::vector<LaneAnswer>& answers, Asked& asked,
              Worker& worker) override {
    if (const LaneAnswer* fatal = fatal_of(answers)) {
      CallOutcome o = fatal->outcome;
      return op_.finish(batch, o, worker);
    }
    CallOutcome o;
    o.failures = failures_of(answers, asked);
    int64_t end = batch.length;
    if (op_.on_error() == OnError::Fail && !o.failures.empty()) end = o.failures.front().row;
    const auto [at, by] = first_stop(answers, [&](uint32_t lane) -> Emitter::Order {
      const Emitter::Order there = answers[lane].told.stopped_at;
      if (there.time != kAtOnce) return there;
      return {kAtOnce, asked.lists.row(lane, uint32_t(there.place))};
    });
    if (by >= 0 && (end == batch.length || at < Emitter::Order{kAtOnce, uint64_t(end)})) {
      CallOutcome fatal = fatal_outcome({});
      fatal.failures.front() = std::move(answers[size_t(by)].stop);
      return op_.finish(batch, fatal, worker);
    }
    const auto picks = picked(batch, answers, asked, end, o.origin);
    o.out.length = int64_t(picks.size());
    o.one_to_one = o.out.length == batch.length;
    o.out.columns = columns(batch, answers, asked, picks, o.one_to_one);
    if (o.out.length == 0) {
      op_.empty_out(o.out);
    }
    op_.finish(batch, o, worker);
  }
  void drop(Batch& batch) override { op_.drop(batch); }

 private:
  // What was made of the rows before `end`, in row order, and the row of each.
  static std::vector<Picked> picked(const Batch& batch, const std::vector<LaneAnswer>& answers,
                                    const Asked& asked, int64_t end,
                                    std::vector<uint32_t>& origin) {
    constexpr uint32_t kNone = ~0u;
    std::vector<Picked> by_row(size_t(batch.length), {kNone, 0});
    for (uint32_t lane = 0; lane < answers.size(); ++lane) {
      const CallOutcome& o = answers[lane].outcome;
      for (uint32_t i = 0; i < o.out.length; ++i) {
        by_row[asked.lists.row(lane, o.one_to_one ? i : o.origin[i])] = {lane, i};
      }
    }
    std::vector<Picked> picks;
    picks.reserve(by_row.size());
    for (uint32_t row = 0; row < end; ++row) {
      if (by_row[row].lane == kNone) continue;
      picks.push_back(by_row[row]);
      origin.push_back(row);
    }
    return picks;
  }
  // `all`: every row made one; then a column that all lanes passed on is the one that came.
  static std::vector<Column> columns(const Batch& batch, const std::vector<LaneAnswer>& answers,
                                     const Asked& asked, const std::vector<Picked>& picks,
                                     bool all) {
    const auto made = made_by(answers);
    if (!all || picks.empty()) return woven(made, picks);
    std::vector<Column> out;
    std::vector<const Column*> from(made.size());
    for (size_t k = 0; k < made[picks.front().lane]->size(); ++k) {
      int passed = -2;
      for (size_t lane = 0; lane < made.size(); ++lane) {
        from[lane] = k < made[lane]->size() ? &(*made[lane])[k] : nullptr;
        if (!from[lane] || !asked.messages[lane]) continue;
        const int which = which_of(*from[lane], asked.messages[lane]->columns);
        passed = passed == -2 || passed == which ? which : -1;
      }
      const Type type = from[picks.front().lane]->type;
      out.push_back(passed >= 0 ? batch.columns[size_t(passed)] : woven(from, picks, type));
    }
    return out;
  }
  static int which_of(const Column& c, const std::vector<Column>& given) {
    for (size_t i = 0; i < given.size(); ++i) {
      if (same_column(c, given[i])) return int(i);
    }
    return -1;
  }

  CallOperator& op_;
};

// Processes with timers.
class UnitsWork final : public LaneWork {
 public:
  UnitsWork(ProcessOperator& op, std::shared_ptr<PoolLanes> lanes,
            std::shared_ptr<const KeyedPlan> plan)
      : LaneWork(std::move(lanes), std::move(plan)), op_(op) {}

  bool ask(Batch& batch, Worker& worker, Asked& asked) override {
    asked.begun = op_.begin(batch, worker);
    const ProcessUnit& unit = asked.begun.unit;
    split(batch, asked);
    for (uint32_t lane = 0; lane < lanes_->lanes(); ++lane) {
      const int64_t rows = asked.lists.count(lane, batch.length);
      if (!rows && !lanes_->due(lane, unit.watermark, unit.clock)) continue;
      auto m = message(batch, asked, lane, LaneDo::Unit);
      m->unit = {unit.base, unit.watermark, unit.behind, unit.now, unit.clock, true};
      for (int64_t i = 0; i < rows; ++i) {
        const uint32_t row = asked.lists.row(lane, uint32_t(i));
        m->order.push_back(unit.order ? unit.order[row] : row);
        m->watermarks.push_back(unit.watermarks[row]);
      }
      asked.messages[lane] = std::move(m);
    }
    if (asked.count()) return true;
    ProcessOutcome nothing;
    op_.finish(batch, nothing, asked.begun, worker);
    return false;
  }
  void settle(Batch& batch, std::vector<LaneAnswer>& answers, Asked& asked,
              Worker& worker) override {
    ProcessOutcome o;
    if (const LaneAnswer* fatal = fatal_of(answers)) {
      o.fatal = true;
      o.failures.push_back(fatal->outcome.failures.front());
      return op_.finish(batch, o, asked.begun, worker);
    }
    o.failures = failures_of(answers, asked);
    const auto tag_of = ProcessOperator::tags(batch, asked.begun);
    const auto [end, by] = ending(answers, asked, o, tag_of);
    if (o.fatal) return op_.finish(batch, o, asked.begun, worker);
    std::vector<Made> made;
    for (uint32_t lane = 0; lane < answers.size(); ++lane) {
      const LaneTold& told = answers[lane].told;
      for (uint32_t i = 0; i < told.times.size(); ++i) {
        const Emitter::Order order = tag_of({told.times[i], told.places[i]});
        if (by < 0 || lane == uint32_t(by) || order < end) made.push_back({order, {lane, i}});
      }
    }
    // Rows of equal order are of one lane, and stay as they were made.
    std::stable_sort(made.begin(), made.end(), [](auto& a, auto& b) { return a.order < b.order; });
    std::vector<Picked> picks;
    for (const Made& one : made) {
      picks.push_back(one.at);
      o.times.push_back(one.order.time);
      o.places.push_back(one.order.place);
    }
    o.out.columns = woven(made_by(answers), picks);
    o.out.length = int64_t(picks.size());
    op_.finish(batch, o, asked.begun, worker);
  }
  void drop(Batch& batch) override { op_.drop(batch); }

 private:
  struct Made {
    Emitter::Order order;
    Picked at;
  };
  // Where the run ends, and the lane that ends it; -1: it does not.
  template <class TagOf>
  std::pair<Emitter::Order, int> ending(std::vector<LaneAnswer>& answers, const Asked& asked,
                                        ProcessOutcome& o, TagOf& tag_of) const {
    const ProcessUnit& unit = asked.begun.unit;
    const auto stop =
        first_stop(answers, [&](uint32_t lane) { return tag_of(answers[lane].told.stopped_at); });
    const auto order_of = [&](uint32_t row) {
      return tag_of({kAtOnce, unit.base + (unit.order ? unit.order[row] : row)});
    };
    if (op_.on_error() == OnError::Fail && !o.failures.empty()) {
      const Emitter::Order at = order_of(o.failures.front().row);
      if (stop.second < 0 || at < stop.first) return {at, int(answers.size())};
    }
    if (stop.second < 0) return stop;
    LaneAnswer& by = answers[size_t(stop.second)];
    if (by.told.fatal) {
      o.fatal = true;
      o.failures = {std::move(by.stop)};
    } else {
      // Lanes that went on met records that come behind the timer.
      std::erase_if(o.failures, [&](const RowFailure& f) { return stop.first < order_of(f.row); });
      o.stopped = true;
      o.timer = std::move(by.stop);
      o.timer_order = stop.first;
    }
    return stop;
  }

  ProcessOperator& op_;
};

}  // namespace plait
