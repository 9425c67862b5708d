// Event time as a plain loop: the watermark of an operator, moved by one record after the other,
// and random units whose rows move it: those of sources, and those that pass operators which name
// an event time.
//
// Nothing here looks ahead, searches or clips a whole unit: what the headers find out about a unit
// at once must be what this comes to row by row.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "plait/columns/failure.hpp"
#include "plait/time/watermarks.hpp"

namespace plait::testing {

using Sources = TimedOrigins;  // the sources, then the operators that name an event time

inline uint32_t source_count(const Sources& sources) {
  return uint32_t(std::count_if(sources->begin(), sources->end(),
                                [](const TimedOrigin& o) { return o.source(); }));
}

// A unit of a source: its rows' times, and where those rows are that reach the operator. A position
// is twice the row plus 1, or plus 0 for what fell due at the mark of that row.
struct UnitMarks {
  struct Passing {
    int64_t position, time;
  };
  uint32_t source = 0;
  int64_t base = 0;
  std::vector<int64_t> times;
  Flow flow = Flow::Running;
  int64_t stamp = 0;
  std::vector<std::vector<Passing>> passing;  // of each origin: the rows that pass it, ascending
  std::vector<int64_t> positions;             // ascending
  int64_t failed = -1;                        // the position of a record that failed

  int64_t rows() const { return int64_t(times.size()); }
  int64_t time_at(int64_t position) const {
    return times[size_t(std::min(position / 2, rows() - 1))];
  }
};

class PlainClock {
 public:
  explicit PlainClock(Sources sources) : sources_(std::move(sources)), of_(sources_->size()) {}

  int64_t now = kNoTime;

  // In front of a record.
  void mark(const UnitMarks& unit, int64_t row) {
    const int64_t time = unit.times[size_t(row)];
    const bool near = time >= -kFarTime && time <= kFarTime;
    Of& own = of_[unit.source];
    if (near) own.idle = false;
    if (near && (*sources_)[unit.source].timed) {
      move(own.next, time, (*sources_)[unit.source].max_jump);
      own.time = own.next;
    }
    for (size_t o = 0; o < of_.size(); ++o) {
      const TimedOrigin& origin = (*sources_)[o];
      if (!origin.is_of(unit.source)) continue;
      if (origin.arrival) {
        arrive(of_[o], unit);
        continue;
      }
      const std::vector<int64_t> given = passing(unit, o, 2 * row);
      const std::vector<int64_t> made = passing(unit, o, 2 * row + 1);
      Of& of = of_[o];
      if (!given.empty()) move(of.next, greatest(given), origin.max_jump);
      of.time = of.next;
      if (!made.empty()) {
        move(of.time, *std::min_element(made.begin(), made.end()), origin.max_jump);
        move(of.next, greatest(made), origin.max_jump);
      }
      if (!given.empty() || !made.empty()) of.idle = false;
    }
    go_on();
  }
  // Behind the rows of a unit.
  void facts(const UnitMarks& unit) {
    of_[unit.source].idle = unit.flow == Flow::Idle;
    of_[unit.source].over = unit.flow == Flow::Over;
    for (size_t o = 0; o < of_.size(); ++o) {
      const TimedOrigin& origin = (*sources_)[o];
      if (!origin.is_of(unit.source)) continue;
      Of& of = of_[o];
      of.clock = std::max(of.clock, unit.stamp);
      if (origin.arrival) arrive(of, unit);
      const std::vector<int64_t> given = passing(unit, o, 2 * unit.rows());
      if (!given.empty()) move(of.next, greatest(given), origin.max_jump);
      if (!unit.passing[o].empty() || !of.seen) of.passed = of.clock;
      of.seen = true;
      of.idle = origin.idle && of.clock - of.passed > origin.idle;
      of.over =
          std::all_of(origin.of.begin(), origin.of.end(), [&](uint32_t s) { return of_[s].over; });
    }
    go_on();
  }

 private:
  __extension__ typedef __int128 Wide;
  struct Time {
    bool any = false;
    int64_t value = 0;
  };
  struct Of {
    bool idle = false, over = false, seen = false;
    Time time, next;  // what counts, and what counts from the next row on
    int64_t clock = 0, passed = 0;
  };

  static void arrive(Of& of, const UnitMarks& unit) {
    of.clock = std::max(of.clock, unit.stamp);
    of.time = {true, of.clock};
  }
  static std::vector<int64_t> passing(const UnitMarks& unit, size_t origin, int64_t position) {
    std::vector<int64_t> found;
    for (const UnitMarks::Passing& p : unit.passing[origin]) {
      if (p.position == position) found.push_back(p.time);
    }
    return found;
  }
  static int64_t greatest(const std::vector<int64_t>& times) {
    return *std::max_element(times.begin(), times.end());
  }
  static void move(Time& time, int64_t to, int64_t max_jump) {
    const Wide most = Wide(time.value) + max_jump;
    if (!time.any) {
      time.value = to;
    } else if (to > time.value) {
      time.value = Wide(to) > most ? int64_t(most) : to;
    }
    time.any = true;
  }

  void go_on() {
    bool over = true;
    std::vector<Wide> watermarks;
    for (size_t o = 0; o < of_.size(); ++o) {
      const TimedOrigin& origin = (*sources_)[o];
      if (origin.source() && !origin.reaches) continue;
      if (origin.source()) over = over && of_[o].over;
      if (!origin.timed || of_[o].idle || of_[o].over) continue;
      if (!of_[o].time.any) {
        watermarks.push_back(Wide(kNoTime));
        continue;
      }
      watermarks.push_back(Wide(of_[o].time.value) - origin.out_of_order);
    }
    if (over) {
      now = kAllTime;
    } else if (!watermarks.empty()) {
      const Wide least = *std::min_element(watermarks.begin(), watermarks.end());
      if (least > now) now = int64_t(least);
    }
  }

  Sources sources_;
  std::vector<Of> of_;
};

// Walks over a unit as a loop does. take(i): row i of the operator's comes. due(position, before):
// the clock has moved from `before`.
template <class Take, class Due>
void walk_unit(PlainClock& clock, const UnitMarks& unit, Take take, Due due) {
  size_t next = 0;
  const auto take_at = [&](int64_t position) {
    while (next < unit.positions.size() && unit.positions[next] == position) take(next++);
  };
  for (int64_t row = 0; row < unit.rows(); ++row) {
    take_at(2 * row);
    if (unit.failed == 2 * row) return;
    const int64_t before = clock.now;
    clock.mark(unit, row);
    if (clock.now > before) due(2 * row, before);
    take_at(2 * row + 1);
    if (unit.failed == 2 * row + 1) return;
  }
  take_at(2 * unit.rows());
  const int64_t before = clock.now;
  clock.facts(unit);
  if (clock.now > before) due(2 * unit.rows(), before);
}

// What rows that pass an operator are worth.
inline std::shared_ptr<Reach> reach_of_passing(const std::vector<UnitMarks::Passing>& rows) {
  ReachWriter out(rows.back().position / 2);
  for (const UnitMarks::Passing& p : rows) {
    if (p.position % 2) {
      out.make(p.position / 2, p.time);
    } else {
      out.give(p.position / 2, p.time);
    }
  }
  return out.finish();
}

// Where rows reach the operator: all of them, some, some several times, or with others that fell
// due at marks.
inline std::vector<int64_t> random_positions(std::mt19937_64& random, int64_t rows, bool halves) {
  const auto one_of = [&](uint64_t n) { return int64_t(random() % n); };
  std::vector<int64_t> found;
  const int64_t kind = halves ? 3 : one_of(3);
  for (int64_t position = 0; position <= 2 * rows; ++position) {
    if (position % 2 == 0 && !halves) continue;
    int64_t n = 1;
    if (kind == 1) n = one_of(2);
    if (kind >= 2) n = std::max<int64_t>(0, one_of(4) - 1);
    for (; n > 0; --n) found.push_back(position);
  }
  return found;
}

// The unit as a batch without columns.
inline Batch batch_of(const UnitMarks& unit, uint64_t epoch, bool timed, bool halves) {
  Batch b;
  b.epoch = epoch;
  b.source = unit.source;
  b.base = b.first_row = unit.base;
  b.rows = unit.rows();
  b.flow = unit.flow;
  b.stamp = unit.stamp;
  b.halves = halves;
  b.length = int64_t(unit.positions.size());
  BufferRef tags = BufferRef::make(4 * b.length);
  for (int64_t i = 0; i < b.length; ++i) {
    const int64_t position = unit.positions[size_t(i)];
    tags.as<uint32_t>()[i] = uint32_t(halves ? position : position / 2);
  }
  b.tags = tags.as<uint32_t>();
  b.tags_owner = std::move(tags);
  if (timed && unit.rows()) {
    BufferRef times = BufferRef::make(8 * unit.rows());
    std::copy(unit.times.begin(), unit.times.end(), times.as<int64_t>());
    const auto* from = times.as<int64_t>();
    b.reach.push_back({unit.source, reach_of(from, unit.rows(), std::move(times), 0)});
  }
  for (uint32_t o = 0; o < unit.passing.size(); ++o) {
    if (!unit.passing[o].empty()) b.reach.push_back({o, reach_of_passing(unit.passing[o])});
  }
  if (unit.failed >= 0) {
    b.failure = std::make_shared<Failure>();
    b.failure->letter.row = unit.base + unit.failed / 2;
    b.failure->letter.half = unit.failed % 2;
  }
  return b;
}

// One to three sources; some without event time, some that do not reach the operator; and up to two
// operators that name an event time for rows of some of them, or go by when these arrive.
inline Sources random_sources(std::mt19937_64& random) {
  const auto one_of = [&](uint64_t n) { return int64_t(random() % n); };
  auto sources = std::make_shared<std::vector<TimedOrigin>>();
  for (int64_t n = one_of(2) ? 1 : 1 + one_of(3); n > 0; --n) {
    TimedOrigin s;
    s.reaches = sources->empty() || one_of(8);
    s.timed = sources->empty() || one_of(5);
    s.out_of_order = one_of(2) * one_of(12);
    s.max_jump = one_of(3) ? int64_t(1) << 50 : 1 + one_of(30);
    sources->push_back(s);
  }
  const auto count = uint32_t(sources->size());
  for (int64_t n = one_of(2) ? 0 : 1 + one_of(2); n > 0; --n) {
    TimedOrigin named;
    named.timed = one_of(6);
    named.out_of_order = one_of(2) * one_of(12);
    named.max_jump = one_of(3) ? int64_t(1) << 50 : 1 + one_of(30);
    named.arrival = one_of(3) == 0;
    named.idle = named.arrival ? 0 : one_of(2) * (1 + one_of(300));
    for (uint32_t s = 0; s < count; ++s) {
      if ((*sources)[s].reaches && one_of(3)) named.of.push_back(s);
      if (one_of(2)) (*sources)[s].timed = false;
    }
    if (!named.of.empty()) sources->push_back(named);
  }
  return sources;
}

// The origins of windows by arrival: their own alone.
inline Sources arrival_sources(std::mt19937_64& random) {
  auto sources = std::make_shared<std::vector<TimedOrigin>>(*random_sources(random));
  std::erase_if(*sources, [](const TimedOrigin& o) { return !o.source(); });
  TimedOrigin own;
  own.timed = own.arrival = true;
  for (uint32_t s = 0; s < sources->size(); ++s) {
    (*sources)[s].timed = false;
    if ((*sources)[s].reaches) own.of.push_back(s);
  }
  sources->push_back(own);
  return sources;
}

// Units of all sources, in turn, until they are at their end.
class MarkedUnits {
 public:
  MarkedUnits(std::mt19937_64& random, Sources sources)
      : random_(random),
        sources_(std::move(sources)),
        at_(sources_->size()),
        in_order_(one_of(3) == 0),
        spread_(1 + one_of(20)) {}

  // The next unit. `last`: its source is at its end. `most`: so many rows or fewer.
  UnitMarks next(uint32_t source, bool last, int64_t most) {
    UnitMarks unit;
    unit.source = source;
    unit.base = at_[source].base;
    int64_t& now = at_[source].now;
    for (int64_t n = one_of(8) ? one_of(uint64_t(most) + 1) : 0; n > 0; --n) {
      now += one_of(3) ? one_of(3) : one_of(12);
      if (one_of(60) == 0) now += 20 + one_of(60);
      const int64_t behind = in_order_ || one_of(3) ? 0 : one_of(uint64_t(spread_));
      unit.times.push_back(one_of(80) ? now - behind : now + one_of(100));
    }
    at_[source].base += unit.rows();
    unit.flow = last ? Flow::Over : one_of(6) ? Flow::Running : Flow::Idle;
    stamp_ += one_of(4) ? one_of(20) : one_of(300);
    unit.stamp = one_of(10) ? stamp_ : one_of(2) * std::max<int64_t>(0, stamp_ - one_of(50));
    unit.passing.resize(sources_->size());
    for (size_t o = 0; o < sources_->size(); ++o) {
      const bool passes = (*sources_)[o].is_of(source) && !(*sources_)[o].arrival;
      if (passes && one_of(5)) unit.passing[o] = passing(unit, now);
    }
    return unit;
  }
  int64_t one_of(uint64_t n) { return int64_t(random_() % n); }

 private:
  // Records that pass: all of them, some, in pieces, and what was given at marks.
  std::vector<UnitMarks::Passing> passing(const UnitMarks& unit, int64_t now) {
    std::vector<UnitMarks::Passing> found;
    const int64_t kind = one_of(4);
    for (int64_t position = 0; position <= 2 * unit.rows(); ++position) {
      int64_t n = kind == 0 ? 1 : kind == 1 ? one_of(2) : std::max<int64_t>(0, one_of(5) - 2);
      if (position % 2 == 0 && (kind < 3 || one_of(3))) n = 0;
      for (; n > 0; --n) {
        const int64_t time = unit.rows() ? unit.time_at(position) : now;
        found.push_back({position, one_of(40) ? time - one_of(6) : time + one_of(60)});
      }
    }
    return found;
  }

  struct At {
    int64_t now = -20, base = 0;
  };
  std::mt19937_64& random_;
  Sources sources_;
  int64_t stamp_ = 0;
  std::vector<At> at_;
  const bool in_order_;
  const int64_t spread_;
};

}  // namespace plait::testing
