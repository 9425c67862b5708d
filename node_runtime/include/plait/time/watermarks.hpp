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

// An origin of time as an operator sees it: a source, an operator that names the event time of the
// rows that pass it, or windows by arrival, whose time is the wall clock of the units that reach
// them. All sources of the job come first, by their numbers, then these operators.
struct TimedOrigin {
  bool reaches = false;  // of a source: records of it come to the operator
  bool timed = false;    // the operator goes by its time
  int64_t out_of_order = 0, max_jump = 0;
  std::vector<uint32_t> of{};  // of an operator that names the time: the sources that reach it
  int64_t idle = 0;            // and how long it may be without rows, by the clock; 0: for ever
  bool arrival = false;        // of an operator: its time is the wall clock

  bool source() const { return of.empty(); }
  bool is_of(uint32_t s) const { return std::find(of.begin(), of.end(), s) != of.end(); }
};
using TimedOrigins = std::shared_ptr<const std::vector<TimedOrigin>>;

class Watermarks {
 public:
  explicit Watermarks(TimedOrigins origins) : origins_(std::move(origins)), of_(origins_->size()) {}

  int64_t now() const { return now_; }
  // How far time is without sources that were stopped and count as if they were at their end;
  // kAllTime if there are none.
  int64_t held() const { return flushed_ ? held_ : kAllTime; }
  // The greatest wall clock of the units so far.
  int64_t clock() const { return clock_; }
  // When the rows of a unit arrived, before it is passed. A unit without a stamp (its source is at
  // its end), or with one that went back, arrives when the one before it did.
  int64_t arrival(const Batch& unit) const { return std::max(clock_, unit.stamp); }

  // Lets time go on by a unit; the clock says how far it is at each of its rows. Of an operator
  // that no origin of time reaches, time stands still until the end. Behind a failure in the unit
  // nothing is delivered, so there the clock ends at the failed record.
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
    note_silence(unit);
    if (const int64_t behind = least(); behind != kNoTime) {
      clock.end_at(std::max(clock.end(), behind));
    }
    now_ = clock.end();
    if (flushed_) held_ = std::max(held_, least(false, true));
    return clock;
  }

  // As bytes, and from them.
  size_t byte_size() const { return 16 + of_.size() * sizeof(OriginTime); }
  void write(uint8_t* to) const {
    std::memcpy(to, &now_, 8);
    std::memcpy(to + 8, &clock_, 8);
    std::memcpy(to + 16, of_.data(), of_.size() * sizeof(OriginTime));
  }
  void read(const uint8_t* from) {
    std::memcpy(&now_, from, 8);
    std::memcpy(&clock_, from + 8, 8);
    std::memcpy(of_.data(), from + 16, of_.size() * sizeof(OriginTime));
  }

 private:
  struct OriginTime {
    int64_t time = kNoTime;
    // Of an operator that names the time: what counts from the next row on, the wall clock of its
    // units, and that of the last one in which a row passed.
    int64_t next = kNoTime, clock = 0, passed = kNever;
    Flow flow = Flow::Running;  // of an operator: running or idle
    bool flushed = false;       // of a source: it was stopped since
    bool moves = false;         // in the unit that is being passed
    uint8_t none[5] = {};
  };
  static constexpr int64_t kNever = -1;

  // How one origin moves in a unit.
  struct Movement {
    const int64_t* times = nullptr;
    int64_t rows = 0;
    int64_t since = kNoTime;  // its time before the unit, which counts from the first row on
    int64_t out_of_order = 0;
    int64_t counts_at = 0;  // the row from which on it counts: if it was idle, one with a time
    BufferRef owner;        // of the times, if that is not the unit's own

    int64_t at(int64_t row) const {
      const int64_t time = std::max(since, times[std::min(row, rows - 1)]);
      return time == kNoTime ? kNoTime : add_times(time, -out_of_order);
    }
  };

  UnitClock rows_of(const Batch& unit) {
    Movement only;
    std::vector<Movement> more;
    int moving = 0;
    for (uint32_t o = 0; o < of_.size(); ++o) {
      const TimedOrigin& origin = (*origins_)[o];
      if (!origin.timed || !(origin.source() ? o == unit.source : origin.is_of(unit.source))) {
        continue;
      }
      if (origin.arrival) of_[o].time = std::max({of_[o].time, unit.stamp, int64_t(0)});
      if (!unit.rows) continue;
      const ReachRef reach = unit.reach_from(o);
      const bool still = !reach && (origin.source() || of_[o].next == of_[o].time);
      if (still && !origin.arrival) continue;
      Movement movement = origin.arrival ? arrive(o) : move(o, reach, unit.rows);
      if (moving++ == 0) {
        only = std::move(movement);
        continue;
      }
      if (more.empty()) more.push_back(only);
      more.push_back(std::move(movement));
    }
    if (moving == 0) return {now_, unit.rows};
    const int64_t others = least(true);
    for (OriginTime& of : of_) of.moves = false;
    if (others == kNoTime) return {now_, unit.rows};  // another origin has had nothing yet
    if (moving == 1 && only.counts_at) more.push_back(std::move(only));
    if (!more.empty()) return together(more, others, unit.rows);
    return {now_,       unit.rows, only.times,           only.rows, only.out_of_order,
            only.since, others,    std::move(only.owner)};
  }

  // Moves the time of an origin to the unit's last row. Null: no row of it is in the unit, but what
  // passed before counts from the first row on.
  Movement move(uint32_t o, const ReachRef& given, int64_t rows) {
    const TimedOrigin& origin = (*origins_)[o];
    OriginTime& of = of_[o];
    Movement m;
    m.since = origin.source() ? of.time : of.next;
    m.out_of_order = origin.out_of_order;
    const bool idle = of.flow == Flow::Idle;
    of.moves = true;
    if (!given) {
      static constexpr int64_t kNothing[] = {kNoTime};
      m.times = kNothing;
      m.rows = 1;
      m.counts_at = idle ? rows : 0;
      of.time = of.next;
      return m;
    }
    const ReachRef reach = given->first ? join_reach({given}) : given;
    m.times = reach->times;
    m.rows = std::min(reach->rows, rows);
    m.owner = given->first ? reach->owner : BufferRef();
    while (idle && m.counts_at < m.rows && m.times[m.counts_at] == kNoTime) ++m.counts_at;
    if (m.counts_at == m.rows) m.counts_at = rows;
    int64_t last = std::max(m.since, reach->greatest);
    int64_t from = m.since;  // no jump is cut if none is from here
    if (from == kNoTime && reach->plain()) from = m.times[0];
    if (reach->greatest > add_times(from, origin.max_jump)) {
      m.owner = cut_jumps(*reach, m.since, origin.max_jump, last);
      m.times = m.owner.as<int64_t>();
    }
    of.time = std::max(m.since, m.times[m.rows - 1]);
    of.next = last;
    of.flow = Flow::Running;
    return m;
  }

  // Of windows by arrival: all rows of the unit have come by now, the time that is set already.
  Movement arrive(uint32_t o) {
    Movement m;
    m.owner = BufferRef::make(8);
    m.owner.as<int64_t>()[0] = of_[o].time;
    m.times = m.owner.as<int64_t>();
    m.rows = 1;
    m.out_of_order = (*origins_)[o].out_of_order;
    of_[o].moves = true;
    return m;
  }

  // Several origins move in the unit: the watermark at each row, as one reach.
  UnitClock together(const std::vector<Movement>& moving, int64_t others, int64_t rows) {
    BufferRef least = BufferRef::make(8 * rows);
    int64_t reached = now_;
    for (int64_t row = 0; row < rows; ++row) {
      int64_t here = others;
      bool any = others != kAllTime;
      for (const Movement& m : moving) {
        if (row < m.counts_at) continue;
        here = std::min(here, m.at(row));
        any = true;
      }
      if (any) reached = std::max(reached, here);
      least.as<int64_t>()[row] = reached;
    }
    const auto* times = least.as<int64_t>();
    return {now_, rows, times, rows, 0, kNoTime, kAllTime, std::move(least)};
  }

  static int64_t moved(int64_t time, int64_t to, int64_t jump) {
    if (time == kNoTime || to == kNoTime) return std::max(time, to);
    return std::max(time, std::min(to, add_times(time, jump)));
  }
  // The times of a unit in which a record is above the time before it by more than the jump; `last`
  // is what they come to.
  static BufferRef cut_jumps(const Reach& reach, int64_t time, int64_t jump, int64_t& last) {
    BufferRef cut = BufferRef::make(8 * reach.rows);
    const int64_t* high = reach.high_times ? reach.high_times : reach.row_times;
    for (int64_t i = 0; i < reach.rows; ++i) {
      if (reach.given_times) time = moved(time, reach.given_times[i], jump);
      cut.as<int64_t>()[i] = moved(time, reach.row_times[i], jump);
      time = moved(time, high[i], jump);
    }
    last = time;
    return cut;
  }

  // Of operators that name the time: whether rows passed, in units of their sources.
  void note_silence(const Batch& unit) {
    for (uint32_t o = 0; o < of_.size(); ++o) {
      const TimedOrigin& origin = (*origins_)[o];
      if (origin.source() || !origin.timed || !origin.is_of(unit.source)) continue;
      if (origin.arrival) continue;
      OriginTime& of = of_[o];
      of.clock = std::max(of.clock, unit.stamp);
      const ReachRef reach = unit.reach_from(o);
      if (reach || of.passed == kNever) of.passed = of.clock;
      if (reach && !unit.rows) of.next = passed_behind(o, *reach);
      const bool idle = origin.idle > 0 && of.clock - of.passed > origin.idle;
      of.flow = idle ? Flow::Idle : Flow::Running;
    }
  }
  // In a unit without rows all that passed came behind it.
  int64_t passed_behind(uint32_t o, const Reach& reach) const {
    int64_t last = kNoTime;
    (void)cut_jumps(reach, of_[o].next, (*origins_)[o].max_jump, last);
    return last;
  }
  // Of a source; `held`: one that was stopped and flushed holds time up as before.
  Flow flow_of(uint32_t s, bool held) const {
    return of_[s].flushed && !held ? Flow::Over : of_[s].flow;
  }
  bool over(const TimedOrigin& origin, bool held) const {
    return std::all_of(origin.of.begin(), origin.of.end(),
                       [&](uint32_t s) { return flow_of(s, held) == Flow::Over; });
  }

  // The least watermark of the origins that hold time up, but for those that move in a unit;
  // kAllTime if there are none, unless that is because none of them knows time and a source goes
  // on: then kNoTime.
  int64_t least(bool but_moving = false, bool held = false) const {
    int64_t found = kAllTime;
    bool ended = true, running = but_moving;
    for (uint32_t o = 0; o < of_.size(); ++o) {
      const TimedOrigin& origin = (*origins_)[o];
      const OriginTime& of = of_[o];
      const Flow flow = flow_of(o, held);
      if (origin.source()) {
        if (!origin.reaches) continue;
        ended = ended && flow == Flow::Over;
      }
      if (!origin.timed || flow != Flow::Running || (but_moving && of.moves)) continue;
      if (!origin.source() && over(origin, held)) continue;
      running = true;
      if (of.time == kNoTime) return kNoTime;
      found = std::min(found, add_times(of.time, -origin.out_of_order));
    }
    return running || ended ? found : kNoTime;
  }

  TimedOrigins origins_;
  std::vector<OriginTime> of_;
  int64_t now_ = kNoTime;
  int64_t clock_ = 0;
  // Bins do not move behind a stop, so nobody else needs to know.
  bool flushed_ = false;
  int64_t held_ = kNoTime;
};

}  // namespace plait
