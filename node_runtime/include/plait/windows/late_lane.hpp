// LateLane: passes on the rows that windows of its kind leave out as late.
//
// A row is late if the last window it is in had ended, lateness included, before it came. No state.
// All calls belong to the holder of the lane; never waits.
#pragma once

#include <cstdint>
#include <stdexcept>

#include "plait/time/stateless_lane.hpp"
#include "plait/time/window_grid.hpp"

namespace plait {

class LateLane : public StatelessLane {
 public:
  explicit LateLane(const TimedSpec& spec)
      : time_(spec.time),
        session_(spec.within == TimedSpec::Within::Session),
        gap_(spec.gap),
        lateness_(spec.lateness),
        grid_(session_ ? WindowGrid() : WindowGrid(spec.size, spec.every, spec.offset)) {
    const bool good = time_ >= 0 && lateness_ >= 0 && lateness_ <= kMostLength && gap_ >= 0 &&
                      gap_ <= kMostLength;
    if (!good) throw std::invalid_argument("late records need an event time");
  }

  void process(const LaneRows& rows, Emitter& out) override {
    const Column& time = rows.batch.columns[size_t(time_)];
    for (uint32_t i = 0; i < rows.count; ++i) {
      const uint32_t row = rows.row(i);
      if (!time.valid(row) || !late(time.i64()[row], rows.at(i))) {
        ++out.left_out;
        continue;
      }
      out.at_once(rows.place(i));
      for (size_t c = 0; c < rows.batch.columns.size(); ++c) {
        out.columns[c].copy(rows.batch.columns[c], row);
      }
    }
  }

 private:
  bool late(int64_t time, int64_t watermark) const {
    const int64_t t = clamp_time(time);
    return (session_ ? t + gap_ : grid_.last_end(t)) + lateness_ <= watermark;
  }

  const int time_;
  const bool session_;
  const int64_t gap_, lateness_;
  const WindowGrid grid_;
};

}  // namespace plait
