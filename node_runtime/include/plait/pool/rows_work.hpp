// RowsWork: the work of lanes for folds and state machines, which make at most one row of each row.
//
// What the lanes made is put in the order of the rows. Where a row ends the run, what other lanes
// made of rows after it is let go. Threads as in LaneWork.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "plait/pool/lane_work.hpp"

namespace plait {

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

}  // namespace plait
