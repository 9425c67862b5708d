// The lane operators of windows: which class a spec's kind and window need.
#pragma once

#include <memory>
#include <stdexcept>

#include "plait/windows/last_n_lane.hpp"
#include "plait/windows/late_lane.hpp"
#include "plait/windows/running_lane.hpp"
#include "plait/windows/session_lane.hpp"
#include "plait/windows/window_lane.hpp"

namespace plait {

// Throws std::invalid_argument with the reason when the spec makes no sense.
inline std::unique_ptr<LaneOperator> make_window_lane(const TimedSpec& spec, unsigned) {
  using K = TimedSpec::Kind;
  using W = TimedSpec::Within;
  const bool grouped = spec.kind == K::Window || spec.kind == K::Top;
  if (grouped && (spec.within == W::Grid || spec.within == W::Given)) {
    return std::make_unique<WindowLane>(spec);
  }
  if (grouped && spec.within == W::Session) return std::make_unique<SessionLane>(spec);
  if (spec.kind == K::Late && (spec.within == W::Grid || spec.within == W::Session)) {
    return std::make_unique<LateLane>(spec);
  }
  if (spec.kind == K::Last || (spec.kind == K::Window && spec.within == W::Rows)) {
    return std::make_unique<LastNLane>(spec);
  }
  if (spec.kind == K::Running) return std::make_unique<RunningLane>(spec);
  throw std::invalid_argument("there is no such window");
}

}  // namespace plait
