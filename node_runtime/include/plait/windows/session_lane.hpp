// SessionLane: aggregates or top rows of sessions, the records of a key less than a gap apart.
//
// A record extends the session it falls into, joins those it connects (their groups are combined in
// the order of time), or begins one. A heap has one entry for each session that says when to look
// at it again; a session that was extended since is put back, so a record costs no heap operation.
// Whether a record fits the sums of what it joins is known before anything changes: so checked sums
// are added row by row, other results in blocks. All calls belong to the holder of the lane; never
// waits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "plait/groups/group_bins.hpp"
#include "plait/groups/group_fold.hpp"
#include "plait/windows/session_store.hpp"
#include "plait/windows/window_emit.hpp"

namespace plait {

class SessionLane : public LaneOperator {
 public:
  explicit SessionLane(const TimedSpec& spec)
      : time_(spec.time),
        arrival_(spec.arrival),
        gap_(spec.gap),
        lateness_(spec.lateness),
        early_(spec.early),
        plan_(spec, Store::kHeader, true),
        store_(plan_) {
    const bool good = gap_ > 0 && gap_ <= kMostLength && lateness_ >= 0 &&
                      lateness_ <= kMostLength && early_ >= 0 && (arrival_ || time_ >= 0);
    if (!good) throw std::invalid_argument("a session needs an event time and a gap above 0");
  }

  void process(const LaneRows& rows, Emitter& out) override {
    plan_.keys.bind(rows.batch);
    const Column* time = arrival_ ? nullptr : &rows.batch.columns[size_t(time_)];
    RowClock clock(rows);
    for (uint32_t i = 0; i < rows.count; ++i) {
      if (i + kAsk < rows.count) store_.prefetch(rows.hashes[i + kAsk]);
      if (i + kAsk / 2 < rows.count) store_.prefetch_slot(rows.hashes[i + kAsk / 2]);
      const uint32_t row = rows.row(i);
      if (time && !time->valid(row)) {
        ++out.left_out;
        continue;
      }
      const int64_t t = clamp_time(time ? time->i64()[row] : rows.arrival);
      clock.go(i);
      const bool behind = clock.passed(t);  // others meet nothing that has ended
      if (behind && t + gap_ + lateness_ <= clock.now()) {
        ++out.late;
        continue;
      }
      const Key key = plan_.keys.of_row(rows.hashes[i], row);
      if (behind) settle(key, clock.now(), rows, out);
      const uint32_t first = first_after(key, t);
      if (!plan_.sums.empty() && !fits(first, t, rows.batch, row, out)) continue;
      uint64_t* s = session(key, first, t, rows, i);
      for (const GroupOp& op : plan_.sums) add_sum(op, s, rows.batch, row);
      block_.slots[block_.n] = s;
      block_.seen[block_.n] = ++s[Store::kRows];
      block_.rows[block_.n] = row;
      block_.places[block_.n] = rows.place(i);
      if (++block_.n == GroupBlock::kRows) work_off(rows);
      if (behind && Store::end(s) <= clock.now()) {
        work_off(rows);
        give(s, kAtOnce, rows.place(i), out);
        s[Store::kNext] |= Store::kGiven;
      }
    }
    work_off(rows);
  }

  int64_t early() const override { return early_; }

  void advance(int64_t before, int64_t watermark, Emitter& out) override {
    while (!heap_.empty() && heap_.front().time <= watermark) {
      const Due due = heap_.front();
      std::pop_heap(heap_.begin(), heap_.end());
      heap_.pop_back();
      if (!store_.alive(due.id, due.serial)) continue;
      uint64_t* s = store_.slot(due.id);
      if (int64_t(s[Store::kDue]) != due.time) continue;
      s[Store::kDue] = uint64_t(INT64_MAX);
      if (Store::end(s) <= watermark && !(s[Store::kNext] & Store::kGiven)) {
        give(s, Store::end(s), s[Store::kPlace], out);
        s[Store::kNext] |= Store::kGiven;
      }
      if (Store::end(s) + lateness_ <= watermark) {
        store_.erase(due.id);
      } else {
        schedule(due.id, s);
      }
    }
    const bool fires =
        early_ && watermark > before && watermark != kAllTime &&
        (before == kNoTime || floor_div(watermark, early_) != floor_div(before, early_));
    if (!fires) return;
    for (const Due& changed : changed_) {
      if (!store_.alive(changed.id, changed.serial)) continue;
      uint64_t* s = store_.slot(changed.id);
      s[Store::kNext] &= ~Store::kEarly;
      if (Store::end(s) > watermark) give(s, Store::end(s), s[Store::kPlace], out, true);
    }
    changed_.clear();
  }

  uint64_t bin_keys(uint32_t bin) const override { return store_.in_bin(bin); }
  int64_t byte_size() const override {
    return int64_t(store_.byte_size() + heap_.capacity() * sizeof(Due));
  }
  std::vector<Bytes> copy_bins(std::span<const uint32_t> bins) const override {
    std::vector<GroupWriter> writers(bins.size());
    const GroupBins wanted(plan_, bins);
    store_.each([&](uint32_t id) {
      const uint64_t* s = store_.slot(id);
      const uint32_t b = wanted.of(s[Store::kHash]);
      if (b != GroupBins::kNone) write(s, writers[b]);
    });
    return wanted.finish(writers);
  }
  void drop_bins(std::span<const uint32_t> bins) override {
    const GroupBins gone(plan_, bins);
    std::vector<uint32_t> ids;
    store_.each([&](uint32_t id) {
      if (gone.has(store_.slot(id)[Store::kHash])) ids.push_back(id);
    });
    for (uint32_t id : ids) store_.erase(id);
  }
  std::string put_bin(uint32_t bin, const uint8_t* data, size_t size) override {
    std::vector<uint32_t> ids;
    const auto undo = [&] {
      for (uint32_t id : ids) store_.erase(id);
    };
    std::string reason = read_group_bin(
        plan_, bin, store_.in_bin(bin) != 0, data, size, "the sessions",
        [&](GroupReader& in) { read(in, bin, ids); }, undo);
    if (!reason.empty()) return reason;
    for (uint32_t id : ids) {
      uint64_t* s = store_.slot(id);
      schedule(id, s);
      if (s[Store::kNext] & Store::kEarly) changed_.push_back({0, id, s[Store::kSerial]});
    }
    return "";
  }

 private:
  using Store = SessionStore;
  static constexpr uint32_t kAsk = 32;  // rows that are asked for ahead
  struct Due {
    int64_t time;
    uint32_t id;
    uint64_t serial;
    bool operator<(const Due& o) const { return time > o.time; }  // the earliest on top
  };

  // Lets time go on for one key: a record that comes after the end of its sessions must not change
  // what they give.
  void settle(const Key& key, int64_t watermark, const LaneRows& rows, Emitter& out) {
    for (uint32_t id = store_.first(key), next = 0; id != Store::kNone; id = next) {
      uint64_t* s = store_.slot(id);
      next = store_.next(s);
      if (Store::end(s) > watermark) return;
      if (!(s[Store::kNext] & Store::kGiven)) {
        work_off(rows);
        give(s, Store::end(s), s[Store::kPlace], out);
        s[Store::kNext] |= Store::kGiven;
      }
      if (Store::end(s) + lateness_ <= watermark) store_.erase(id);
    }
  }

  void work_off(const LaneRows& rows) {
    group_detail::fold_others(plan_, rows.batch, block_);
    block_.n = 0;
  }

  // The first session of a key that ends after t, or kNone.
  uint32_t first_after(const Key& key, int64_t t) const {
    uint32_t id = store_.first(key);
    while (id != Store::kNone && Store::end(store_.slot(id)) <= t) {
      id = store_.next(store_.slot(id));
    }
    return id;
  }
  // Whether a record fits the sums of the sessions that it joins, one added to the other, `from`
  // being the first that ends after it; if not it has failed. Sums of sessions that do not fit
  // together are nobody's fault.
  bool fits(uint32_t from, int64_t t, const Batch& batch, uint32_t row, Emitter& out) const {
    if (from == Store::kNone || Store::start(store_.slot(from)) >= t + gap_) return true;
    uint32_t next = store_.next(store_.slot(from));
    if (next == Store::kNone || Store::start(store_.slot(next)) >= t + gap_) {
      return fits_sums(plan_, store_.slot(from), batch, row, out.failed);
    }
    std::vector<uint64_t> whole(store_.slot(from), store_.slot(from) + plan_.words);
    for (; next != Store::kNone && Store::start(store_.slot(next)) < t + gap_;
         next = store_.next(store_.slot(next))) {
      for (const GroupOp& op : plan_.sums) {
        group_detail::combine_op(op, whole.data(), store_.slot(next));
      }
    }
    return fits_sums(plan_, whole.data(), batch, row, out.failed);
  }

  // The session of a record, joined and extended by it; `id`: the first that ends after it.
  uint64_t* session(const Key& key, uint32_t id, int64_t t, const LaneRows& rows, uint32_t i) {
    const int64_t end = t + gap_;
    uint64_t* s = id == Store::kNone ? nullptr : store_.slot(id);
    if (!s || Store::start(s) >= end) {
      id = store_.insert(key, t, end, rows.place(i));
      s = store_.slot(id);
    } else {
      join_next(s, end, rows);
      s[Store::kStart] = uint64_t(std::min(Store::start(s), t));
      s[Store::kEnd] = uint64_t(std::max(Store::end(s), end));
      s[Store::kNext] &= ~Store::kGiven;
    }
    if (early_ && !(s[Store::kNext] & Store::kEarly)) {
      s[Store::kNext] |= Store::kEarly;
      changed_.push_back({0, id, s[Store::kSerial]});
    }
    schedule(id, s);
    return s;
  }
  // Takes in the sessions behind s that begin before `end`.
  void join_next(uint64_t* s, int64_t end, const LaneRows& rows) {
    for (uint32_t id = store_.next(s); id != Store::kNone; id = store_.next(s)) {
      const uint64_t* other = store_.slot(id);
      if (Store::start(other) >= end) return;
      work_off(rows);  // the groups must be as of now
      combine(plan_, s, other);
      s[Store::kPlace] = std::min(s[Store::kPlace], other[Store::kPlace]);
      s[Store::kEnd] = uint64_t(std::max(Store::end(s), Store::end(other)));
      store_.erase(id);
    }
  }
  // Puts the session into the heap unless it is there early enough.
  void schedule(uint32_t id, uint64_t* s) {
    const bool given = s[Store::kNext] & Store::kGiven;
    const int64_t due = Store::end(s) + (given ? lateness_ : 0);
    if (due >= int64_t(s[Store::kDue])) return;
    s[Store::kDue] = uint64_t(due);
    heap_.push_back({due, id, s[Store::kSerial]});
    std::push_heap(heap_.begin(), heap_.end());
  }
  void give(uint64_t* s, int64_t time, uint64_t place, Emitter& out, bool early = false) {
    emit_group(plan_, store_.key(s), s, Store::start(s), Store::end(s), time, place, false, out,
               early);
  }

  void write(const uint64_t* s, GroupWriter& out) const {
    const Key key = store_.key(s);
    out.byte(uint8_t(s[Store::kNext] >> 32));
    for (unsigned w : {Store::kHash, Store::kRows, Store::kStart, Store::kEnd, Store::kPlace}) {
      out.word(s[w]);
    }
    if (plan_.keys.wide()) out.text(key.bytes);
    write_cells(plan_, s, out);
    out.counted();
  }
  void read(GroupReader& in, uint32_t bin, std::vector<uint32_t>& ids) {
    const uint64_t flags = uint64_t(in.byte()) << 32;
    Key key{in.word(), (flags & Store::kNullKey) != 0, {}};
    const uint64_t rows = in.word();
    const auto start = int64_t(in.word()), end = int64_t(in.word());
    const uint64_t place = in.word();
    if (plan_.keys.wide()) key.bytes = in.text();
    const bool far = start != clamp_time(start) || end < start || end > kFarTime + gap_;
    if (far || !rows || !plan_.came_with(key.hash, bin) || !plan_.keys.right(key)) in.fail();
    if (!in.ok()) return;
    const uint32_t id = store_.insert(key, start, end, place);
    ids.push_back(id);
    uint64_t* s = store_.slot(id);
    s[Store::kRows] = rows;
    s[Store::kNext] |= flags & (Store::kGiven | Store::kEarly);
    read_cells(plan_, s, in);
  }

  const int time_;
  const bool arrival_;
  const int64_t gap_, lateness_, early_;
  GroupPlan plan_;
  SessionStore store_;
  std::vector<Due> heap_;     // at most one for a session counts: that with its kDue
  std::vector<Due> changed_;  // since results came early
  GroupBlock block_;
};

}  // namespace plait
