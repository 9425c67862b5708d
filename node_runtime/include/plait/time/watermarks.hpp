// Watermarks: how far event time and the wall clock are, after each unit, for one lane of an
// operator.
//
// Every lane keeps its own, from what the units themselves carry, so lanes need not wait for each
// other and all come to the same. It travels with the bins of the lane: a node that joins later
// knows then what its units so far were worth. `plait.graph.temporal` in Python has the rule. One
// thread at a time: the holder of the lane.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "plait/columns/batch.hpp"
#include "plait/time/timed_spec.hpp"

namespace plait {

// A source as an operator sees its time.
struct TimedSource {
  bool reaches = false;  // records of it come to the operator
  bool timed = false;    // it has an event time
  int64_t out_of_order = 0, max_jump = 0;
};

class Watermarks {
 public:
  explicit Watermarks(std::shared_ptr<const std::vector<TimedSource>> sources)
      : sources_(std::move(sources)), of_(sources_->size()) {}

  int64_t now() const { return now_; }
  // The greatest wall clock of the units so far.
  int64_t clock() const { return clock_; }

  // Of an operator that no source with an event time reaches: time stands still until the end.
  void note(const Batch& unit) {
    SourceTime& of = of_[unit.source];
    if (unit.flow != Flow::Cut) of.flow = unit.flow;  // a source that was stopped holds time up
    clock_ = std::max(clock_, unit.stamp);
    if (unit.time != kNoTime) {
      const int64_t jump = (*sources_)[unit.source].max_jump;
      const int64_t most =
          of.time == kNoTime || of.time > kAllTime - jump ? kAllTime : of.time + jump;
      of.time = std::max(of.time, std::min(unit.time, most));
    }
    int64_t least = kAllTime;
    bool over = true, running = false;
    for (size_t s = 0; s < of_.size(); ++s) {
      if (!(*sources_)[s].reaches) continue;
      over = over && of_[s].flow == Flow::Over;
      if (!(*sources_)[s].timed || of_[s].flow != Flow::Running) continue;
      running = true;
      const int64_t late = (*sources_)[s].out_of_order;
      const int64_t t = of_[s].time;
      least = std::min(least, t < kNoTime + late ? kNoTime : t - late);
    }
    if (over) {
      now_ = kAllTime;
    } else if (running) {
      now_ = std::max(now_, least);
    }
  }

  // As bytes, and from them.
  size_t byte_size() const { return 16 + of_.size() * sizeof(SourceTime); }
  void write(uint8_t* to) const {
    std::memcpy(to, &now_, 8);
    std::memcpy(to + 8, &clock_, 8);
    std::memcpy(to + 16, of_.data(), of_.size() * sizeof(SourceTime));
  }
  void read(const uint8_t* from) {
    std::memcpy(&now_, from, 8);
    std::memcpy(&clock_, from + 8, 8);
    std::memcpy(of_.data(), from + 16, of_.size() * sizeof(SourceTime));
  }

 private:
  struct SourceTime {
    int64_t time = kNoTime;
    Flow flow = Flow::Running;
    uint8_t none[7] = {};
  };
  std::shared_ptr<const std::vector<TimedSource>> sources_;
  std::vector<SourceTime> of_;
  int64_t now_ = kNoTime;
  int64_t clock_ = 0;
};

}  // namespace plait
