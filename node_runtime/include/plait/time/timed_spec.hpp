// What an event-time operator does, decided when the job is built; `plait.graph.temporal` in Python
// has the meaning of every field. Times and lengths of time are microseconds. Plain data: any
// thread.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "plait/keyed/keyed_plan.hpp"

namespace plait {

// The watermark behind the last record of all: everything is due.
inline constexpr int64_t kAllTime = std::numeric_limits<int64_t>::max();

// Their sum; beyond the ends of time it stays at the ends.
inline int64_t add_times(int64_t a, int64_t b) {
  int64_t sum;
  if (!__builtin_add_overflow(a, b, &sum)) return sum;
  return b > 0 ? kAllTime : kNoTime;
}

struct TimedSpec {
  enum class Kind : uint8_t { Window, Top, Late, Last, Join, Span, Running };
  enum class Within : uint8_t { None, Grid, Session, Rows, Given, Between, AsOf };
  enum class How : uint8_t { Inner, Left, Semi, Anti, Late };
  struct Side {
    std::vector<int> columns;  // of the input
    int time = -1;             // the column of the input that is the side's event time
  };

  Kind kind = Kind::Window;
  std::vector<Type> types, out_types;  // of the columns of input and output
  std::vector<int> key_columns;
  int time = -1;                           // the input's event time, where it has one
  bool arrival = false;                    // Window, Top: the time of a row is when it arrived
  int window_start = -1, window_end = -1;  // Given: these columns

  Within within = Within::None;
  int64_t size = 0, every = 0, offset = 0;  // Grid; Rows
  int64_t gap = 0;                          // Session
  int64_t low = 0, high = 0;                // Between
  int64_t tolerance = 0;                    // AsOf
  int64_t lateness = 0, early = 0, ttl = 0, wait = 0;

  std::vector<AggregateSpec> aggregates;
  int64_t k = 0;  // Top; Last: n
  int by = -1;
  bool greatest = true, ties = false, empty = false;
  bool complete = false;  // Window, Top: the last column says whether the window was over

  How how = How::Inner;
  int side = -1;  // the int64 column that is 0 for the left and 1 for the right
  Side left, right;
  int span_start = -1, span_end = -1;

  unsigned bin_bits = 0, lane_bits = 0;
  int put_bits = -1;  // of the bins that come, where they are made anew; -1: those of bin_bits

  unsigned bits_put() const { return put_bits < 0 ? bin_bits : unsigned(put_bits); }
  bool makes_bins() const { return bits_put() != bin_bits; }
};

}  // namespace plait
