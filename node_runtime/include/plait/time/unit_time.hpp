// UnitTime: what a holder of state knows of time: its watermark, and the number of the unit.
//
// It goes with every bin, in front of the bin's own bytes: a count of units, the size of what
// follows, the watermarks. A run that begins with a snapshot goes on with its epochs, so that
// places go on too. One thread at a time: the holder of the state.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "plait/time/timed_rows.hpp"
#include "plait/time/watermarks.hpp"

namespace plait {

class UnitTime {
 public:
  explicit UnitTime(const TimedOrigins& origins)
      : watermarks(origins),
        sources_(size_t(std::count_if(origins->begin(), origins->end(),
                                      [](const TimedOrigin& o) { return o.source(); }))) {}

  // The place of the first row of a unit.
  uint64_t place(const Batch& unit) const {
    return (units + unit.epoch * sources_ + unit.source) << kRowBits;
  }

  size_t head_size() const { return 16 + watermarks.byte_size(); }
  void write_head(uint8_t* to) const {
    const uint64_t size = watermarks.byte_size();
    std::memcpy(to, &units, 8);
    std::memcpy(to + 8, &size, 8);
    watermarks.write(to + 16);
  }
  // What another knew of time when it wrote these bytes. False: they are damaged.
  bool adopt(const uint8_t* data, size_t size) {
    uint64_t units_there, time_size;
    if (size < head_size()) return false;
    std::memcpy(&units_there, data, 8);
    std::memcpy(&time_size, data + 8, 8);
    if (time_size != watermarks.byte_size()) return false;
    units = units_there;
    watermarks.read(data + 16);
    return true;
  }

  Watermarks watermarks;
  uint64_t units = 0;  // added to those of the run: state may come from before another count

 private:
  size_t sources_;
};

}  // namespace plait
