// WindowGrid: the arithmetic of windows [start, start + size) whose starts are `every` apart.
//
// Time is cut into panes, `every` wide where that divides `size` and else as wide as their greatest
// common divisor, so that every window is a run of whole panes and a record is in one pane. Times
// beyond 2^62 us on either side of 1970 count as that, so no sum here overflows. Pure: any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <stdexcept>

#include "plait/columns/reach.hpp"

namespace plait {

inline constexpr int64_t kMostLength = int64_t(1) << 58;

inline int64_t clamp_time(int64_t t) { return std::clamp(t, -kFarTime, kFarTime); }

inline int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }

struct WindowGrid {
  int64_t size = 1, every = 1, offset = 0;
  int64_t width = 1;  // of a pane

  WindowGrid() = default;
  // Throws std::invalid_argument.
  WindowGrid(int64_t size, int64_t every, int64_t offset) : size(size), every(every) {
    if (size <= 0 || every <= 0 || every > size || size > kMostLength) {
      throw std::invalid_argument("a window is longer than 0 and the next starts before it ends");
    }
    this->offset = (offset % every + every) % every;
    width = size % every == 0 ? every : std::gcd(size, every);
  }

  int64_t pane(int64_t t) const { return offset + floor_div(t - offset, width) * width; }
  // The windows that a pane is in start from first_start to last_start.
  int64_t last_start(int64_t pane) const {
    return offset + floor_div(pane - offset, every) * every;
  }
  int64_t first_start(int64_t pane) const {
    return offset - floor_div(size + offset - pane - width, every) * every;
  }
  // The end of the last window that time t is in.
  int64_t last_end(int64_t t) const { return last_start(t) + size; }
};

}  // namespace plait
