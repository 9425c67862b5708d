// The lanes of joins and spans, by what the spec says.
//
// A pure function: any thread.
#pragma once

#include <memory>
#include <stdexcept>

#include "plait/joins/as_of_lane.hpp"
#include "plait/joins/join_lane.hpp"
#include "plait/joins/late_join_lane.hpp"
#include "plait/joins/span_lane.hpp"

namespace plait {

namespace timed_joins_detail {
inline void require(bool holds, const char* reason) {
  if (!holds) throw std::invalid_argument(reason);
}

inline void check(const TimedSpec& s) {
  using Within = TimedSpec::Within;
  require(s.bin_bits <= 24 && s.lane_bits <= s.bin_bits, "there must be at least one bin a lane");
  require(s.side >= 0, "a join needs the column that says which side a row is of");
  if (s.kind == TimedSpec::Kind::Span) {
    require(s.span_start >= 0 && s.span_end >= 0, "a span needs a start and an end");
    require(s.right.time >= 0, "a span needs the time of its right records");
    return;
  }
  const bool timed = s.within != Within::None || s.ttl > 0;
  require(!timed || (s.left.time >= 0 && s.right.time >= 0), "this join needs times on both sides");
  require(timed || s.how != TimedSpec::How::Late, "without time no record is late");
  require(s.within != Within::Grid || (s.every > 0 && s.size >= s.every),
          "windows must be at least as long as they are apart");
  const bool known = s.within == Within::None || s.within == Within::Grid ||
                     s.within == Within::Between || s.within == Within::AsOf;
  require(known, "no join is within that");
}
}  // namespace timed_joins_detail

// Throws std::invalid_argument with the reason when the spec makes no sense.
inline std::unique_ptr<LaneOperator> make_join_lane(const TimedSpec& spec, unsigned lane) {
  timed_joins_detail::check(spec);
  if (spec.how == TimedSpec::How::Late) return std::make_unique<LateJoinLane>(spec);
  if (spec.kind == TimedSpec::Kind::Span) return std::make_unique<SpanLane>(spec, lane);
  if (spec.within == TimedSpec::Within::AsOf) return std::make_unique<AsOfLane>(spec, lane);
  return std::make_unique<JoinLane>(spec, lane);
}

}  // namespace plait
