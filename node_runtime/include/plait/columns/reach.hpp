// Reach: how far an origin's event time is at each row of a unit.
//
// Entry i of `times` is the greatest event time of the unit's rows up to row `first` + i, so it
// never falls; where the column is in order already it is the column itself, without a copy. What a
// `max_jump` leaves of a time depends on the time before the unit, so the times of the single rows
// stay at hand for the rare unit in which a jump is cut short. Written once, then only read: any
// thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "plait/core/buffer.hpp"
#include "plait/core/dispatch.hpp"

namespace plait {

struct Reach {
  BufferRef owner, row_owner;
  const int64_t* times = nullptr;
  const int64_t* row_times = nullptr;  // of each row
  int64_t first = 0, rows = 0;         // those of the unit's rows that it covers
  bool whole = false;  // on several nodes: it covers all rows, and no other node adds to it

  int64_t last() const { return times[rows - 1]; }
};

using ReachRef = std::shared_ptr<const Reach>;

struct TimesFall {
  PLAIT_INLINE static bool run(const int64_t* times, int64_t rows) {
    uint64_t falls = 0;
    for (int64_t i = 1; i < rows; ++i) falls |= uint64_t(times[i] < times[i - 1]);
    return falls != 0;
  }
};

// Of the times of a unit's rows from `first` on, which lie in `owner`; at least one.
inline std::shared_ptr<Reach> reach_of(const int64_t* times, int64_t rows, BufferRef owner,
                                       int64_t first) {
  auto reach = std::make_shared<Reach>();
  reach->first = first;
  reach->rows = rows;
  reach->row_times = times;
  reach->row_owner = owner;
  if (!dispatch<TimesFall>(times, rows)) {
    reach->times = times;
    reach->owner = std::move(owner);
    return reach;
  }
  reach->owner = BufferRef::make(8 * rows);
  auto* to = reach->owner.as<int64_t>();
  int64_t greatest = times[0];
  for (int64_t i = 0; i < rows; ++i) to[i] = greatest = std::max(greatest, times[i]);
  reach->times = to;
  return reach;
}

// The reach of a whole unit from what the nodes have of it, in any sequence: slices of its rows, or
// of one reader all of them. Null: the unit has no rows with a time.
inline ReachRef join_reach(std::vector<ReachRef> parts) {
  std::erase(parts, nullptr);
  for (const ReachRef& part : parts) {
    if (part->whole) return part;
  }
  if (parts.empty()) return nullptr;
  if (parts.size() == 1) {
    auto whole = std::make_shared<Reach>(*parts[0]);
    whole->whole = true;
    return whole;
  }
  std::sort(parts.begin(), parts.end(),
            [](const ReachRef& a, const ReachRef& b) { return a->first < b->first; });
  int64_t rows = 0;
  for (const ReachRef& part : parts) rows += part->rows;
  BufferRef times = BufferRef::make(8 * rows);
  auto* to = times.as<int64_t>();
  for (const ReachRef& part : parts) {
    std::memcpy(to, part->row_times, size_t(8 * part->rows));
    to += part->rows;
  }
  const auto* from = times.as<int64_t>();
  auto whole = reach_of(from, rows, std::move(times), parts[0]->first);
  whole->whole = true;
  return whole;
}

}  // namespace plait
