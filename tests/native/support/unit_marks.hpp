// Event time as a plain loop: the watermark of an operator, moved by one record after the other,
// and random units of sources whose rows move it.
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

using Sources = std::shared_ptr<const std::vector<TimedSource>>;

class PlainClock {
 public:
  explicit PlainClock(Sources sources) : sources_(std::move(sources)), of_(sources_->size()) {}

  int64_t now = kNoTime;

  // In front of a record.
  void mark(uint32_t source, int64_t time) {
    Of& of = of_[source];
    of.idle = false;
    const TimedSource& known = (*sources_)[source];
    if (known.timed) {
      const Wide most = Wide(of.time) + known.max_jump;
      if (!of.any) {
        of.time = time;
      } else if (time > of.time) {
        of.time = Wide(time) > most ? int64_t(most) : time;
      }
      of.any = true;
    }
    go_on();
  }
  // Behind the rows of a unit.
  void facts(uint32_t source, Flow flow) {
    of_[source].idle = flow == Flow::Idle;
    of_[source].over = flow == Flow::Over;
    go_on();
  }

 private:
  __extension__ typedef __int128 Wide;
  struct Of {
    bool any = false, idle = false, over = false;
    int64_t time = 0;
  };

  void go_on() {
    bool over = true;
    std::vector<Wide> watermarks;
    for (size_t s = 0; s < of_.size(); ++s) {
      const TimedSource& source = (*sources_)[s];
      if (!source.reaches) continue;
      over = over && of_[s].over;
      if (!source.timed || of_[s].idle || of_[s].over) continue;
      if (!of_[s].any) return;
      watermarks.push_back(Wide(of_[s].time) - source.out_of_order);
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

// A unit of a source: its rows' times, and where those rows are that reach the operator. A position
// is twice the row plus 1, or plus 0 for what fell due at the mark of that row.
struct UnitMarks {
  uint32_t source = 0;
  int64_t base = 0;
  std::vector<int64_t> times;
  Flow flow = Flow::Running;
  std::vector<int64_t> positions;  // ascending
  int64_t failed = -1;             // the position of a record that failed

  int64_t rows() const { return int64_t(times.size()); }
  int64_t time_at(int64_t position) const {
    return times[size_t(std::min(position / 2, rows() - 1))];
  }
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
    clock.mark(unit.source, unit.times[size_t(row)]);
    if (clock.now > before) due(2 * row, before);
    take_at(2 * row + 1);
    if (unit.failed == 2 * row + 1) return;
  }
  take_at(2 * unit.rows());
  const int64_t before = clock.now;
  clock.facts(unit.source, unit.flow);
  if (clock.now > before) due(2 * unit.rows(), before);
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
    b.reach = reach_of(from, unit.rows(), std::move(times), 0);
  }
  if (unit.failed >= 0) {
    b.failure = std::make_shared<Failure>();
    b.failure->letter.row = unit.base + unit.failed / 2;
    b.failure->letter.half = unit.failed % 2;
  }
  return b;
}

// One to three sources; some without event time, some that do not reach the operator.
inline Sources random_sources(std::mt19937_64& random) {
  const auto one_of = [&](uint64_t n) { return int64_t(random() % n); };
  auto sources = std::make_shared<std::vector<TimedSource>>();
  for (int64_t n = one_of(2) ? 1 : 1 + one_of(3); n > 0; --n) {
    TimedSource s;
    s.reaches = sources->empty() || one_of(8);
    s.timed = sources->empty() || one_of(5);
    s.out_of_order = one_of(2) * one_of(12);
    s.max_jump = one_of(3) ? int64_t(1) << 50 : 1 + one_of(30);
    sources->push_back(s);
  }
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
    return unit;
  }
  int64_t one_of(uint64_t n) { return int64_t(random_() % n); }

 private:
  struct At {
    int64_t now = -20, base = 0;
  };
  std::mt19937_64& random_;
  Sources sources_;
  std::vector<At> at_;
  const bool in_order_;
  const int64_t spread_;
};

}  // namespace plait::testing
