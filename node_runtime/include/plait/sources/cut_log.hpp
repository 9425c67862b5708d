// CutLog: what a source put into each epoch, so that it can be repeated; Script: what it has to
// repeat.
//
// A cut is the number of rows, how the source was, and the wall clock of the unit. A log is written
// by the holder of the source's flag, one cut for each epoch, and read by whoever takes notes: a
// short mutex, once a batch, and only in jobs that need it. A script does not change once the job
// runs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "plait/columns/batch.hpp"

namespace plait {

struct Cut {
  static constexpr uint8_t kSkipped = 8;  // in `kind`: the order of time put no rows there

  int64_t rows = 0, stamp = 0;
  uint8_t kind = 0;  // the flow of the unit, and kSkipped

  static Cut of(int64_t rows, int64_t stamp, Flow flow, bool skipped) {
    return {rows, stamp, uint8_t(uint8_t(flow) | (skipped ? kSkipped : 0))};
  }
  Flow flow() const { return Flow(kind & 7); }
  bool skipped() const { return kind & kSkipped; }
};

class CutLog {
 public:
  void add(uint64_t epoch, const Cut& cut) {
    std::lock_guard<std::mutex> hold(lock_);
    if (cuts_.empty()) first_ = epoch;
    cuts_.push_back(cut);
  }
  // Those from `from` on, or from the first that is known, which is what `from` is then.
  std::vector<Cut> copy(uint64_t& from, uint64_t end) const {
    std::lock_guard<std::mutex> hold(lock_);
    from = std::max(from, first_);
    const uint64_t last = std::min<uint64_t>(end, first_ + cuts_.size());
    if (from >= last) return {};
    const auto at = cuts_.begin() + int64_t(from - first_);
    return {at, at + int64_t(last - from)};
  }
  // Nobody asks for those before this epoch any more.
  void drop(uint64_t before) {
    std::lock_guard<std::mutex> hold(lock_);
    for (; !cuts_.empty() && first_ < before; ++first_) cuts_.pop_front();
  }

 private:
  mutable std::mutex lock_;
  uint64_t first_ = 0;
  std::deque<Cut> cuts_;
};

struct Script {
  uint64_t first = 0;
  std::vector<Cut> cuts;

  // Null: the source is free in this epoch.
  const Cut* at(uint64_t epoch) const {
    return epoch >= first && epoch - first < cuts.size() ? &cuts[epoch - first] : nullptr;
  }
};

}  // namespace plait
