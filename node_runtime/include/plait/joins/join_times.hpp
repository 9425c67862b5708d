// The arithmetic of joins with time: until when a record can match, and how often two match.
//
// A record can match as long as the watermark is not above its `last`; numbers beyond the ends of
// time stay at the ends. Pure functions of the spec, but for the last window found, kept because
// most records are of the same one: one thread at a time.
#pragma once

#include <algorithm>
#include <cstdint>

#include "plait/core/dispatch.hpp"
#include "plait/time/timed_spec.hpp"

namespace plait {

// The time at which a record is over.
inline int64_t due_after(int64_t last) { return add_times(last, 1); }
// When a record that can match until `last` is due; kAtOnce is not a time.
inline int64_t order_time(int64_t last) { return std::max(due_after(last), kNoTime + 1); }

class JoinTimes {
 public:
  explicit JoinTimes(const TimedSpec& spec) : spec_(spec) {}

  bool timed() const { return spec_.within != TimedSpec::Within::None || spec_.ttl > 0; }
  bool tumbling() const {
    return spec_.within == TimedSpec::Within::Grid && spec_.size == spec_.every;
  }
  bool sliding() const {
    return spec_.within == TimedSpec::Within::Grid && spec_.size != spec_.every;
  }

  // Whether the record is in any window at all.
  bool somewhere(int64_t time, int64_t last) const {
    return spec_.within != TimedSpec::Within::Grid || time <= last;
  }
  PLAIT_INLINE int64_t last_of(uint32_t side, int64_t time) {
    switch (spec_.within) {
      case TimedSpec::Within::Grid:
        return last_of_grid(time);
      case TimedSpec::Within::Between:
        return side == 0 ? add_times(time, spec_.high) : minus(time, spec_.low);
      default:
        return spec_.ttl > 0 ? add_times(time, spec_.ttl) : kAllTime;
    }
  }

  // A record is late when the watermark is above this. An interval that lies wholly in the record's
  // past (or, of a right one, future) is over at once, but a record whose own time has not passed
  // is never late.
  int64_t late_after(uint32_t side, int64_t time) {
    if (spec_.within != TimedSpec::Within::Between) return last_of(side, time);
    return std::max(time, last_of(side, time));
  }

  // How many pairs two records make that can both still match; `before`: the watermark, which
  // counts in sliding windows only.
  PLAIT_INLINE int64_t pairs(int64_t left, int64_t left_last, int64_t right, int64_t right_last,
                             int64_t before) const {
    switch (spec_.within) {
      case TimedSpec::Within::Grid:
        if (spec_.size == spec_.every) return left_last == right_last;
        return shared_windows(std::min(left, right), std::max({left, right, before}));
      case TimedSpec::Within::Between: {
        const Wide apart = Wide(right) - left;
        return apart >= spec_.low && apart <= spec_.high;
      }
      default:
        return 1;
    }
  }

 private:
  __extension__ typedef __int128 Wide;

  static int64_t clamp(Wide v) {
    return int64_t(std::min(std::max(v, Wide(kNoTime)), Wide(kAllTime)));
  }
  static int64_t minus(int64_t a, int64_t b) { return clamp(Wide(a) - b); }
  // The number of the last window that starts at or before a time.
  Wide step(Wide time) const {
    const Wide from = time - spec_.offset;
    if (from == int64_t(from)) {
      const int64_t t = int64_t(from), n = t / spec_.every;
      return n - (t % spec_.every < 0);
    }
    const Wide n = from / spec_.every;
    return n - (from % spec_.every < 0);
  }
  PLAIT_INLINE int64_t last_of_grid(int64_t time) {
    if (time < from_ || time > to_) {
      find_window(time);
    }
    return last_;
  }

  // How many windows hold all times from `first` to `last`.
  [[gnu::noinline]] int64_t shared_windows(int64_t first, int64_t last) const {
    return int64_t(std::max(step(first) - step(Wide(last) - spec_.size), Wide(0)));
  }
  [[gnu::noinline]] void find_window(int64_t time) {
    const Wide start = step(time) * spec_.every + spec_.offset;
    from_ = clamp(start);
    to_ = clamp(start + spec_.every - 1);
    last_ = clamp(start + spec_.size - 1);
  }

  const TimedSpec& spec_;
  int64_t from_ = 1, to_ = 0, last_ = 0;  // times of one last window
};

}  // namespace plait
