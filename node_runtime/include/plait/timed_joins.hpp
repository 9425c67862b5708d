// The lanes of joins and spans, by what the spec says.
//
// A pure function: any thread.
#pragma once

#include <memory>
#include <stdexcept>

#include "plait/join_lane.hpp"

namespace plait {

// Throws std::invalid_argument with the reason when the spec makes no sense.
inline std::unique_ptr<LaneOperator> make_join_lane(const TimedSpec& spec, unsigned lane) {
  return std::make_unique<JoinLane>(spec, lane);
}

}  // namespace plait
