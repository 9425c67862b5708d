// UnitsWork: the work of lanes for processes with timers, which make any number of rows.
//
// A lane without rows is asked only if one of its timers is due. What the lanes made is put in the
// order of the records and timers it was made at; where a record or a timer ends the run, what
// other lanes made after it is let go. Threads as in LaneWork.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "plait/pool/lane_work.hpp"

namespace plait {

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
