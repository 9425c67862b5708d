// SpanLane: one lane of aggregates over the right records in the time span of a left one.
//
// A right record goes into the cells of the left records of its key that are there, and is kept for
// those that may still come: in the log (span_log.hpp), or in its key's list, where all is older. A
// left record begins with the right ones that are kept, in the order they came, and comes out when
// the watermark is above its end: at once if it is already, and the record itself is not late. A
// record of either side that does not fit a sum fails, and is not kept. One thread at a time: the
// holder of the lane; never waits.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "plait/joins/due_queue.hpp"
#include "plait/joins/join_state.hpp"
#include "plait/joins/join_times.hpp"
#include "plait/joins/span_cells.hpp"
#include "plait/joins/span_log.hpp"

namespace plait {

class SpanLane final : public JoinState {
 public:
  SpanLane(const TimedSpec& spec, unsigned lane)
      : JoinState(spec, lane), cells_(spec.aggregates), log_(spec.wait) {
    layouts_[0] = PackedRow(spec.types, spec.left.columns);
    layouts_[1] = PackedRow(spec.types, cells_.inputs());
  }
  ~SpanLane() override {
    if (!cells_.texts()) return;
    each_key([&](JoinKey* key) {
      for (JoinRecord* r = key->lists[0].head; r; r = r->next) cells_.drop(words(r));
    });
  }

  void process(const LaneRows& rows, Emitter& out) override {
    const Batch& batch = rows.batch;
    const int64_t* sides = batch.columns[size_t(spec_.side)].i64();
    const int64_t* starts = batch.columns[size_t(spec_.span_start)].i64();
    const int64_t* ends = batch.columns[size_t(spec_.span_end)].i64();
    const int64_t* left_clock = batch.columns[size_t(spec_.left.time)].i64();
    const int64_t* clock = batch.columns[size_t(spec_.right.time)].i64();
    keys_.bind(batch);
    for (PackedRow& layout : layouts_) layout.bind(batch);
    RowClock row_clock(rows);
    for (uint32_t i = 0; i < rows.count; ++i) {
      fetch_ahead(rows, i);
      row_clock.go(i);
      const uint32_t row = rows.row(i);
      const KeyView v = keys_.read(row, rows.hashes[i]);
      if (sides[row] != 0) {
        take_right(v, row, clock[row], row_clock, out);
      } else if (row_clock.passed(std::max(ends[row], left_clock[row]))) {
        ++out.late;
      } else {
        take_left(v, row, rows.place(i), starts[row], ends[row], row_clock, out);
      }
    }
  }

  void advance(int64_t, int64_t watermark, Emitter& out) override {
    const auto over = [&](JoinRecord* r) {
      JoinKey* key = r->key;
      if (r->side == 0) emit(r, order_time(r->last), r->place, out);
      key->lists[r->side].remove(r);
      settle(key);
      forget(r);
    };
    due_.take(watermark, over, FetchRecord());
    log_.release(
        watermark, [&](const SpanLog::LogEntry& e) { keep(e); },
        [&](JoinKey* key) { settle(key); });
  }

  std::vector<Bytes> copy_bins(std::span<const uint32_t> bins) const override {
    // Where a right record is kept makes no difference that anybody could see.
    const_cast<SpanLane*>(this)->empty_log();
    return JoinState::copy_bins(bins);
  }
  void drop_bins(std::span<const uint32_t> bins) override {
    empty_log();
    JoinState::drop_bins(bins);
  }

  int64_t byte_size() const override {
    return JoinState::byte_size() + int64_t(due_.byte_size() + log_.byte_size());
  }
  // The left records: key, their columns, the results so far.
  void list(int64_t, Emitter& out) override {
    const KeyCodec codec(spec_.types, spec_.key_columns);
    const size_t c = spec_.key_columns.size();
    each_key([&](JoinKey* key) {
      for (const JoinRecord* r = key->lists[0].head; r; r = r->next) {
        out.at_once(r->place);
        emit_key(codec, *key, out);
        layouts_[0].append(row_of(*r), out.columns, c);
        cells_.append(words(r), out.columns, c + layouts_[0].columns());
      }
    });
  }

 protected:
  void save(const JoinRecord& r, ByteWriter& to) const override {
    if (r.side == 0) cells_.save(words(&r), to);
    to.put_bytes(row_of(r), row_size(r));
  }
  [[nodiscard]] bool check(uint32_t side, ByteReader& from) const override {
    return (side != 0 || cells_.check(from)) && JoinState::check(side, from);
  }
  JoinRecord* load(uint32_t side, ByteReader& from) override {
    if (side != 0) return JoinState::load(side, from);
    std::vector<uint64_t> cells(cells_.bytes() / 8);
    cells_.load(cells.data(), from);
    const char* data = nullptr;
    uint64_t size = 0;
    (void)from.get_bytes(data, size);
    JoinRecord* r = make(cells_.bytes() + size);
    std::memcpy(r->body(), cells.data(), cells_.bytes());
    if (size) std::memcpy(r->body() + cells_.bytes(), data, size);
    return r;
  }
  void entered(JoinRecord* r) override { due_.add(due_after(r->last), r); }
  void leaving(const std::vector<uint8_t>& leaves) override {
    due_.remove([&](const JoinRecord* r) { return leaves[bin_of(r->key->hash)]; });
  }
  void forget(JoinRecord* r) override {
    if (r->side == 0) cells_.drop(words(r));
    JoinState::forget(r);
  }

 private:
  struct OfBatch {
    const PackedRow& layout;
    int64_t row;
    bool valid(size_t i) const { return layout.bound(i).valid(row); }
    uint64_t word(size_t i) const { return PackedRow::word(layout.bound(i), row); }
    std::string_view text(size_t i) const {
      const Column& c = layout.bound(i);
      return {c.bytes(row), size_t(c.size(row))};
    }
  };
  struct OfPacked {
    const PackedRow& layout;
    const char* from;
    bool valid(size_t i) const { return layout.valid(from, i); }
    uint64_t word(size_t i) const { return layout.word(from, i); }
    std::string_view text(size_t i) const { return layout.text(from, i); }
  };

  static uint64_t* words(JoinRecord* r) { return reinterpret_cast<uint64_t*>(r->body()); }
  static const uint64_t* words(const JoinRecord* r) {
    return reinterpret_cast<const uint64_t*>(r->body());
  }
  size_t cell_bytes(const JoinRecord& r) const { return r.side == 0 ? cells_.bytes() : 0; }
  const char* row_of(const JoinRecord& r) const { return r.body() + cell_bytes(r); }
  size_t row_size(const JoinRecord& r) const { return r.body_size() - cell_bytes(r); }

  void take_right(const KeyView& v, uint32_t row, int64_t time, RowClock& clock, Emitter& out) {
    if (v.null) return;
    JoinKey* key = find(v);
    const OfBatch values{layouts_[1], row};
    JoinRecord* first = key ? key->lists[0].head : nullptr;
    if (cells_.checked() && !fits(first, row, time, clock, out)) return;
    for (JoinRecord* l = first; l; l = l->next) {
      if (spans(l, time, clock)) cells_.add(words(l), values);
    }
    if (clock.passed(add_times(time, spec_.wait))) return;
    if (!key) key = add(v);
    const size_t size = layouts_[1].size(row);
    if (size <= SpanLog::kLargestBody) {
      layouts_[1].pack(row, log_.append(key, time, size));
      return;
    }
    empty_log();  // the lists are older than the log
    if (!(key = find(v))) key = add(v);
    JoinRecord* r = make(size);
    layouts_[1].pack(row, r->body());
    enter(key, r, 1, time, add_times(time, spec_.wait), 0);
  }

  // Whether a left record takes a right one of this time.
  PLAIT_INLINE static bool spans(const JoinRecord* l, int64_t time, RowClock& clock) {
    return l->time <= time && time <= l->last && !clock.passed(l->last);
  }
  // Whether a right record fits the sums of all left ones that take it; if not it has failed.
  [[gnu::noinline]] bool fits(const JoinRecord* first, uint32_t row, int64_t time, RowClock& clock,
                              Emitter& out) const {
    std::string why;
    const OfBatch values{layouts_[1], row};
    for (const JoinRecord* l = first; l; l = l->next) {
      if (!spans(l, time, clock) || cells_.fits(words(l), values, why)) continue;
      out.failed.push_back({row, std::move(why)});
      return false;
    }
    return true;
  }

  void take_left(const KeyView& v, uint32_t row, uint64_t place, int64_t start, int64_t end,
                 RowClock& clock, Emitter& out) {
    JoinKey* key = find(v);
    if (!key) key = add(v);
    JoinRecord* l = make(cells_.bytes() + layouts_[0].size(row));
    cells_.start(words(l));
    layouts_[0].pack(row, l->body() + cells_.bytes());
    std::string why;
    const auto take = [&](const char* body) {
      const OfPacked values{layouts_[1], body};
      if (!why.empty() || (cells_.checked() && !cells_.fits(words(l), values, why))) return;
      cells_.add(words(l), values);
    };
    for (const JoinRecord* r = key->lists[1].head; r; r = r->next) {
      if (start <= r->time && r->time <= end && !clock.passed(r->last)) take(r->body());
    }
    log_.each_of(*key, [&](const SpanLog::LogEntry& e) {
      if (start <= e.time && e.time <= end && !clock.passed(add_times(e.time, spec_.wait))) {
        take(e.body());
      }
    });
    if (why.empty() && !clock.passed(end)) return enter(key, l, 0, start, end, place);
    l->side = 0;
    if (why.empty()) {
      emit(l, kAtOnce, place, out);
    } else {
      out.failed.push_back({row, std::move(why)});
    }
    settle(key);
    forget(l);
  }

  // A right record of the log goes to its key's list.
  void keep(const SpanLog::LogEntry& e) {
    JoinRecord* r = make(e.body_size());
    std::memcpy(r->body(), e.body(), e.body_size());
    enter(e.key, r, 1, e.time, add_times(e.time, spec_.wait), 0);
  }
  void empty_log() {
    log_.release_all([&](const SpanLog::LogEntry& e) { keep(e); },
                     [&](JoinKey* key) { settle(key); });
  }

  void enter(JoinKey* key, JoinRecord* r, uint32_t side, int64_t time, int64_t last,
             uint64_t place) {
    r->key = key;
    r->time = time;
    r->last = last;
    r->place = place;
    r->side = uint8_t(side);
    r->matched = 0;
    key->lists[side].append(r);
    entered(r);
  }

  void emit(const JoinRecord* l, int64_t time, uint64_t place, Emitter& out) {
    if (words(l)[0] == 0 && !spec_.empty) return;
    out.begin(time, place);
    layouts_[0].append(row_of(*l), out.columns, 0);
    cells_.append(words(l), out.columns, layouts_[0].columns());
  }

  const SpanCells cells_;
  SpanLog log_;
  DueQueue<JoinRecord*> due_;
};

}  // namespace plait
