// The lane operators of windows: which class a spec's kind and window need.
#pragma once

#include <memory>
#include <stdexcept>

#include "plait/window_lane.hpp"

namespace plait {

// Throws std::invalid_argument with the reason when the spec makes no sense.
inline std::unique_ptr<LaneOperator> make_window_lane(const TimedSpec& spec, unsigned) {
  using W = TimedSpec::Within;
  switch (spec.kind) {
    case TimedSpec::Kind::Window:
    case TimedSpec::Kind::Top:
      if (spec.within == W::Grid || spec.within == W::Given) {
        return std::make_unique<WindowLane>(spec);
      }
      break;
    default:
      break;
  }
  throw std::invalid_argument("there is no such window");
}

}  // namespace plait
