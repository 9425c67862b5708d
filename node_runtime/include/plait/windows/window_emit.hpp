// WindowEmit: the rows of a window that has ended or gives results before or after its end.
//
// A window of one pane is given out as it lies; one of several is put together first, pane by pane
// in the order of time, unless its totals are kept up (window_totals.hpp), and its keys have the
// place of their first record in any of them. All groups, or those that changed. For one thread at
// a time (the holder of the lane); never waits.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "plait/windows/window_totals.hpp"

namespace plait {

// One group as rows of the output: its keys, window and results, or its top rows. They come at
// `time` (kAtOnce, or the end) and place. `early`: before the end of the window.
inline void emit_group(const GroupPlan& plan, const Key& key, uint64_t* slot, int64_t start,
                       int64_t end, int64_t time, uint64_t place, bool given, Emitter& out,
                       bool early = false) {
  auto& columns = out.columns;
  const bool complete = !early && end <= out.held;
  if (plan.tops) {
    if (!slot[plan.top_cell]) return;
    const size_t n = plan.top.types.size();
    return TopRows::of(slot[plan.top_cell])->emit(plan.top, columns, [&] {
      out.begin(time, place);
      if (plan.complete) columns.back().word(complete);
      if (given) return;
      columns[n].word(uint64_t(start));
      columns[n + 1].word(uint64_t(end));
    });
  }
  out.begin(time, place);
  plan.keys.emit(key, columns);
  size_t c = plan.keys.types().size();
  columns[c++].word(uint64_t(start));
  columns[c++].word(uint64_t(end));
  for (const GroupOp& op : plan.ops) emit_result(op, slot, columns[c++]);
  if (plan.complete) columns[c].word(complete);
}

class WindowEmit {
 public:
  using Panes = std::span<const std::unique_ptr<WindowPane>>;

  // Groups that are put together have their place in the word behind their cells.
  explicit WindowEmit(WindowPanes& panes)
      : plan_(panes.plan),
        every_(panes.grid.every),
        given_(panes.given),
        place_(panes.plan.used_words),
        whole_(panes.plan, panes.key_word, false, std::bit_ceil(panes.plan.used_words + 1)),
        totals_(panes) {}

  void all(Panes panes, int64_t start, int64_t end, Emitter& out) {
    const auto emit = [&](const Key& key, uint64_t* slot, uint64_t place) {
      emit_group(plan_, key, slot, start, end, end, place, given_, out);
    };
    if (totals_.useful() && totals_.give(panes, start + every_, emit)) return;
    if (panes.size() == 1) return give(panes[0]->table, start, end, out);
    for (const auto& p : panes) {
      if (plan_.counts_only && !plan_.keys.wide()) {
        add_counts(p->table);
        continue;
      }
      p->table.each([&](uint64_t hash) { whole_.prefetch(hash); },
                    [&](const uint64_t* slot, uint64_t place) {
                      add(whole_.obtain(p->table.key(slot), place), slot, place);
                    });
    }
    give_whole(start, end, out);
  }

  // One group, at once, at a place.
  void one(Panes panes, const Key& key, int64_t start, int64_t end, uint64_t place, Emitter& out) {
    uint64_t* to = whole_.obtain(key, place);
    for (const auto& p : panes) {
      const uint64_t* slot = p->table.find(key);
      if (slot[1]) add(to, slot, place);
    }
    whole_.each([&](uint64_t* slot, uint64_t) {
      emit_group(plan_, whole_.key(slot), slot, start, end, kAtOnce, place, given_, out);
    });
    whole_.clear();
  }

  // Only the groups that changed since results came early.
  void changed(Panes panes, int64_t start, int64_t end, Emitter& out) {
    if (panes.size() == 1) {
      GroupTable& table = panes[0]->table;
      for (uint32_t i : panes[0]->early) {
        uint64_t* slot = table.slot(i);
        emit_group(plan_, table.key(slot), slot, start, end, end, table.place(i), given_, out,
                   true);
      }
      return;
    }
    for (const auto& p : panes) {
      for (uint32_t i : p->early) {
        const Key key = p->table.key(p->table.slot(i));
        uint64_t* to = whole_.obtain(key, p->table.place(i));
        if (!to[1]) gather(panes, key, to);
      }
    }
    give_whole(start, end, out, true);
  }

 private:
  void add(uint64_t* to, const uint64_t* slot, uint64_t place) {
    to[place_] = to[1] ? std::min(to[place_], place) : place;
    combine(plan_, to, slot);
  }
  // The same for all groups of a table, where rows seen is all there is to them.
  void add_counts(const GroupTable& table) {
    table.each([&](uint64_t hash) { whole_.prefetch(hash); },
               [&](const uint64_t* slot, uint64_t place) {
                 uint64_t* to = whole_.find_hash<4>(slot[0]);
                 if (to[1] == 0 || table.is_null(slot)) [[unlikely]] {
                   to = whole_.obtain(table.key(slot), place);
                   if (to[1] == 0) to[place_] = place;
                 }
                 to[place_] = std::min(to[place_], place);
                 to[1] += slot[1];
               });
  }
  void gather(Panes panes, const Key& key, uint64_t* to) {
    for (const auto& p : panes) {
      const uint64_t* slot = p->table.find(key);
      if (slot[1]) add(to, slot, p->table.place(p->table.number(slot)));
    }
  }
  void give_whole(int64_t start, int64_t end, Emitter& out, bool early = false) {
    whole_.each([&](uint64_t* slot, uint64_t) {
      emit_group(plan_, whole_.key(slot), slot, start, end, end, slot[place_], given_, out, early);
    });
    whole_.clear();
  }
  void give(GroupTable& table, int64_t start, int64_t end, Emitter& out) {
    table.each([&](uint64_t* slot, uint64_t place) {
      emit_group(plan_, table.key(slot), slot, start, end, end, place, given_, out);
    });
  }

  const GroupPlan& plan_;
  const int64_t every_;
  const bool given_;
  const unsigned place_;
  GroupTable whole_;
  WindowTotals totals_;
};

}  // namespace plait
