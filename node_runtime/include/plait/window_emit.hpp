// WindowEmit: the rows of a window that has ended or gives results before or after its end.
//
// A window of one pane is given out as it lies; one of several is put together first, pane by pane
// in the order of time, and its keys have the place of their first record in any of them. All
// groups, or those that changed. For one thread at a time (the holder of the lane); never waits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "plait/window_panes.hpp"

namespace plait {

// One group as rows of the output: its keys, window and results, or its top rows.
inline void emit_group(const GroupPlan& plan, const Key& key, uint64_t* slot, int64_t start,
                       int64_t end, uint64_t place, bool given, Emitter& out) {
  auto& columns = out.columns;
  if (plan.tops) {
    if (!slot[plan.top_cell]) return;
    const size_t n = plan.top.types.size();
    return TopRows::of(slot[plan.top_cell])->emit(plan.top, columns, [&] {
      out.begin(end, place);
      if (given) return;
      columns[n].word(uint64_t(start));
      columns[n + 1].word(uint64_t(end));
    });
  }
  out.begin(end, place);
  plan.keys.emit(key, columns);
  size_t c = plan.keys.types().size();
  columns[c++].word(uint64_t(start));
  columns[c++].word(uint64_t(end));
  for (const GroupOp& op : plan.ops) emit_result(op, slot, columns[c++]);
}

class WindowEmit {
 public:
  using Panes = std::span<const std::unique_ptr<WindowPane>>;

  explicit WindowEmit(const WindowPanes& panes)
      : plan_(panes.plan), given_(panes.given), whole_(panes.plan, panes.key_word, true) {}

  void all(Panes panes, int64_t start, int64_t end, Emitter& out) {
    if (panes.size() == 1) return give(panes[0]->table, start, end, out);
    for (const auto& p : panes) {
      p->table.each([&](const uint64_t* slot, uint64_t place) {
        uint64_t* to = whole_.obtain(p->table.key(slot), place);
        if (to[1]) whole_.lower_place(whole_.number(to), place);
        combine(plan_, to, slot);
      });
    }
    give(whole_, start, end, out);
    whole_.clear();
  }

  // Only the groups that a pane names in `changed`.
  void some(Panes panes, std::vector<uint32_t> WindowPane::* changed, int64_t start, int64_t end,
            Emitter& out) {
    if (panes.size() == 1) {
      GroupTable& table = panes[0]->table;
      for (uint32_t i : (*panes[0]).*changed) {
        uint64_t* slot = table.slot(i);
        emit_group(plan_, table.key(slot), slot, start, end, table.place(i), given_, out);
      }
      return;
    }
    for (const auto& p : panes) {
      for (uint32_t i : (*p).*changed) {
        const Key key = p->table.key(p->table.slot(i));
        uint64_t* to = whole_.obtain(key, p->table.place(i));
        if (!to[1]) gather(panes, key, to);
      }
    }
    give(whole_, start, end, out);
    whole_.clear();
  }

 private:
  void gather(Panes panes, const Key& key, uint64_t* to) {
    for (const auto& p : panes) {
      const uint64_t* slot = p->table.find(key);
      if (!slot[1]) continue;
      whole_.lower_place(whole_.number(to), p->table.place(p->table.number(slot)));
      combine(plan_, to, slot);
    }
  }
  void give(GroupTable& table, int64_t start, int64_t end, Emitter& out) {
    table.each([&](uint64_t* slot, uint64_t place) {
      emit_group(plan_, table.key(slot), slot, start, end, place, given_, out);
    });
  }

  const GroupPlan& plan_;
  const bool given_;
  GroupTable whole_;
};

}  // namespace plait
