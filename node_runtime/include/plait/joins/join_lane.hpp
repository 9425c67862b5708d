// JoinLane: one lane of a join of two streams: of all records, in windows, or in an interval.
//
// A record meets the other side's records of its key, in the order they came, then waits for those
// to come; when the watermark has passed the last time at which it can match it is forgotten, and
// comes out then if the join wants records without a match. One thread at a time: the holder of the
// lane; never waits.
#pragma once

#include <cstdint>
#include <vector>

#include "plait/joins/due_queue.hpp"
#include "plait/joins/join_state.hpp"
#include "plait/joins/join_times.hpp"

namespace plait {

class JoinLane final : public JoinState {
 public:
  JoinLane(const TimedSpec& spec, unsigned lane)
      : JoinState(spec, lane),
        times_(spec_),
        timed_(times_.timed()),
        left_only_(spec.how == How::Semi || spec.how == How::Anti),
        keeps_unmatched_(spec.how == How::Left || spec.how == How::Anti) {
    layouts_[0] = PackedRow(spec.types, spec.left.columns);
    if (!left_only_) layouts_[1] = PackedRow(spec.types, spec.right.columns);
  }

  void process(const LaneRows& rows, Emitter& out) override {
    const Batch& batch = rows.batch;
    const int64_t* sides = batch.columns[size_t(spec_.side)].i64();
    const int64_t* clocks[2] = {nullptr, nullptr};
    if (timed_) {
      clocks[0] = batch.columns[size_t(spec_.left.time)].i64();
      clocks[1] = batch.columns[size_t(spec_.right.time)].i64();
    }
    keys_.bind(batch);
    for (PackedRow& layout : layouts_) layout.bind(batch);
    RowClock clock(rows);
    for (uint32_t i = 0; i < rows.count; ++i) {
      fetch_ahead(rows, i);
      clock.go(i);
      InputRow row{rows.row(i), rows.place(i), 0, kAllTime, 0, clock};
      row.side = sides[row.at] != 0;
      if (timed_) {
        row.time = clocks[row.side][row.at];
        row.last = times_.last_of(row.side, row.time);
        if (clock.passed(row.last) && clock.passed(times_.late_after(row.side, row.time))) {
          ++out.late;
          continue;
        }
        if (!times_.somewhere(row.time, row.last)) {
          ++out.left_out;
          continue;
        }
      }
      const KeyView v = keys_.read(row.at, rows.hashes[i]);
      if (v.null && (row.side || !keeps_unmatched_)) {
        ++out.left_out;
        continue;
      }
      JoinKey* key = find(v);
      if (row.side) {
        take_right(v, key, row, out);
      } else {
        take_left(v, key, row, out);
      }
    }
  }

  void advance(int64_t, int64_t watermark, Emitter& out) override {
    if (!timed_) {
      if (watermark == kAllTime) end(out);
      return;
    }
    const auto over = [&](JoinRecord* r) {
      if (JoinKey* key = r->key) {
        if (r->side == 0 && !r->matched) unmatched(r, out);
        key->lists[r->side].remove(r);
        settle(key);
      }
      forget(r);
    };
    due_.take(watermark, over, FetchRecord());
  }

  int64_t byte_size() const override { return JoinState::byte_size() + int64_t(due_.byte_size()); }

 protected:
  void entered(JoinRecord* r) override {
    if (timed_) due_.add(due_after(r->last), r);
  }
  void leaving(const std::vector<uint8_t>& leaves) override {
    // A record in no list has no bin any more; its memory waits for its time.
    due_.remove([&](const JoinRecord* r) { return r->key && leaves[bin_of(r->key->hash)]; });
  }

 private:
  using How = TimedSpec::How;

  struct InputRow {
    uint32_t at;  // in the batch
    uint64_t place;
    int64_t time, last;
    uint32_t side;
    RowClock& clock;
  };

  PLAIT_INLINE int64_t pairs(const InputRow& row, const JoinRecord* other) const {
    if (!timed_) return 1;
    if (row.clock.passed(other->last)) return 0;
    const int64_t watermark = times_.sliding() ? row.clock.now() : kNoTime;
    return row.side ? times_.pairs(other->time, other->last, row.time, row.last, watermark)
                    : times_.pairs(row.time, row.last, other->time, other->last, watermark);
  }

  void take_left(const KeyView& v, JoinKey* key, const InputRow& row, Emitter& out) {
    bool matched = false;
    if (key && !v.null) {
      for (JoinRecord* r = key->lists[1].head; r; r = r->next) {
        const int64_t n = pairs(row, r);
        if (n == 0) continue;
        matched = true;
        if (left_only_) break;
        for (int64_t k = 0; k < n; ++k) {
          out.at_once(row.place);
          layouts_[0].append_row(row.at, out.columns, 0);
          layouts_[1].append(r->body(), out.columns, layouts_[0].columns());
        }
      }
    }
    if (left_only_ && matched) {
      if (spec_.how == How::Semi) {
        out.at_once(row.place);
        layouts_[0].append_row(row.at, out.columns, 0);
      }
      return;
    }
    if (row.clock.passed(row.last)) {  // nothing that comes can match it
      if (!matched) give_alone(row, out);
      return;
    }
    store(v, key, row, matched);
  }

  void take_right(const KeyView& v, JoinKey* key, const InputRow& row, Emitter& out) {
    JoinRecord* next = nullptr;
    for (JoinRecord* r = key ? key->lists[0].head : nullptr; r; r = next) {
      next = r->next;
      const int64_t n = pairs(row, r);
      if (n == 0) continue;
      if (left_only_) {
        if (spec_.how == How::Semi) {
          out.at_once(row.place);
          layouts_[0].append(r->body(), out.columns, 0);
        }
        unlink(r);
        continue;
      }
      r->matched = 1;
      for (int64_t k = 0; k < n; ++k) {
        out.at_once(row.place);
        layouts_[0].append(r->body(), out.columns, 0);
        layouts_[1].append_row(row.at, out.columns, layouts_[0].columns());
      }
    }
    if (row.clock.passed(row.last)) {  // nothing that comes can match it
      if (key) settle(key);
      return;
    }
    // That there is a right record is all such a join wants to know.
    if (left_only_ && key && key->lists[1].tail && same_for_all(row, key->lists[1].tail)) return;
    store(v, key, row, false);
  }

  // Whether two right records match the same left ones.
  bool same_for_all(const InputRow& row, const JoinRecord* r) const {
    return !timed_ || row.time == r->time || (times_.tumbling() && row.last == r->last);
  }

  void store(const KeyView& v, JoinKey* key, const InputRow& row, bool matched) {
    if (!key) key = add(v);
    const PackedRow& layout = layouts_[row.side];
    JoinRecord* r = make(layout.size(row.at));
    layout.pack(row.at, r->body());
    r->key = key;
    r->time = row.time;
    r->last = row.last;
    r->place = row.place;
    r->side = uint8_t(row.side);
    r->matched = matched;
    key->lists[row.side].append(r);
    entered(r);
  }

  // Takes a record out of its list; its key stays, for the caller.
  void unlink(JoinRecord* r) {
    r->key->lists[r->side].remove(r);
    r->key = nullptr;
    if (!timed_) forget(r);  // otherwise it waits in due_
  }

  void give_alone(const InputRow& row, Emitter& out) {
    if (!keeps_unmatched_) return;
    out.at_once(row.place);
    layouts_[0].append_row(row.at, out.columns, 0);
    if (!left_only_) layouts_[1].append_nulls(out.columns, layouts_[0].columns());
  }
  void unmatched(const JoinRecord* r, Emitter& out) {
    if (!keeps_unmatched_) return;
    out.begin(order_time(r->last), r->place);
    layouts_[0].append(r->body(), out.columns, 0);
    if (!left_only_) layouts_[1].append_nulls(out.columns, layouts_[0].columns());
  }

  void end(Emitter& out) {
    if (!keeps_unmatched_) return;
    std::vector<JoinKey*> touched;
    each_key([&](JoinKey* key) { touched.push_back(key); });
    for (JoinKey* key : touched) {
      for (JoinRecord *r = key->lists[0].head, *next; r; r = next) {
        next = r->next;
        if (!r->matched) unmatched(r, out);
        key->lists[0].remove(r);
        forget(r);
      }
      settle(key);
    }
  }

  JoinTimes times_;
  const bool timed_, left_only_, keeps_unmatched_;
  DueQueue<JoinRecord*> due_;
};

}  // namespace plait
