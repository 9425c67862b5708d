// EventTimeOperator: names the event time of the rows that pass. What is behind it goes by the
// reach made of them here, and no longer by that of the sources; the rows stay as they are.
//
// It keeps no state: what the time before the unit makes of the reach is the business of the lanes
// behind it (Watermarks), and of where the parts of a unit meet. Any worker, on its own batch.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plait/stages/row_operators.hpp"
#include "plait/time/window_grid.hpp"

namespace plait {

class EventTimeOperator final : public Operator {
 public:
  // The time is a program, or (null) the input column `from`. `origin`: as units name it; `read`:
  // whether somebody goes by it.
  EventTimeOperator(uint32_t op, OnError on_error, ProjectOperator::Item time, uint32_t origin,
                    bool read)
      : Operator(op, on_error), time_(std::move(time)), origin_(origin), read_(read) {}

  void run(Batch& batch, Worker& worker) override {
    Counts& c = counts(worker, batch);
    Counts::add(c.in, batch.length);
    batch.reach.clear();
    Column times;
    if (batch.length) times = times_of(batch, worker);
    if (read_) note_reach(batch, times);
    Counts::add(c.out, batch.length);
  }

 private:
  // Of the rows that pass; the others go.
  Column times_of(Batch& batch, Worker& worker) {
    Column times;
    worker.errors.rows.clear();
    if (time_.program) {
      plait::run(*time_.program, batch, worker.workspace, times, worker.errors);
    } else {
      times = batch.columns[time_.from];
    }
    if (!worker.errors.rows.empty() || any_wrong(times)) {
      describe(worker.errors, worker.failures);
      times = take_out_wrong(batch, std::move(times), worker);
    }
    return times;
  }
  void note_reach(Batch& batch, const Column& times) const {
    if (batch.failure && batch.failure->letter.row >= 0) {
      batch.reach.push_back({origin_, ended_reach_in(batch, times)});
    } else if (batch.length) {
      batch.reach.push_back({origin_, reach_in(batch, times)});
    }
  }

  // Whether a time is null or too far off; also of what lies under a null.
  static bool any_wrong(const Column& times) {
    bool wrong = times.validity != nullptr;
    for (int64_t i = 0; i < times.length; ++i)
      wrong |= times.i64()[i] != clamp_time(times.i64()[i]);
    return wrong;
  }
  // The times of the rows that are left.
  Column take_out_wrong(Batch& batch, Column times, Worker& worker) {
    std::vector<RowFailure> failures;
    size_t next = 0;
    auto& known = worker.failures;  // the program's, ascending
    for (int64_t i = 0; i < batch.length; ++i) {
      const int64_t time = times.i64()[i];
      if (next < known.size() && known[next].row == uint32_t(i)) {
        failures.push_back(std::move(known[next++]));
      } else if (!times.valid(i)) {
        failures.push_back({uint32_t(i), "the event time is null"});
      } else if (time != clamp_time(time)) {
        failures.push_back({uint32_t(i), "the event time " + std::to_string(time) +
                                             " us is not within 146,000 years of 1970"});
      }
    }
    known.clear();
    const Batch input = batch;
    batch.columns.push_back(std::move(times));
    settle(batch, input, failures, worker);
    Column left = std::move(batch.columns.back());
    batch.columns.pop_back();
    return left;
  }

  // Rows are by their numbers in the unit, whatever became of those between them.
  static ReachRef reach_in(Batch& batch, const Column& times) {
    batch.spread_tags();
    if (!batch.tags && !batch.halves && times.data_owner) {
      return reach_of(times.i64(), batch.length, times.data_owner, batch.first_row - batch.base);
    }
    ReachWriter out(batch.position(batch.length - 1) >> 1);
    write(out, batch, times, kNotEnded);
    return out.finish();
  }
  // The pieces of a record that ended the stream move nothing: which of them come before the failed
  // one, other nodes do not know of theirs.
  static ReachRef ended_reach_in(Batch& batch, const Column& times) {
    const Letter& letter = batch.failure->letter;
    const int64_t ended = 2 * (letter.row - batch.base) + letter.half;
    batch.spread_tags();
    ReachWriter out(ended >> 1);
    write(out, batch, times, ended);
    auto reach = out.finish();
    reach->ended = ended;
    return reach;
  }
  // The times of the rows in front of a position.
  static void write(ReachWriter& out, const Batch& batch, const Column& times, int64_t ended) {
    for (int64_t i = 0; i < batch.length; ++i) {
      const int64_t position = batch.position(i);
      if (position >= ended) break;
      if (position & 1) {
        out.make(position >> 1, times.i64()[i]);
      } else {
        out.give(position >> 1, times.i64()[i]);
      }
    }
  }

  const ProjectOperator::Item time_;
  const uint32_t origin_;
  const bool read_;
};

}  // namespace plait
