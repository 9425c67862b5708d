// UnitClock: the watermark of an operator at every row of a unit, and behind it.
//
// In a unit only the time of its own source moves: the watermark at a row is the reach there minus
// `out_of_order`, at most what the other sources allow, and never below what it was before. What
// falls due at a time t does so at the mark of the first row at which the watermark has reached t,
// or behind all rows, by a fact of the unit (its source is idle or at its end). Rows are by their
// position: twice the row of the unit, plus 1 for what is made of the record and 0 for what fell
// due before it. One thread at a time: the holder of the lane.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "plait/columns/batch.hpp"
#include "plait/core/dispatch.hpp"
#include "plait/time/timed_spec.hpp"

namespace plait {

class UnitClock {
 public:
  UnitClock() = default;
  // Time stands still at `before` until the end of the unit.
  UnitClock(int64_t before, int64_t rows) : rows_(rows), before_(before), end_(before) {}
  // It goes on with `reach`, the times of the unit's first rows: `others` is the least watermark of
  // the other sources, `since` the time of this one before the unit, which counts from the first
  // row on (before, it does not if the source was idle). The unit is alive as long as the clock,
  // and so is `owner`.
  UnitClock(int64_t before, int64_t rows, const int64_t* reach, int64_t reach_rows,
            int64_t out_of_order, int64_t since, int64_t others, BufferRef owner = {})
      : rows_(rows),
        before_(before),
        end_(before),
        reach_(reach),
        reach_rows_(reach_rows),
        out_of_order_(out_of_order),
        most_(std::max(before, others)),
        least_(std::clamp(add_times(since, -out_of_order), before, most_)),
        owner_(std::move(owner)) {
    if (reach_rows_) end_ = at(2 * rows_ + 1);
  }

  int64_t before() const { return before_; }
  // Behind the unit; where the unit has a failure, when the failed record was met.
  int64_t end() const { return end_; }
  void end_at(int64_t watermark) { end_ = std::max(before_, watermark); }

  // When a row at this position is taken.
  PLAIT_INLINE int64_t at(int64_t position) const {
    const int64_t row = std::min((position - 1) >> 1, reach_rows_ - 1);
    return row < 0 ? before_ : std::clamp(add_times(reach_[row], -out_of_order_), least_, most_);
  }
  // The row at whose mark the watermark reaches t; the number of rows if none of theirs does. For t
  // above `before` and not above `end`.
  int64_t first(int64_t t) const {
    if (t > most_ || t == kAllTime || reach_rows_ == 0) return rows_;
    if (t <= least_) return 0;
    const int64_t time = add_times(t, out_of_order_);
    int64_t low = 0, high = reach_rows_ - 1;  // the row is not before low, and not behind high
    if (reach_[low] >= time) return low;
    if (reach_[high] < time) return rows_;
    // Times mostly rise evenly: it is near where it would be then.
    const double from = double(reach_[low]), rise = double(reach_[high]) - from;
    const int64_t guess =
        rise > 0 ? int64_t(double(high) * ((double(time) - from) / rise)) : high / 2;
    if (reach_[guess] < time) {
      low = guess;
      for (int64_t step = 1; low + step < high; step *= 2) {
        if (reach_[low + step] >= time) {
          high = low + step;
          break;
        }
        low += step;
      }
    } else {
      high = guess;
      for (int64_t step = 1; low < high - step; step *= 2) {
        if (reach_[high - step] < time) {
          low = high - step;
          break;
        }
        high -= step;
      }
    }
    return std::lower_bound(reach_ + low + 1, reach_ + high, time) - reach_;
  }
  // The position of what falls due at t.
  int64_t due_position(int64_t t) const { return 2 * first(t); }
  int64_t rows() const { return rows_; }

 private:
  int64_t rows_ = 0;
  int64_t before_ = kNoTime, end_ = kNoTime;
  const int64_t* reach_ = nullptr;
  int64_t reach_rows_ = 0, out_of_order_ = 0;
  int64_t most_ = kNoTime, least_ = kNoTime;  // at the rows
  BufferRef owner_;                           // of the reach, if that is not the unit's own
};

}  // namespace plait
