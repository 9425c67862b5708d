// LaneOperator: one lane of an event-time operator: its keys' state, and what it makes of rows and
// of time going on.
//
// For every unit, in order: process with the lane's rows (not called if there are none), then
// advance with the watermark as it is after the unit (not called if it did not rise). A unit in
// which results come `early` is given in parts, each with its advance. The watermark rises with
// every row, so a lane that takes rows first and then gives what is due must ask for each row
// whether something it meets has ended before: `LaneRows::at`. Bins move between units. All calls
// come from the holder of the lane, one at a time; nothing here waits. An exception (out of memory)
// ends the job.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "plait/core/dispatch.hpp"
#include "plait/keyed/bin_format.hpp"
#include "plait/time/emitter.hpp"
#include "plait/time/timed_spec.hpp"
#include "plait/time/unit_clock.hpp"

namespace plait {

// A lane's rows of a unit, in order.
struct LaneRows {
  const Batch& batch;
  const uint32_t* rows;  // row i of the lane is row rows[i] of the batch; null: see `skipped`
  uint32_t count;
  const uint64_t* hashes;  // of the key of row i of the lane (key_hash.hpp)
  uint64_t base;           // the place of row r of the batch is base + (order ? order[r] : r)
  const uint32_t* order;
  const UnitClock& clock;
  uint32_t skipped = 0;  // rows null: row i of the lane is this row of the batch plus i
  int64_t arrival = 0;   // the wall clock of the unit, which no unit before it is above

  // Those from row `from` of the lane to before `to`.
  LaneRows slice(uint32_t from, uint32_t to) const {
    LaneRows part = *this;
    if (from == 0 && to == count) return part;
    part.rows = rows ? rows + from : nullptr;
    part.skipped = rows ? 0 : skipped + from;
    part.hashes = hashes + from;
    part.count = to - from;
    return part;
  }

  uint32_t row(uint32_t i) const { return rows ? rows[i] : skipped + i; }
  // Unique among all rows of all units but those of one key; it grows in their order.
  PLAIT_INLINE uint64_t place(uint32_t i) const { return base + (order ? order[row(i)] : row(i)); }
  // Where row i of the lane is in the unit.
  PLAIT_INLINE int64_t position(uint32_t i) const { return batch.position(row(i)); }
  // The watermark when row i of the lane is taken; kNoTime: none yet.
  PLAIT_INLINE int64_t at(uint32_t i) const { return clock.at(position(i)); }
};

// The watermark at one row of a lane after the other. Most of what a row meets is not over at the
// end of a few rows, and then it need not be known at which row.
class RowClock {
 public:
  explicit RowClock(const LaneRows& rows) : rows_(rows) {}
  // Rows ascend.
  PLAIT_INLINE void go(uint32_t i) {
    i_ = i;
    if (i >= few_) [[unlikely]]
      look_ahead();
  }
  // Whether the watermark is above t.
  PLAIT_INLINE bool passed(int64_t t) { return t < soon_ && t < now(); }
  [[gnu::noinline]] int64_t now() {
    if (known_ != i_) {
      now_ = rows_.at(i_);
      known_ = i_;
    }
    return now_;
  }

 private:
  static constexpr uint32_t kFew = 32;

  [[gnu::noinline]] void look_ahead() {
    few_ = std::min(i_ + kFew, rows_.count);
    soon_ = rows_.at(few_ - 1);
  }

  const LaneRows& rows_;
  int64_t soon_ = 0;  // the watermark at the last of a few rows: those before few_
  int64_t now_ = 0;
  uint32_t i_ = 0, few_ = 0;
  uint32_t known_ = UINT32_MAX;  // the row of now_
};

class LaneOperator {
 public:
  virtual ~LaneOperator() = default;

  virtual void process(const LaneRows& rows, Emitter& out) = 0;
  // All that is due at `watermark` (times <= it) comes out, in any sequence: the emitter's orders
  // count. `before`: the watermark at the last call.
  virtual void advance(int64_t before, int64_t watermark, Emitter& out) = 0;
  // Above 0: whenever the watermark passes a multiple of it, advance is called at once.
  virtual int64_t early() const { return 0; }

  // State by bin (the top bin_bits of the hash), with all that is pending. Keys of a bin, by its
  // number; those of other lanes are never asked for.
  virtual uint64_t bin_keys(uint32_t bin) const = 0;
  virtual int64_t byte_size() const = 0;
  // The bins as bytes, one for each; an empty bin gives no bytes. One walk over the state serves
  // all of them.
  virtual std::vector<Bytes> copy_bins(std::span<const uint32_t> bins) const = 0;
  virtual void drop_bins(std::span<const uint32_t> bins) = 0;
  // Empty: the bin is in. Otherwise the reason (damaged, of another operator, here already), and
  // nothing was changed.
  [[nodiscard]] virtual std::string put_bin(uint32_t bin, const uint8_t* data, size_t size) = 0;

  // What is kept, as rows, for those who look at state (engine/resting_lane.hpp has the columns):
  // the results as they would be if time ended now, at the watermark `now`. The lane is of no other
  // use afterwards.
  virtual void list(int64_t now, Emitter& out) { advance(now, kAllTime, out); }
};

}  // namespace plait
