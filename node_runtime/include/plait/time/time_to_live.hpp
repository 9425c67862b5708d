// TimeToLive: when the state of a key is forgotten, and when to look for such keys.
//
// State lives while time (the watermark, or that of a record) is not above its last event time by
// more than the ttl. Looking is worth it when the watermark has gone on by half a ttl: so what is
// there is at most half as much again. One thread at a time: the holder of the state.
#pragma once

#include <cstdint>

#include "plait/columns/batch.hpp"
#include "plait/time/timed_spec.hpp"
#include "plait/time/window_grid.hpp"

namespace plait {

class TimeToLive {
 public:
  // 0: state lives for ever.
  explicit TimeToLive(int64_t ttl) : ttl_(ttl) {}

  bool good() const { return ttl_ > 0 && ttl_ <= kMostLength; }
  bool over(int64_t last, int64_t now) const { return ttl_ > 0 && last + ttl_ < now; }
  // Whether to look now; then not for a while.
  bool sweeps(int64_t watermark) {
    if (ttl_ == 0 || watermark == kNoTime || watermark == kAllTime) return false;
    const int64_t now = clamp_time(watermark);
    if (swept_ != kNoTime && now - swept_ < ttl_ / 2) return false;
    swept_ = now;
    return true;
  }

 private:
  const int64_t ttl_;
  int64_t swept_ = kNoTime;
};

}  // namespace plait
