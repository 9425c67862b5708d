// The order of what an event-time operator makes of a unit: places of the rows it is given, tags of
// those it makes.
//
// A row's place is unique among all rows of all units but those of one key, and grows in their
// order: the number of the unit, then the row within it. Any thread, on batches it owns.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "plait/columns/batch.hpp"
#include "plait/columns/failure.hpp"
#include "plait/core/dispatch.hpp"
#include "plait/time/emitter.hpp"
#include "plait/time/unit_clock.hpp"

namespace plait {

inline constexpr unsigned kRowBits = 26;  // of a place: the row within the unit

// As the width of the subs that tell rows of a unit apart: they do so alone, whatever the tags.
inline constexpr int kIndexed = -1;

// The rows within their unit on several nodes, where a node has only some of them: by tag and, of
// equal tags, by so many bits of the sub. Ascending.
inline BufferRef order_of(const Batch& batch, int sub_bits) {
  BufferRef order = BufferRef::make(4 * batch.length);
  for (int64_t i = 0; i < batch.length; ++i) {
    const uint64_t sub = batch.subs ? batch.subs[i] : 0;
    const uint64_t at =
        sub_bits == kIndexed ? sub : uint64_t(batch.row_number(i) - batch.base) << sub_bits | sub;
    if (at >> kRowBits) throw std::length_error("an epoch has too many rows to keep in order");
    order.as<uint32_t>()[i] = uint32_t(at);
  }
  return order;
}

// A failed record at the place of the rows that would be made of it, as set_tags has them: where
// they meet those of other nodes it is told by that place what comes before it. `base`: the place
// of the unit's first row. One that is behind all rows stays there.
inline std::shared_ptr<Failure> placed(const Failure& failure, const Batch& unit, uint64_t base,
                                       int sub_bits) {
  auto made = std::make_shared<Failure>(failure);
  Letter& letter = made->letter;
  if (letter.row < 0 || letter.sub == std::numeric_limits<uint64_t>::max()) return made;
  const uint64_t row = uint64_t(letter.row - unit.base);
  letter.sub = base + (sub_bits == kIndexed ? letter.sub : row << sub_bits | letter.sub);
  return made;
}

struct TimedRow {
  Emitter::Order order;
  uint32_t at;  // among the rows as they were made
  bool operator<(const TimedRow& o) const { return order < o.order; }
};

// The tag of a row that was made of a unit: that of the record it came from, or of the mark at
// which it fell due. Of what has a time above `reached` (results before the end of a window),
// `last`. `order`: of the batch's rows (order_of); null: a row is its position.
struct TagFinder {
  const Batch& batch;
  const uint32_t* order;
  const UnitClock& clock;
  // The last due time and its position: the rows of a window share them.
  mutable int64_t due = kAtOnce, due_at = 0;
  // The last row that made some at once, and its position: it may make many.
  mutable uint64_t place = UINT64_MAX;
  mutable uint32_t made_at = 0;

  PLAIT_INLINE uint32_t operator()(const Emitter::Order& o, int64_t reached, int64_t last) const {
    constexpr uint64_t kMask = (uint64_t(1) << kRowBits) - 1;
    if (o.time != kAtOnce) {
      if (o.time > reached) return uint32_t(last);
      if (o.time != due) {
        due = o.time;
        due_at = clock.due_position(due);
      }
      return uint32_t(due_at);
    }
    if (o.place != place) {
      auto row = int64_t(o.place & kMask);
      if (order) row = std::lower_bound(order, order + batch.length, uint32_t(row)) - order;
      place = o.place;
      made_at = uint32_t(batch.position(row));
    }
    return made_at;
  }
};

// Gives the batch the tags of the rows that were made of it, which are in order; its own are gone
// then. `nodes`: the rows go on with their order, to be put in order where they meet those of other
// nodes.
// `order_at(i)`: of row i of them.
template <class OrderAt>
void set_tags(Batch& batch, int64_t n, OrderAt order_at, bool nodes) {
  BufferRef tags = BufferRef::make(4 * n);
  for (int64_t i = 0; i < n; ++i) tags.as<uint32_t>()[i] = order_at(i).tag;
  batch.first_row = batch.base;
  batch.halves = true;
  batch.bits = TagBits();
  batch.tags = tags.as<uint32_t>();
  batch.tags_owner = std::move(tags);
  batch.subs = nullptr;
  batch.subs_owner = BufferRef();
  if (!nodes) return;
  BufferRef times = BufferRef::make(8 * n), subs = BufferRef::make(8 * n);
  for (int64_t i = 0; i < n; ++i) {
    times.as<int64_t>()[i] = order_at(i).time;
    subs.as<uint64_t>()[i] = order_at(i).place;
  }
  batch.times = times.as<int64_t>();
  batch.times_owner = std::move(times);
  batch.subs = subs.as<uint64_t>();
  batch.subs_owner = std::move(subs);
}

}  // namespace plait
