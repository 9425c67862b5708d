// WindowTotals: the groups of a window that slides, kept up while panes come and go instead of put
// together anew for each window.
//
// For counts and for sums and means of integers: a pane that comes is added, one that leaves is
// subtracted, and both touch only the keys of that pane. The results are those of adding all panes
// in the order of time; where a part of such a sum might not fit, or be rounded, give() says no and
// the window is put together. A key has the place of its first record in any of the panes: they are
// looked through from the oldest on until no other one can change a place. A pane that changes
// while it is added makes all of it stale (WindowPanes::touch). For one thread at a time (the
// holder of the lane); never waits.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "plait/windows/window_panes.hpp"

namespace plait {

class WindowTotals {
 public:
  using Panes = std::span<const std::unique_ptr<WindowPane>>;
  static constexpr int64_t kPanes = 8;  // windows of fewer panes are put together as quickly

  explicit WindowTotals(WindowPanes& panes)
      : panes_(panes),
        plan_(panes.plan),
        useful_(suits(panes)),
        place_(plan_.used_words),
        turn_word_(place_ + 1),
        table_(plan_, panes.key_word, false, std::bit_ceil(turn_word_ + 1)),
        sizes_(plan_.ops.size(), 0),
        slot_(plan_.used_words, 0) {}

  bool useful() const { return useful_; }

  // Calls visit(key, slot, place) for each group of a window; the one after it starts at `next`.
  // False: nothing was called.
  template <class Visit>
  bool give(Panes panes, int64_t next, Visit visit) {
    bring(panes);
    const bool good = fits();
    if (good) give_all(panes, visit);
    for (const auto& p : panes) {
      if (p->start >= next) break;
      if (p->added) take_off(*p);
    }
    if (gone_ > live_ + 64) panes_.stale = true;
    return good;
  }

 private:
  __extension__ using Size = unsigned __int128;
  static constexpr uint64_t kExact = uint64_t(1) << 53;  // doubles hold all integers up to it

  static bool suits(const WindowPanes& panes) {
    if (panes.given || panes.plan.tops || panes.grid.size / panes.grid.width < kPanes) return false;
    return std::all_of(panes.plan.ops.begin(), panes.plan.ops.end(), [](const GroupOp& op) {
      const bool adds = is_sum(op.kind) || op.kind == AggregateKind::Mean;
      return op.kind == AggregateKind::Count || (adds && op.type != Type::Float64);
    });
  }

  // Makes the table that of these panes.
  void bring(Panes panes) {
    if (panes_.stale) reset();
    for (int tries = 0; tries < 2; ++tries) {
      for (const auto& p : panes) {
        if (!p->added) add(*p);
      }
      if (added_ == panes.size()) return;
      reset();  // panes of other windows were in it
    }
  }
  void reset() {
    for (const auto& p : panes_.panes) p->added = false;
    panes_.stale = false;
    table_.clear();
    std::fill(sizes_.begin(), sizes_.end(), 0);
    live_ = gone_ = added_ = 0;
  }

  // A slot has the number of its rows and 1 in the word that says whether it is free.
  void add(WindowPane& p) {
    p.added = true;
    ++added_;
    p.first_place = std::numeric_limits<uint64_t>::max();
    p.table.each([&](uint64_t hash) { table_.prefetch(hash); },
                 [&](const uint64_t* from, uint64_t place) {
                   p.first_place = std::min(p.first_place, place);
                   uint64_t* to = table_.obtain(p.table.key(from), place);
                   if (to[1] == 0) {
                     to[1] = 1;
                     ++gone_;
                   }
                   if (to[1] == 1) ++live_, --gone_;
                   to[1] += from[1];
                   change<true>(to, from);
                 });
  }
  void take_off(WindowPane& p) {
    p.added = false;
    --added_;
    p.table.each([&](uint64_t hash) { table_.prefetch(hash); },
                 [&](const uint64_t* from, uint64_t) {
                   uint64_t* to = table_.find(p.table.key(from));
                   to[1] -= from[1];
                   if (to[1] == 1) --live_, ++gone_;
                   change<false>(to, from);
                 });
  }
  template <bool kAdd>
  void change(uint64_t* to, const uint64_t* from) {
    for (size_t o = 0; o < plan_.ops.size(); ++o) {
      const GroupOp& op = plan_.ops[o];
      if (op.cell < 0) continue;
      if (op.kind != AggregateKind::Count) {
        const auto [value, size] = value_of(op, from[op.cell]);
        to[op.cell] = kAdd ? to[op.cell] + value : to[op.cell] - value;
        sizes_[o] = kAdd ? sizes_[o] + size : sizes_[o] - size;
      }
      if (op.seen >= 0) {
        to[op.seen] = kAdd ? to[op.seen] + from[op.seen] : to[op.seen] - from[op.seen];
      }
    }
  }
  struct Added {
    uint64_t value, size;
  };
  // Of a cell: what is added, and no less than it is without its sign.
  static Added value_of(const GroupOp& op, uint64_t cell) {
    if (op.kind != AggregateKind::Mean) {
      return {cell, int64_t(cell) < 0 ? -cell : cell};
    }
    const auto sum = std::bit_cast<double>(cell);
    if (!(sum >= -double(kExact) && sum <= double(kExact))) return {0, 2 * kExact};
    const auto whole = int64_t(sum);
    return {uint64_t(whole), uint64_t(whole < 0 ? -whole : whole)};
  }
  // Whether all sums are right in whatever order the panes are added.
  bool fits() const {
    for (size_t o = 0; o < plan_.ops.size(); ++o) {
      const AggregateKind kind = plan_.ops[o].kind;
      if (kind == AggregateKind::Sum && sizes_[o] > Size(std::numeric_limits<int64_t>::max())) {
        return false;
      }
      if (kind == AggregateKind::Mean && sizes_[o] > kExact) return false;
    }
    return true;
  }

  template <class Visit>
  void give_all(Panes panes, Visit visit) {
    ++turn_;
    found_.clear();
    firsts_.resize(panes.size() + 1);
    firsts_.back() = std::numeric_limits<uint64_t>::max();
    for (size_t i = panes.size(); i-- > 0;) {
      firsts_[i] = std::min(firsts_[i + 1], panes[i]->first_place);
    }
    uint64_t last = 0;  // no place is above it
    for (size_t i = 0; i < panes.size(); ++i) {
      if (found_.size() == live_ && firsts_[i] > last) break;
      const GroupTable& from = panes[i]->table;
      from.each([&](uint64_t hash) { table_.prefetch(hash); },
                [&](const uint64_t* slot, uint64_t place) {
                  uint64_t* to = table_.find(from.key(slot));
                  if (to[turn_word_] != turn_) {
                    to[turn_word_] = turn_;
                    to[place_] = place;
                    last = std::max(last, place);
                    found_.push_back(to);
                  } else {
                    to[place_] = std::min(to[place_], place);
                  }
                });
    }
    for (const uint64_t* slot : found_) {
      std::memcpy(slot_.data(), slot, slot_.size() * 8);
      --slot_[1];
      for (const GroupOp& op : plan_.ops) {
        if (op.kind != AggregateKind::Mean) continue;
        slot_[op.cell] = std::bit_cast<uint64_t>(double(int64_t(slot[op.cell])));
      }
      visit(table_.key(slot), slot_.data(), slot[place_]);
    }
  }

  WindowPanes& panes_;
  const GroupPlan& plan_;
  const bool useful_;
  const unsigned place_, turn_word_;  // words of a slot
  GroupTable table_;
  std::vector<Size> sizes_;  // by aggregate: of all sums of the panes together
  size_t added_ = 0;         // panes
  uint64_t live_ = 0;        // groups with rows
  uint64_t gone_ = 0;        // groups without any left
  uint64_t turn_ = 0;
  std::vector<uint64_t*> found_;
  std::vector<uint64_t> firsts_;  // the first place of this pane and those after it
  std::vector<uint64_t> slot_;    // the group that is being given
};

}  // namespace plait
