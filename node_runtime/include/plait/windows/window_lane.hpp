// WindowLane: aggregates or top rows by key and window, for windows on a grid and those that rows
// carry.
//
// Each row goes into the one pane of its time, found without arithmetic as long as rows stay in
// one; after the rows of a unit the windows that ended come out in the order of their ends, and if
// the watermark passed a multiple of `early` open windows give what changed since. Only a row whose
// pane has a window that ended before the row came can tell that this happens later than it should:
// before it is taken, such windows are given, and after it those that still take records give its
// group again, at once. Which windows have ended is the watermark's business alone, so state that
// comes from elsewhere needs no more than its groups. All calls belong to the holder of the lane;
// never waits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "plait/groups/group_fold.hpp"
#include "plait/windows/window_emit.hpp"

namespace plait {

class WindowLane : public LaneOperator {
 public:
  explicit WindowLane(const TimedSpec& spec)
      : time_(spec.time),
        arrival_(spec.arrival),
        start_column_(spec.window_start),
        end_column_(spec.window_end),
        p_(spec),
        emit_(p_) {
    if (!p_.given && !arrival_ && time_ < 0) {
      throw std::invalid_argument("a window needs an event time");
    }
  }

  void process(const LaneRows& rows, Emitter& out) override {
    ++p_.unit;
    p_.plan.keys.bind(rows.batch);
    advanced_ = std::max(advanced_, rows.clock.before());
    if (p_.given) return process_given(rows, out);
    if (arrival_) return process_arrived(rows, out);
    const Column& time = rows.batch.columns[size_t(time_)];
    if (!time.validity && rows.count && one_pane(rows, time.i64(), out)) return;
    Locate locate{*this, rows, out};
    const int64_t* times = time.i64();
    run(rows, out, [&](uint32_t i, uint32_t row) PLAIT_INLINE_LAMBDA -> WindowPane* {
      if (!time.valid(row)) {
        ++out.left_out;
        return nullptr;
      }
      return locate.holds(i, times[row]) ? locate.pane : locate.pane_at(i, times[row]);
    });
  }

  int64_t early() const override { return p_.early; }

  void advance(int64_t before, int64_t watermark, Emitter& out) override {
    const bool fires =
        p_.early && watermark > before && watermark != kAllTime &&
        (before == kNoTime || floor_div(watermark, p_.early) != floor_div(before, p_.early));
    give_ended(std::max(before, advanced_), watermark, fires, out);
    advanced_ = watermark;
    if (fires) {
      p_.fired = p_.unit++;
      for (auto& pane : p_.panes) pane->early.clear();
    }
    p_.expire(watermark);
  }

  uint64_t bin_keys(uint32_t bin) const override { return p_.bin_keys(bin); }
  int64_t byte_size() const override { return p_.byte_size(); }
  std::vector<Bytes> copy_bins(std::span<const uint32_t> bins) const override {
    return p_.copy_bins(bins);
  }
  void drop_bins(std::span<const uint32_t> bins) override { p_.drop_bins(bins); }
  std::string put_bin(uint32_t bin, const uint8_t* data, size_t size) override {
    return p_.put_bin(bin, data, size);
  }

 private:
  static constexpr uint32_t kAsk = 24;  // rows that are asked for ahead

  // The pane of the present rows, and from which position in the unit on a window of it has ended,
  // and all of them have, lateness included.
  struct Locate {
    WindowLane& lane;
    const LaneRows& rows;
    Emitter& out;
    bool any = false;
    int64_t start = 0, end = 0;
    WindowPane* pane = nullptr;  // null: not asked for yet
    int64_t ended = INT64_MAX, late = INT64_MAX;
    uint32_t open = 0;  // rows of the lane before this one come before a window of the pane ends

    // Whether row i of the lane goes into `pane` without a closer look.
    bool holds(uint32_t i, int64_t t) const {
      return i < open && uint64_t(t) - uint64_t(start) < uint64_t(end) - uint64_t(start);
    }
    bool holds(uint32_t i, int64_t from, int64_t to) const {
      return i < open && from == start && to == end;
    }

    // The pane of row i of the lane; null: too late for all its windows.
    [[gnu::noinline]] WindowPane* pane_at(uint32_t i, int64_t time) {
      const int64_t t = clamp_time(time);
      if (!any || t < start || t >= end) {
        const int64_t from = lane.p_.grid.pane(t);
        go(i, from, from + lane.p_.grid.width);
      }
      return take(i);
    }
    [[gnu::noinline]] WindowPane* pane_of(uint32_t i, int64_t from, int64_t to) {
      if (!any || start != from || end != to) go(i, from, to);
      return take(i);
    }

   private:
    void go(uint32_t i, int64_t from, int64_t to) {
      any = true;
      start = from;
      end = to;
      pane = nullptr;
      open = 0;
      const WindowPanes& p = lane.p_;
      ended = reached(p.given ? end : p.grid.first_start(start) + p.grid.size);
      late = reached((p.given ? end : p.grid.last_end(start)) + p.lateness);
      if (rows.position(i) >= ended) return;
      pane = &lane.p_.obtain(start, end);
      open = ended == INT64_MAX ? rows.count : first_behind(i, ended);
    }
    // The first row of the lane, of those from row i on, at a position or behind it.
    uint32_t first_behind(uint32_t i, int64_t position) const {
      uint32_t low = i, high = rows.count;
      while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        rows.position(middle) < position ? low = middle + 1 : high = middle;
      }
      return low;
    }
    // The first position at which the watermark has reached a time.
    int64_t reached(int64_t time) const {
      if (time > rows.clock.end()) return INT64_MAX;
      return time <= rows.clock.before() ? 0 : rows.clock.due_position(time) + 1;
    }
    WindowPane* take(uint32_t i) {
      if (rows.position(i) < ended) return pane;  // since go
      if (rows.position(i) >= late) {
        ++out.late;
        return nullptr;
      }
      lane.catch_up(rows, rows.at(i), out);
      lane.again_ = true;
      if (pane) return &lane.p_.touch(*pane);
      pane = &lane.p_.obtain(start, end);
      return pane;
    }
  };

  // Gives what has ended before a row comes that it must not change.
  void catch_up(const LaneRows& rows, int64_t watermark, Emitter& out) {
    work_off(rows, out);
    give_ended(advanced_, watermark, false, out);
    advanced_ = std::max(advanced_, watermark);
  }
  // The group of row i once more, for all windows of its pane that have ended and take records.
  void give_again(const LaneRows& rows, uint32_t i, const WindowPane& pane, uint64_t* slot,
                  Emitter& out) {
    again_ = false;
    work_off(rows, out);
    if (!out.failed.empty() && out.failed.back().row == rows.row(i)) return;
    const int64_t watermark = rows.at(i);
    const Key key = pane.table.key(slot);
    int64_t first = pane.start, last = pane.start;
    if (!p_.given) {
      first = p_.grid.first_start(pane.start);
      last = p_.grid.last_start(pane.start);
    }
    for (int64_t start = first; start <= last; start += p_.grid.every) {
      const int64_t end = p_.given ? pane.end : start + p_.grid.size;
      if (end > watermark) return;
      if (end + p_.lateness <= watermark) continue;
      emit_.one(panes_from(start, end), key, start, end, rows.place(i), out);
    }
  }
  // The panes of a window.
  WindowEmit::Panes panes_from(int64_t start, int64_t end) const {
    const auto& panes = p_.panes;
    if (p_.given) {
      for (size_t i = 0; i < panes.size(); ++i) {
        if (panes[i]->start == start && panes[i]->end == end) return {panes.data() + i, 1};
      }
      return {};
    }
    size_t from = 0;
    while (from < panes.size() && panes[from]->start < start) ++from;
    size_t to = from;
    while (to < panes.size() && panes[to]->start < end) ++to;
    return {panes.data() + from, to - from};
  }

  // All windows that ended after `before`, up to `watermark`.
  void give_ended(int64_t before, int64_t watermark, bool fires, Emitter& out) {
    if (!p_.given) return walk(before, watermark, fires, out);
    for (size_t i = 0; i < p_.panes.size(); ++i) {
      if (p_.panes[i]->end > watermark && !fires) break;
      window(i, i + 1, p_.panes[i]->start, p_.panes[i]->end, before, watermark, fires, out);
    }
  }

  // Works all rows off if they are in one pane, of which no window ends in the unit.
  bool one_pane(const LaneRows& rows, const int64_t* times, Emitter& out) {
    int64_t low = times[rows.row(0)], high = low;
    if (rows.rows) {
      for (uint32_t i = 1; i < rows.count; ++i) {
        const int64_t t = times[rows.rows[i]];
        low = std::min(low, t);
        high = std::max(high, t);
      }
    } else {
      times += rows.skipped;
      for (uint32_t i = 1; i < rows.count; ++i) {
        low = std::min(low, times[i]);
        high = std::max(high, times[i]);
      }
    }
    const int64_t start = p_.grid.pane(clamp_time(low));
    if (start != p_.grid.pane(clamp_time(high))) return false;
    if (p_.grid.first_start(start) + p_.grid.size <= rows.clock.end()) return false;
    WindowPane* pane = &p_.obtain(start, start + p_.grid.width);
    if (p_.plan.tops && p_.plan.keys.types().empty() && p_.early_mark < 0 && !rows.rows) {
      add_top(rows, *pane, out);
    } else {
      run(rows, out, [pane](uint32_t, uint32_t) { return pane; });
    }
    return true;
  }
  // All rows are of one group, which has no key, and each follows the one before it in the batch.
  void add_top(const LaneRows& rows, WindowPane& pane, Emitter& out) {
    const Key key{rows.hashes[0], false, {}};
    uint64_t* slot = pane.table.find(key);
    if (slot[1] == 0) slot = enter(pane.table, key, slot, rows, 0, out);
    slot[1] += rows.count;
    TopRows::in(slot[p_.plan.top_cell])
        .add_rows(p_.plan.top, rows.batch, rows.row(0), rows.count,
                  [&](uint32_t row) { return rows.place(row - rows.skipped); });
  }

  // All rows of a unit arrive together, and no window of their pane has ended by then.
  void process_arrived(const LaneRows& rows, Emitter& out) {
    const int64_t start = p_.grid.pane(clamp_time(rows.arrival));
    WindowPane* pane = &p_.obtain(start, start + p_.grid.width);
    run(rows, out, [pane](uint32_t, uint32_t) { return pane; });
  }

  void process_given(const LaneRows& rows, Emitter& out) {
    const Column& starts = rows.batch.columns[size_t(start_column_)];
    const Column& ends = rows.batch.columns[size_t(end_column_)];
    Locate locate{*this, rows, out};
    run(rows, out, [&](uint32_t i, uint32_t row) PLAIT_INLINE_LAMBDA -> WindowPane* {
      if (!starts.valid(row) || !ends.valid(row)) {
        ++out.left_out;
        return nullptr;
      }
      const int64_t start = clamp_time(starts.i64()[row]), end = clamp_time(ends.i64()[row]);
      return locate.holds(i, start, end) ? locate.pane : locate.pane_of(i, start, end);
    });
  }

  template <class PaneOf>
  void run(const LaneRows& rows, Emitter& out, PaneOf pane_of) {
    if (p_.plan.keys.wide() || p_.plan.keys.has_nulls())
      return run_rows<0, false>(rows, out, pane_of);
    switch (p_.plan.words) {
      case 2:
        return run_rows<2, true>(rows, out, pane_of);
      case 4:
        return run_rows<4, true>(rows, out, pane_of);
      default:
        return run_rows<0, true>(rows, out, pane_of);
    }
  }

  // kNarrow: every key is its hash.
  template <unsigned kWords, bool kNarrow, class PaneOf>
  void run_rows(const LaneRows& rows, Emitter& out, PaneOf pane_of) {
    const bool folds = !p_.plan.counts_only, places = p_.plan.needs_places,
               marks = p_.early_mark >= 0, marks_later = marks && !p_.plan.sums.empty();
    GroupBlock& block = block_;
    for (uint32_t i = 0; i < rows.count; ++i) {
      const uint32_t row = rows.row(i);
      WindowPane* pane = pane_of(i, row);
      if (!pane) continue;
      GroupTable& table = pane->table;
      if (i + kAsk < rows.count) table.prefetch(rows.hashes[i + kAsk]);
      uint64_t* slot;
      if constexpr (kNarrow) {
        slot = table.template find_hash<kWords>(rows.hashes[i]);
        if (slot[1] == 0) [[unlikely]]
          slot = enter(table, Key{rows.hashes[i], false, {}}, slot, rows, i, out);
      } else {
        const Key key = p_.plan.keys.of_row(rows.hashes[i], row);
        slot = table.find(key);
        if (slot[1] == 0) slot = enter(table, key, slot, rows, i, out);
      }
      const uint64_t seen = ++slot[1];
      if (marks && !marks_later) mark(*pane, slot);
      if (folds) {
        if (marks_later) panes_[block.n] = pane;
        block.slots[block.n] = slot;
        block.seen[block.n] = seen;
        block.rows[block.n] = row;
        if (places) block.places[block.n] = rows.place(i);
        if (++block.n == GroupBlock::kRows) work_off(rows, out);
      }
      if (again_) [[unlikely]]
        give_again(rows, i, *pane, slot, out);
    }
    if (folds) work_off(rows, out);
  }

  // Works the block off. Rows that fail change nothing, so their groups are marked here.
  void work_off(const LaneRows& rows, Emitter& out) {
    const uint32_t n = block_.n;
    size_t failed = out.failed.size();
    fold_block(p_.plan, rows.batch, block_, out.failed);
    if (p_.early_mark < 0 || p_.plan.sums.empty()) return;
    for (uint32_t i = 0; i < n; ++i) {
      if (failed < out.failed.size() && out.failed[failed].row == block_.rows[i]) {
        ++failed;
      } else {
        mark(*panes_[i], block_.slots[i]);
      }
    }
  }

  // The block is worked off before a table grows, because growing moves the slots.
  [[gnu::noinline]] uint64_t* enter(GroupTable& table, const Key& key, uint64_t* slot,
                                    const LaneRows& rows, uint32_t i, Emitter& out) {
    if (table.full()) {
      work_off(rows, out);
      table.grow();
      slot = table.find(key);
    }
    table.enter(slot, key, rows.place(i));
    p_.entered(key.hash);
    return slot;
  }

  void mark(WindowPane& pane, uint64_t* slot) {
    if (slot[p_.early_mark] <= p_.fired) {
      pane.early.push_back(uint32_t(pane.table.number(slot)));
    }
    slot[p_.early_mark] = p_.unit;
  }

  // What the window of the panes [from, to) has to give.
  void window(size_t from, size_t to, int64_t start, int64_t end, int64_t before, int64_t watermark,
              bool fires, Emitter& out) {
    const WindowEmit::Panes panes(p_.panes.data() + from, to - from);
    if (end > watermark) {
      if (fires) emit_.changed(panes, start, end, out);
    } else if (before == kNoTime || end > before) {
      emit_.all(panes, start, end, out);
    }
  }

  // All windows on the grid that have panes, in the order of their ends.
  void walk(int64_t before, int64_t watermark, bool fires, Emitter& out) {
    const auto& panes = p_.panes;
    const WindowGrid& grid = p_.grid;
    if (panes.empty() || (!fires && panes.front()->first_end > watermark)) return;
    int64_t start = grid.first_start(panes.front()->start);
    if (before != kNoTime) {  // those that ended before need no look
      start = std::max(start, grid.last_start(clamp_time(before) - grid.size) + grid.every);
    }
    for (size_t from = 0, to = 0;;) {
      while (from < panes.size() && panes[from]->start < start) ++from;
      if (from == panes.size()) return;
      if (panes[from]->start >= start + grid.size) {
        start = grid.first_start(panes[from]->start);
        continue;
      }
      const int64_t end = start + grid.size;
      if (end > watermark && !fires) return;
      for (to = std::max(to, from); to < panes.size() && panes[to]->start < end;) ++to;
      window(from, to, start, end, before, watermark, fires, out);
      start += grid.every;
    }
  }

  const int time_;
  const bool arrival_;
  const int start_column_, end_column_;
  WindowPanes p_;
  WindowEmit emit_;
  GroupBlock block_;
  WindowPane* panes_[GroupBlock::kRows] = {};  // of the block's rows, if they are marked later
  int64_t advanced_ = kNoTime;                 // windows that ended up to then have been given
  bool again_ = false;                         // the present row changes windows that have ended
};

}  // namespace plait
