// Reach: how far an origin's event time is at each row of a unit.
//
// An origin is a source, or an operator that names the event time of the rows that pass it. Of each
// row of the unit, from `first` on, a reach has the least (`row_times`) and the greatest time of
// what was made of it, and the greatest of what was given at its mark; kNoTime where there is
// nothing. From that follow the `times`: at row i it is the greatest time of all before it, of
// what was given at its mark, and the least of its own. So `times` never falls; where it is one
// time for each row, in order, it is the column itself, without a copy. What a `max_jump` leaves of
// a time depends on the time before the unit, so the times of single rows stay at hand for the
// rare unit in which a jump is cut short. Where a failure ended the stream in front of the origin,
// nothing made of the failed record counts, and nothing behind it; with parts on several nodes all
// must know where that was. Written once, then only read: any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "plait/core/buffer.hpp"
#include "plait/core/dispatch.hpp"

namespace plait {

// No event time; it sorts before every real time (microseconds since 1970).
inline constexpr int64_t kNoTime = std::numeric_limits<int64_t>::min();
// Event times are within this of 1970.
inline constexpr int64_t kFarTime = int64_t(1) << 62;
// The end of a stream that goes on.
inline constexpr int64_t kNotEnded = std::numeric_limits<int64_t>::max();

struct Reach {
  BufferRef owner, row_owner, high_owner, given_owner;
  const int64_t* times = nullptr;
  const int64_t* row_times = nullptr;    // the least of what was made of each row
  const int64_t* high_times = nullptr;   // the greatest; null: the least is all there is
  const int64_t* given_times = nullptr;  // the greatest of what was given at its mark; null: none
  int64_t first = 0, rows = 0;           // those of the unit's rows that it covers
  int64_t greatest = kNoTime;            // of all; it counts behind the unit
  int64_t ended = kNotEnded;  // the position (Batch::position) of the record that ended the stream
  bool whole = false;         // on several nodes: it covers all rows, and no other node adds to it

  bool plain() const { return !high_times && !given_times; }
  // Whether these times are some of its own where they lie, in order and none too far off.
  bool holds(const int64_t* some, int64_t n) const {
    const auto from = reinterpret_cast<uintptr_t>(row_times),
               at = reinterpret_cast<uintptr_t>(some);
    return times == row_times && at >= from && at + size_t(8 * n) <= from + size_t(8 * rows);
  }
};

using ReachRef = std::shared_ptr<const Reach>;

// The reach of one origin of time in a unit.
struct OriginReach {
  uint32_t origin = 0;
  ReachRef reach;
};

struct TimesFall {
  PLAIT_INLINE static bool run(const int64_t* times, int64_t rows) {
    uint64_t falls = 0;
    for (int64_t i = 1; i < rows; ++i) falls |= uint64_t(times[i] < times[i - 1]);
    return falls != 0;
  }
};

// Finds `times` and `greatest` from the times of the rows.
inline void settle_reach(Reach& reach) {
  reach.owner = BufferRef::make(8 * reach.rows);
  auto* to = reach.owner.as<int64_t>();
  int64_t time = kNoTime;
  for (int64_t i = 0; i < reach.rows; ++i) {
    if (reach.given_times) time = std::max(time, reach.given_times[i]);
    to[i] = std::max(time, reach.row_times[i]);
    time = std::max(time, (reach.high_times ? reach.high_times : reach.row_times)[i]);
  }
  reach.times = to;
  reach.greatest = time;
}

// Of the times of a unit's rows from `first` on, which lie in `owner`; at least one. `in_order`: it
// is known that they do not fall. A time too far off moves nothing.
inline std::shared_ptr<Reach> reach_of(const int64_t* times, int64_t rows, BufferRef owner,
                                       int64_t first, bool in_order = false) {
  auto reach = std::make_shared<Reach>();
  reach->first = first;
  reach->rows = rows;
  const bool falls = !in_order && dispatch<TimesFall>(times, rows);
  if (!falls && times[0] >= -kFarTime && times[rows - 1] <= kFarTime) {
    reach->times = reach->row_times = times;
    reach->greatest = times[rows - 1];
    reach->owner = reach->row_owner = std::move(owner);
    return reach;
  }
  uint64_t far = 0;
  for (int64_t i = 0; i < rows; ++i) far |= uint64_t(times[i] < -kFarTime || times[i] > kFarTime);
  if (far) {
    BufferRef near = BufferRef::make(8 * rows);
    for (int64_t i = 0; i < rows; ++i) {
      const bool counts = times[i] >= -kFarTime && times[i] <= kFarTime;
      near.as<int64_t>()[i] = counts ? times[i] : kNoTime;
    }
    times = near.as<int64_t>();
    owner = std::move(near);
  }
  reach->row_times = times;
  reach->row_owner = std::move(owner);
  settle_reach(*reach);
  return reach;
}

// Memory for the times of rows, none of which has one yet.
inline BufferRef no_times(int64_t rows) {
  BufferRef out = BufferRef::make(8 * rows);
  std::fill_n(out.as<int64_t>(), rows, kNoTime);
  return out;
}

// Takes the times of rows that pass an operator, one by one, in any sequence.
class ReachWriter {
 public:
  // For rows 0 to `last` of a unit. Behind them is one entry more: there all of them count.
  explicit ReachWriter(int64_t last) : rows_(last + 2), low_(no_times(rows_)) {}

  // At the mark of a row.
  void give(int64_t row, int64_t time) {
    if (!given_) given_ = no_times(rows_);
    raise(given_, row, time);
  }
  // Made of a row.
  void make(int64_t row, int64_t time) {
    int64_t& low = low_.as<int64_t>()[row];
    if (low == kNoTime && !high_) {
      low = time;
      return;
    }
    add_high();
    low = low == kNoTime ? time : std::min(low, time);
    raise(high_, row, time);
  }
  // What another has of these rows, in front of a position.
  void add(const Reach& part, int64_t ended) {
    for (int64_t i = 0; i < part.rows && 2 * (part.first + i) < ended; ++i) {
      const int64_t row = part.first + i;
      if (part.given_times && part.given_times[i] != kNoTime) give(row, part.given_times[i]);
      if (part.row_times[i] == kNoTime || 2 * row + 1 >= ended) continue;
      make(row, part.row_times[i]);
      if (part.high_times && part.high_times[i] != part.row_times[i]) {
        make(row, part.high_times[i]);
      }
    }
  }
  std::shared_ptr<Reach> finish() {
    auto reach = std::make_shared<Reach>();
    reach->rows = rows_;
    reach->row_times = low_.as<int64_t>();
    reach->row_owner = std::move(low_);
    if (high_) reach->high_times = high_.as<int64_t>();
    if (given_) reach->given_times = given_.as<int64_t>();
    reach->high_owner = std::move(high_);
    reach->given_owner = std::move(given_);
    settle_reach(*reach);
    return reach;
  }

 private:
  static void raise(BufferRef& times, int64_t row, int64_t time) {
    int64_t& at = times.as<int64_t>()[row];
    at = std::max(at, time);
  }
  void add_high() {
    if (high_) return;
    high_ = BufferRef::make(8 * rows_);
    std::memcpy(high_.data(), low_.data(), size_t(8 * rows_));
  }

  const int64_t rows_;
  BufferRef low_, high_, given_;
};

// Slices of a unit's rows from the first on, each read by one node: one behind the other.
inline std::shared_ptr<Reach> concat_reach(const std::vector<ReachRef>& parts, int64_t rows) {
  BufferRef times = BufferRef::make(8 * rows);
  auto* to = times.as<int64_t>();
  for (const ReachRef& part : parts) {
    std::memcpy(to, part->row_times, size_t(8 * part->rows));
    to += part->rows;
  }
  auto reach = std::make_shared<Reach>();
  reach->rows = rows;
  reach->row_times = times.as<int64_t>();
  reach->row_owner = std::move(times);
  if (dispatch<TimesFall>(reach->row_times, rows)) {
    settle_reach(*reach);
    return reach;
  }
  reach->times = reach->row_times;
  reach->owner = reach->row_owner;
  reach->greatest = reach->times[rows - 1];
  return reach;
}

// The reach of a whole unit from what the nodes have of it, in any sequence: slices of its rows,
// all of them of one reader, or rows here and there behind an exchange. Null: the unit has no rows
// with a time.
inline ReachRef join_reach(std::vector<ReachRef> parts) {
  std::erase(parts, nullptr);
  for (const ReachRef& part : parts) {
    if (part->whole) return part;
  }
  if (parts.empty()) return nullptr;
  std::sort(parts.begin(), parts.end(),
            [](const ReachRef& a, const ReachRef& b) { return a->first < b->first; });
  int64_t rows = 0, last = 0, ended = kNotEnded;
  bool follow = true;
  for (const ReachRef& part : parts) {
    follow = follow && part->plain() && part->first == rows;
    rows += part->rows;
    last = std::max(last, part->first + part->rows - 1);
    ended = std::min(ended, part->ended);
  }
  std::shared_ptr<Reach> whole;
  if (parts.size() == 1 && parts[0]->first == 0) {  // nothing in it is behind its own end
    whole = std::make_shared<Reach>(*parts[0]);
  } else if (follow && ended == kNotEnded) {
    whole = concat_reach(parts, rows);
  } else {
    ReachWriter all(last);
    for (const ReachRef& part : parts) all.add(*part, ended);
    whole = all.finish();
  }
  whole->whole = true;
  return whole;
}

}  // namespace plait
