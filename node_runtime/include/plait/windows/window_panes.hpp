// WindowPanes: the panes of time of one lane that windows are made of, each with its groups.
//
// Panes are in the order of time; with windows that the rows carry a pane is a window. The memory
// of a pane that is over serves the next one. State moves by bin, all or nothing; the bytes of a
// bin are, pane by pane, the groups of its keys. For one thread at a time (the holder of the lane);
// never waits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "plait/groups/group_bins.hpp"
#include "plait/groups/group_bytes.hpp"
#include "plait/groups/group_table.hpp"
#include "plait/time/lane_operator.hpp"
#include "plait/time/window_grid.hpp"

namespace plait {

struct WindowPane {
  WindowPane(const GroupPlan& plan, int key_word, bool numbered)
      : table(plan, key_word, numbered) {}
  int64_t start = 0, end = 0;
  int64_t first_end = 0, last_end = 0;  // of the windows it is part of
  bool added = false;                   // to the totals of a window
  uint64_t first_place = 0;             // of its groups, when it was added
  GroupTable table;
  std::vector<uint32_t> early;  // groups that changed since results came early
};

class WindowPanes {
 public:
  WindowPanes(const TimedSpec& spec)
      : given(spec.within == TimedSpec::Within::Given),
        lateness(spec.lateness),
        early(spec.early),
        grid(given ? WindowGrid() : WindowGrid(spec.size, spec.every, spec.offset)),
        key_word(KeyCodec(spec.types, spec.key_columns).wide() ? 2 : -1),
        early_mark(early ? 2 + (key_word >= 0) : -1),
        plan(spec, 2u + (key_word >= 0) + (early != 0), !given && grid.width != grid.size),
        bin_keys_(size_t(1) << (spec.bin_bits - spec.lane_bits), 0) {
    if (lateness < 0 || early < 0 || lateness > kMostLength || early > kMostLength) {
      throw std::invalid_argument("lateness and early are lengths of time");
    }
    if (given && (spec.window_start < 0 || spec.window_end < 0)) {
      throw std::invalid_argument("there are no columns with the windows");
    }
  }

  const bool given;
  const int64_t lateness, early;
  const WindowGrid grid;
  const int key_word, early_mark;  // words of a slot
  GroupPlan plan;
  std::vector<std::unique_ptr<WindowPane>> panes;  // by end, then start
  // Changes are marked with the number of their unit; results came early at the end of `fired`.
  uint64_t unit = 1, fired = 0;
  bool stale = false;  // the totals of windows are not those of their panes (window_totals.hpp)

  // The pane that starts there (and ends there, if rows carry windows), made if there is none.
  WindowPane& obtain(int64_t start, int64_t end) {
    const auto at = std::lower_bound(
        panes.begin(), panes.end(), std::pair(end, start),
        [](const auto& p, const auto& to) { return std::pair(p->end, p->start) < to; });
    if (at != panes.end() && (*at)->end == end && (*at)->start == start) return touch(**at);
    return **panes.insert(at, make(start, end));
  }
  // A pane whose groups change.
  WindowPane& touch(WindowPane& pane) {
    stale |= pane.added;
    return pane;
  }
  void entered(uint64_t hash) { ++bin_keys_[plan.bin_in_lane(plan.bin(hash))]; }

  // Drops the panes whose windows are all over for good.
  void expire(int64_t watermark) {
    size_t n = 0;
    for (; n < panes.size() && panes[n]->last_end + lateness <= watermark; ++n) {
      panes[n]->table.each(
          [&](uint64_t* slot, uint64_t) { --bin_keys_[plan.bin_in_lane(plan.bin(slot[0]))]; });
      recycle(std::move(panes[n]));
    }
    panes.erase(panes.begin(), panes.begin() + ptrdiff_t(n));
  }

  uint64_t bin_keys(uint32_t bin) const { return bin_keys_[plan.bin_in_lane(bin)]; }
  int64_t byte_size() const {
    size_t n = 0;
    for (const auto& p : panes) n += p->table.byte_size();
    for (const auto& p : free_) n += p->table.byte_size();
    return int64_t(n);
  }

  std::vector<Bytes> copy_bins(std::span<const uint32_t> bins) const {
    const GroupBins wanted(plan, bins);
    std::vector<GroupWriter> writers(bins.size());
    for (const auto& p : panes) {
      std::vector<uint64_t> counts(bins.size(), 0);
      p->table.each([&](const uint64_t* slot, uint64_t) {
        if (wanted.has(slot[0])) ++counts[wanted.of(slot[0])];
      });
      for (size_t b = 0; b < bins.size(); ++b) {
        if (!counts[b]) continue;
        for (int64_t fact : {p->start, p->end, int64_t(counts[b])}) writers[b].word(uint64_t(fact));
        writers[b].counted();
      }
      p->table.each([&](const uint64_t* slot, uint64_t place) {
        if (!wanted.has(slot[0])) return;
        write(writers[wanted.of(slot[0])], p->table.key(slot), slot, place);
      });
    }
    return wanted.finish(writers);
  }

  void drop_bins(std::span<const uint32_t> bins) {
    const GroupBins gone(plan, bins);
    stale = true;
    for (auto& p : panes) {
      p->table.erase_if([&](uint64_t hash) { return gone.has(hash); });
      p->early.clear();
      for (size_t i = 0; early_mark >= 0 && i < p->table.size(); ++i) {
        if (p->table.slot(i)[early_mark] > fired) p->early.push_back(uint32_t(i));
      }
    }
    for (uint32_t bin : bins) bin_keys_[plan.bin_in_lane(bin)] = 0;
    const auto empty = [&](std::unique_ptr<WindowPane>& p) {
      if (p->table.size()) return false;
      recycle(std::move(p));
      return true;
    };
    panes.erase(std::remove_if(panes.begin(), panes.end(), empty), panes.end());
  }

  std::string put_bin(uint32_t bin, const uint8_t* data, size_t size) {
    std::vector<std::unique_ptr<WindowPane>> staged;
    std::string reason = read_group_bin(
        plan, bin, bin_keys(bin) != 0, data, size, "the groups",
        [&](GroupReader& in) { read_pane(in, bin, staged); }, [] {});
    if (!reason.empty()) return reason;
    for (auto& from : staged) {
      WindowPane& to = obtain(from->start, from->end);
      from->table.each([&](uint64_t* slot, uint64_t place) {
        if (early_mark >= 0 && slot[early_mark]) to.early.push_back(uint32_t(to.table.size()));
        to.table.take(from->table.key(slot), slot, place);
        entered(slot[0]);
      });
    }
    return "";
  }

 private:
  std::unique_ptr<WindowPane> make(int64_t start, int64_t end) {
    std::unique_ptr<WindowPane> p;
    if (free_.empty()) {
      p = std::make_unique<WindowPane>(plan, key_word, early_mark >= 0);
    } else {
      p = std::move(free_.back());
      free_.pop_back();
    }
    p->start = start;
    p->end = end;
    p->first_end = given ? end : grid.first_start(start) + grid.size;
    p->last_end = given ? end : grid.last_end(start);
    return p;
  }
  void recycle(std::unique_ptr<WindowPane> p) {
    stale |= p->added;
    p->added = false;
    if (free_.size() >= 16) return;
    p->table.clear();
    p->early.clear();
    free_.push_back(std::move(p));
  }
  void write(GroupWriter& out, const Key& key, const uint64_t* slot, uint64_t place) const {
    const bool changed = early_mark >= 0 && slot[early_mark] > fired;
    out.byte(uint8_t(key.null | changed << 1));
    out.word(place);
    out.word(slot[0]);
    out.word(slot[1]);
    if (key_word >= 0) out.text(key.bytes);
    write_cells(plan, slot, out);
  }
  void read_pane(GroupReader& in, uint32_t bin, std::vector<std::unique_ptr<WindowPane>>& staged) {
    const auto start = int64_t(in.word()), end = int64_t(in.word());
    const uint64_t count = in.word();
    const auto far = [](int64_t t) {
      return t < -kFarTime - kMostLength || t > kFarTime + kMostLength;
    };
    if (far(start) || far(end) ||
        (!given && (grid.pane(start) != start || end - start != grid.width)))
      in.fail();
    if (!in.ok()) return;
    staged.push_back(std::make_unique<WindowPane>(plan, key_word, false));
    WindowPane& p = *staged.back();
    p.start = start;
    p.end = end;
    for (uint64_t i = 0; i < count && in.ok(); ++i) {
      const uint8_t flags = in.byte();
      const uint64_t place = in.word();
      Key key{in.word(), (flags & 1) != 0, {}};
      const uint64_t rows = in.word();
      if (key_word >= 0) key.bytes = in.text();
      if (!in.ok() || rows == 0 || !plan.came_with(key.hash, bin) || !plan.keys.right(key))
        in.fail();
      if (!in.ok()) return;
      uint64_t* slot = p.table.obtain(key, place);
      if (slot[1]) return in.fail();
      slot[1] = rows;
      if (early_mark >= 0 && flags & 2) slot[early_mark] = unit;
      read_cells(plan, slot, in);
    }
  }

  std::vector<std::unique_ptr<WindowPane>> free_;
  std::vector<uint64_t> bin_keys_;  // groups, by the bin's number in the lane
};

}  // namespace plait
