// ComputedTimes: the event times of a source's rows where an expression names them, for the order
// of several sources.
//
// A row without a usable time (null, too far off, or it cannot be computed) has kNoTime, as a row
// that could not be read: it does not move the time of its source. The operator behind the source
// that names the event time computes it again, and settles what becomes of such a row. One thread
// at a time.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "plait/columns/reach.hpp"
#include "plait/kernels/run.hpp"
#include "plait/sources/origins.hpp"
#include "plait/stages/row_operators.hpp"
#include "plait/time/window_grid.hpp"

namespace plait {

class ComputedTimes final : public Origin {
 public:
  // `rows`: where slices come from.
  ComputedTimes(ProjectOperator::Item time, Origin& rows) : time_(std::move(time)), rows_(rows) {}

  // Of all rows of a batch. They stay until the next call, here as below.
  const int64_t* of(const Batch& batch) const {
    errors_.rows.clear();
    Column column;
    if (time_.program) {
      plait::run(*time_.program, batch, workspace_, column, errors_);
    } else {
      column = batch.columns[time_.from];
    }
    times_.resize(size_t(batch.length));
    for (int64_t i = 0; i < batch.length; ++i) {
      const int64_t time = column.i64()[i];
      times_[size_t(i)] = column.valid(i) && time == clamp_time(time) ? time : kNoTime;
    }
    for (const auto& error : errors_.rows) times_[size_t(error.row)] = kNoTime;
    return times_.data();
  }
  const int64_t* times(int /*column*/, int64_t first, int64_t& rows) const override {
    Polled polled;
    rows_.slice(first, rows, polled);
    return of(polled.batch);
  }
  void poll(int64_t, Polled&) override {}

 private:
  const ProjectOperator::Item time_;
  Origin& rows_;
  mutable Workspace workspace_;
  mutable ErrorRows errors_;
  mutable std::vector<int64_t> times_;
};

}  // namespace plait
