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
#include "plait/columns/failure.hpp"
#include "plait/time/timed_spec.hpp"
#include "plait/time/unit_clock.hpp"

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
  // How far time is without sources that were stopped and count as if they were at their end;
  // kAllTime if there are none.
  int64_t held() const { return flushed_ ? held_ : kAllTime; }
  // The greatest wall clock of the units so far.
  int64_t clock() const { return clock_; }

  // Lets time go on by a unit; the clock says how far it is at each of its rows. Of an operator
  // that no source with an event time reaches, time stands still until the end. Behind a failure in
  // the unit nothing is delivered, so there the clock ends at the failed record.
  UnitClock pass(const Batch& unit) {
    UnitClock clock = rows_of(unit);
    if (unit.failure) {
      const Letter& letter = unit.failure->letter;
      clock.end_at(letter.row < 0 ? now_ : clock.at(2 * (letter.row - unit.base) + letter.half));
      return clock;
    }
    // A source that was stopped holds time up.
    if (unit.flow == Flow::Flushed) {
      if (!flushed_) held_ = now_;
      flushed_ = of_[unit.source].flushed = true;
    } else if (unit.flow != Flow::Cut) {
      of_[unit.source].flow = unit.flow;
    }
    clock_ = std::max(clock_, unit.stamp);
    if (const int64_t behind = least(of_.size()); behind != kNoTime) {
      clock.end_at(std::max(clock.end(), behind));
    }
    now_ = clock.end();
    if (flushed_) held_ = std::max(held_, least(of_.size(), true));
    return clock;
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
    bool flushed = false;  // it was stopped since
    uint8_t none[6] = {};
  };
  UnitClock rows_of(const Batch& unit) {
    const TimedSource& source = (*sources_)[unit.source];
    SourceTime& of = of_[unit.source];
    if (!unit.reach || !source.timed || !source.reaches) return {now_, unit.rows};
    const Reach& reach = *unit.reach;
    const int64_t* times = reach.times;
    BufferRef cut;
    if (int64_t from = of.time == kNoTime ? times[0] : of.time;
        reach.last() > add_times(from, source.max_jump)) {
      cut = cut_jumps(reach, of.time, source.max_jump);
      times = cut.as<int64_t>();
    }
    const int64_t since = of.time;
    of.time = std::max(of.time, times[reach.rows - 1]);
    of.flow = Flow::Running;
    const int64_t others = least(unit.source);
    if (others == kNoTime) return {now_, unit.rows};  // another source has had nothing yet
    return {now_, unit.rows, times, reach.rows, source.out_of_order, since, others, cut};
  }

  // The times of a unit in which a record is above the time before it by more than the jump.
  static BufferRef cut_jumps(const Reach& reach, int64_t time, int64_t jump) {
    BufferRef cut = BufferRef::make(8 * reach.rows);
    for (int64_t i = 0; i < reach.rows; ++i) {
      const int64_t next = reach.row_times[i];
      time = time == kNoTime ? next : std::max(time, std::min(next, add_times(time, jump)));
      cut.as<int64_t>()[i] = time;
    }
    return cut;
  }

  // The least watermark of the sources that hold time up, but for one; kAllTime if there are none,
  // unless that is because none of them knows time and one goes on: then kNoTime.
  // `held`: one that was stopped and flushed holds time up as before.
  int64_t least(size_t but, bool held = false) const {
    int64_t found = kAllTime;
    bool over = true, running = false;
    for (size_t s = 0; s < of_.size(); ++s) {
      const TimedSource& source = (*sources_)[s];
      if (!source.reaches || s == but) continue;
      const Flow flow = of_[s].flushed && !held ? Flow::Over : of_[s].flow;
      over = over && flow == Flow::Over;
      if (!source.timed || flow != Flow::Running) continue;
      running = true;
      if (of_[s].time == kNoTime) return kNoTime;
      found = std::min(found, add_times(of_[s].time, -source.out_of_order));
    }
    return running || over || but < of_.size() ? found : kNoTime;
  }

  std::shared_ptr<const std::vector<TimedSource>> sources_;
  std::vector<SourceTime> of_;
  int64_t now_ = kNoTime;
  int64_t clock_ = 0;
  // Bins do not move behind a stop, so nobody else needs to know.
  bool flushed_ = false;
  int64_t held_ = kNoTime;
};

}  // namespace plait
