// LateJoinLane: passes on the left rows that a join of its kind leaves out as late.
//
// A row is late if nothing could match it any more when it came (join_times.hpp); in an as-of join
// if the watermark was above its time. All calls belong to the holder of the lane; never waits.
#pragma once

#include <cstdint>

#include "plait/joins/join_times.hpp"
#include "plait/time/stateless_lane.hpp"

namespace plait {

class LateJoinLane : public StatelessLane {
 public:
  explicit LateJoinLane(const TimedSpec& spec) : spec_(spec), times_(spec_) {}

  void process(const LaneRows& rows, Emitter& out) override {
    const int64_t* sides = rows.batch.columns[size_t(spec_.side)].i64();
    const int64_t* clock = rows.batch.columns[size_t(spec_.left.time)].i64();
    for (uint32_t i = 0; i < rows.count; ++i) {
      const uint32_t row = rows.row(i);
      if (sides[row] != 0 || late_after(clock[row]) >= rows.at(i)) {
        ++out.left_out;
        continue;
      }
      out.at_once(rows.place(i));
      size_t c = 0;
      for (int column : spec_.left.columns) {
        out.columns[c++].copy(rows.batch.columns[size_t(column)], row);
      }
    }
  }

 private:
  int64_t late_after(int64_t time) {
    return spec_.within == TimedSpec::Within::AsOf ? time : times_.late_after(0, time);
  }

  const TimedSpec spec_;
  JoinTimes times_;
};

}  // namespace plait
