// NanKeyFilter: in front of keyed state, takes out rows whose key or event time cannot be one. Any
// worker, on its own batch.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "plait/core/dispatch.hpp"
#include "plait/stages/row_operators.hpp"
#include "plait/time/window_grid.hpp"

namespace plait {

// Rows whose key cannot be one (NaN), or whose event time is so far off that windows around it
// could not be counted, leave by the operator's policy; all other rows stay. It sees
// the rows as they came to the operator, so that a failed record is shown as it was, and counts
// them in.
class NanKeyFilter final : public Operator {
 public:
  NanKeyFilter(uint32_t op, OnError on_error, std::vector<uint32_t> float_keys,
               std::vector<uint32_t> times = {})
      : Operator(op, on_error), float_keys_(std::move(float_keys)), times_(std::move(times)) {}
  void run(Batch& batch, Worker& worker) override {
    Counts::add(counts(worker, batch).in, batch.length);
    const bool far = any_far(batch);
    if (float_keys_.empty() && !far) return;
    worker.failures.clear();
    for (int64_t row = 0; row < batch.length; ++row) {
      const int64_t time = far ? far_time(batch, row) : 0;
      if (time) {
        worker.failures.push_back({uint32_t(row), "the event time " + std::to_string(time) +
                                                      " us is not within 146,000 years of 1970"});
      } else if (nan_key(batch, row)) {
        worker.failures.push_back({uint32_t(row), "NaN cannot be a key"});
      }
    }
    if (worker.failures.empty()) return;
    const Batch input = batch;
    settle(batch, input, worker.failures, worker);
  }

 private:
  struct AnyFar {
    // The two top bits of a time below 2^62 are the same.
    PLAIT_INLINE static bool run(const int64_t* times, int64_t rows) {
      uint64_t differ = 0;
      for (int64_t i = 0; i < rows; ++i) differ |= uint64_t(times[i]) ^ (uint64_t(times[i]) << 1);
      return differ >> 63;
    }
  };

  bool nan_key(const Batch& batch, int64_t row) const {
    for (uint32_t k : float_keys_) {
      const Column& c = batch.columns[k];
      if (c.valid(row) && c.f64()[row] != c.f64()[row]) return true;
    }
    return false;
  }

  // Whether a time may be too far off; also of what lies under a null.
  bool any_far(const Batch& batch) const {
    return std::any_of(times_.begin(), times_.end(), [&](uint32_t k) {
      const int64_t* times = batch.columns[k].i64();
      return !in_reach(batch, times) && dispatch<AnyFar>(times, batch.length);
    });
  }
  // Whether a column is the event time of an origin as it is: then another has looked at it.
  static bool in_reach(const Batch& batch, const int64_t* times) {
    return std::any_of(batch.reach.begin(), batch.reach.end(),
                       [&](const OriginReach& of) { return of.reach->holds(times, batch.length); });
  }
  // The time of a row that is too far off; 0: there is none.
  int64_t far_time(const Batch& batch, int64_t row) const {
    for (uint32_t k : times_) {
      const Column& c = batch.columns[k];
      if (c.valid(row) && c.i64()[row] != clamp_time(c.i64()[row])) return c.i64()[row];
    }
    return 0;
  }

  const std::vector<uint32_t> float_keys_, times_;
};

}  // namespace plait
