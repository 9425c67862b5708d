// AsOfLane: one lane of a join with the last right record at or before the left one.
//
// Left records wait until the watermark is above their time, and meet the right records that came
// before the mark at which that happens. The right records of a key lie in the order of their
// times, equal ones in the order they came; when the watermark has reached one, those before it are
// of no use to any left record that may still come. One thread at a time: the holder of the lane;
// never waits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "plait/joins/due_queue.hpp"
#include "plait/joins/join_state.hpp"
#include "plait/joins/join_times.hpp"

namespace plait {

class AsOfLane final : public JoinState {
 public:
  AsOfLane(const TimedSpec& spec, unsigned lane)
      : JoinState(spec, lane), left_only_(spec.how == How::Semi || spec.how == How::Anti) {
    layouts_[0] = PackedRow(spec.types, spec.left.columns);
    if (!left_only_) layouts_[1] = PackedRow(spec.types, spec.right.columns);
  }

  void process(const LaneRows& rows, Emitter& out) override {
    const Batch& batch = rows.batch;
    const int64_t* sides = batch.columns[size_t(spec_.side)].i64();
    const int64_t* clocks[2] = {batch.columns[size_t(spec_.left.time)].i64(),
                                batch.columns[size_t(spec_.right.time)].i64()};
    keys_.bind(batch);
    for (PackedRow& layout : layouts_) layout.bind(batch);
    note_marks(rows);
    for (uint32_t i = 0; i < rows.count; ++i) {
      fetch_ahead(rows, i);
      const uint32_t row = rows.row(i);
      const uint32_t side = sides[row] != 0;
      const int64_t time = clocks[side][row];
      const int64_t last = last_of(side, time);
      if (last < rows.clock.end() && last < rows.at(i)) {
        ++out.late;
        continue;
      }
      const KeyView v = keys_.read(row, rows.hashes[i]);
      if (v.null && side) continue;
      JoinKey* key = find(v);
      if (!key) key = add(v);
      JoinRecord* r = make(layouts_[side].size(row));
      layouts_[side].pack(row, r->body());
      r->key = key;
      r->time = time;
      r->last = last;
      r->place = rows.place(i);
      r->side = uint8_t(side);
      r->matched = 0;
      if (side) {
        insert(key->lists[1], r);
      } else {
        key->lists[0].append(r);
      }
      entered(r);
    }
  }

  void advance(int64_t, int64_t watermark, Emitter& out) override {
    const auto ready = [&](JoinRecord* r) {
      JoinKey* key = r->key;
      emit(*r, best(*r), out);
      key->lists[0].remove(r);
      settle(key);
      forget(r);
    };
    lefts_.take(watermark, ready, FetchRecord());
    again_.clear();
    rights_.take(watermark, [&](JoinRecord* r) { passed(r, watermark); }, FetchRecord());
    for (JoinRecord* r : again_) wait(r, due_after(r->last));
    marks_.clear();
  }

  int64_t byte_size() const override {
    return JoinState::byte_size() + int64_t(lefts_.byte_size() + rights_.byte_size());
  }

 protected:
  void entered(JoinRecord* r) override {
    if (r->side) {
      wait(r, r->time);
    } else {
      lefts_.add(due_after(r->time), r);
    }
  }
  void leaving(const std::vector<uint8_t>& leaves) override {
    const auto gone = [&](const JoinRecord* r) { return r->key && leaves[bin_of(r->key->hash)]; };
    lefts_.remove(gone);
    rights_.remove(gone);
  }

 private:
  using How = TimedSpec::How;

  int64_t last_of(uint32_t side, int64_t time) const {
    if (side == 0) return time;
    return spec_.tolerance ? add_times(time, spec_.tolerance) : kAllTime;
  }

  static void insert(JoinList& list, JoinRecord* r) {
    JoinRecord* at = list.tail;
    while (at && at->time > r->time) at = at->prev;
    list.insert_behind(at, r);
  }

  // A right record's `matched` says that it is in rights_.
  void wait(JoinRecord* r, int64_t due) {
    r->matched = 1;
    rights_.add(due, r);
  }

  // The times that the watermark reaches at right records of this unit, and where they are. What
  // comes later must not be met by a left record that was due before.
  struct Mark {
    int64_t watermark;
    uint64_t place;
  };
  void note_marks(const LaneRows& rows) {
    marks_.clear();
    for (uint32_t i = 0; i < rows.count; ++i) {
      const int64_t watermark = rows.at(i);
      if (watermark > (marks_.empty() ? rows.clock.before() : marks_.back().watermark)) {
        marks_.push_back({watermark, rows.place(i)});
      }
    }
  }
  // The place of the first row of this unit at which the watermark had reached `due`.
  uint64_t limit(int64_t due) const {
    const auto at =
        std::lower_bound(marks_.begin(), marks_.end(), due,
                         [](const Mark& mark, int64_t time) { return mark.watermark < time; });
    return at == marks_.end() ? UINT64_MAX : at->place;
  }

  // From the front: what lies there is what the watermark has just passed.
  const JoinRecord* best(const JoinRecord& left) const {
    const JoinRecord* found = nullptr;
    if (left.key->null) return nullptr;
    const uint64_t end = limit(due_after(left.time));
    for (const JoinRecord* r = left.key->lists[1].head; r && r->time <= left.time; r = r->next) {
      if (r->place < end) found = r;
    }
    return found && found->last >= left.time ? found : nullptr;
  }

  void emit(const JoinRecord& left, const JoinRecord* right, Emitter& out) {
    if (spec_.how == How::Anti ? right != nullptr : !right && spec_.how != How::Left) return;
    out.begin(order_time(left.time), left.place);
    layouts_[0].append(left.body(), out.columns, 0);
    if (left_only_) return;
    if (right) {
      layouts_[1].append(right->body(), out.columns, layouts_[0].columns());
    } else {
      layouts_[1].append_nulls(out.columns, layouts_[0].columns());
    }
  }

  // The watermark has reached a right record's time, or the end of its tolerance.
  void passed(JoinRecord* r, int64_t watermark) {
    r->matched = 0;
    JoinKey* key = r->key;
    if (!key) return forget(r);
    JoinList& list = key->lists[1];
    if (r->last < watermark) {
      list.remove(r);
      settle(key);
      return forget(r);
    }
    while (list.head != r) {
      JoinRecord* old = list.head;
      list.remove(old);
      old->key = nullptr;
      if (!old->matched) forget(old);
    }
    if (!spec_.tolerance) return;
    r->matched = 1;  // it will be, when this is over
    again_.push_back(r);
  }

  const bool left_only_;
  DueQueue<JoinRecord*> lefts_, rights_;
  std::vector<JoinRecord*> again_;
  std::vector<Mark> marks_;
};

}  // namespace plait
