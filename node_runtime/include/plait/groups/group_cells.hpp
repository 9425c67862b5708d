// The cells of a group's slot: combined with those of another, given out as results, dropped,
// written as bytes and read.
//
// What a value does to a cell is `fold` of aggregates.hpp; two groups are combined in the order in
// which the caller gives them (sums of floats: the second's sum is added to the first's), first and
// last by the places of their values. Sums of two groups that do not fit int64 together throw
// SumOverflow. For one thread at a time (the holder of the lane); never
// waits.
#pragma once

#include <bit>
#include <cstdint>

#include "plait/groups/group_plan.hpp"
#include "plait/groups/value_set.hpp"
#include "plait/keyed/aggregates.hpp"

namespace plait {

namespace group_detail {
inline uint64_t seen(const GroupOp& op, const uint64_t* slot) {
  return op.seen < 0 ? slot[1] : slot[op.seen];
}

template <AggregateKind kKind>
uint64_t fold_bits(const GroupOp& op, bool first, uint64_t old, uint64_t value) {
  bool misfit = false;
  if (op.type == Type::Float64 || kKind == AggregateKind::Mean) {
    return std::bit_cast<uint64_t>(fold<kKind, double>(first, std::bit_cast<double>(old),
                                                       std::bit_cast<double>(value), misfit));
  }
  const int64_t now = fold<kKind, int64_t>(first, int64_t(old), int64_t(value), misfit);
  if (misfit) [[unlikely]]
    throw SumOverflow(int64_t(old), int64_t(value));
  return uint64_t(now);
}

inline bool has_value(const GroupOp& op, const uint64_t* slot) {
  return op.text ? slot[op.cell] != 0 : seen(op, slot) != 0;
}

// Whether `from` has the value that came first (or last) of the two.
inline bool wins(const GroupOp& op, const uint64_t* to, const uint64_t* from) {
  if (!has_value(op, to)) return true;
  const bool earlier = op.place >= 0 && from[op.place] < to[op.place];
  return op.kind == AggregateKind::First ? earlier : !earlier;
}

inline void combine_op(const GroupOp& op, uint64_t* to, const uint64_t* from) {
  using K = AggregateKind;
  if (op.kind == K::Distinct) {
    if (from[op.cell]) ValueSet::in(to[op.cell]).add_all(*ValueSet::of(from[op.cell]));
    return;
  }
  if (!has_value(op, from)) return;
  const bool by_place = op.kind == K::First || op.kind == K::Last;
  if (by_place && wins(op, to, from)) {
    if (op.text) {
      Blob* blob = Blob::of(from[op.cell]);
      Blob::assign(to[op.cell], blob->bytes(), blob->size);
    } else {
      to[op.cell] = from[op.cell];
    }
    if (op.place >= 0) to[op.place] = from[op.place];
  } else if (op.text && !by_place) {
    Blob* blob = Blob::of(from[op.cell]);
    if (aggregates_detail::replaces(op.kind, to[op.cell], blob->bytes(), blob->size)) {
      Blob::assign(to[op.cell], blob->bytes(), blob->size);
    }
  } else if (!by_place) {
    const bool first = seen(op, to) == 0;
    uint64_t& cell = to[op.cell];
    if (op.kind == K::Sum) cell = fold_bits<K::Sum>(op, first, cell, from[op.cell]);
    if (op.kind == K::WrappingSum) {
      cell = fold_bits<K::WrappingSum>(op, first, cell, from[op.cell]);
    }
    if (op.kind == K::Mean) cell = fold_bits<K::Mean>(op, first, cell, from[op.cell]);
    if (op.kind == K::Min) cell = fold_bits<K::Min>(op, first, cell, from[op.cell]);
    if (op.kind == K::Max) cell = fold_bits<K::Max>(op, first, cell, from[op.cell]);
  }
  if (op.seen >= 0) to[op.seen] += from[op.seen];
}
}  // namespace group_detail

// Adds the group `from` to the group `to`, whose cells are 0 if it has no rows yet.
inline void combine(const GroupPlan& plan, uint64_t* to, const uint64_t* from) {
  for (const GroupOp& op : plan.ops) {
    if (op.kind != AggregateKind::Count) {
      group_detail::combine_op(op, to, from);
    } else if (op.cell >= 0) {
      to[op.cell] += from[op.cell];
    }
  }
  if (plan.tops && from[plan.top_cell]) {
    TopRows::in(to[plan.top_cell]).add_all(plan.top, *TopRows::of(from[plan.top_cell]));
  }
  to[1] += from[1];
}

inline void drop_cells(const GroupPlan& plan, uint64_t* slot) {
  if (!plan.owns) return;
  for (const GroupOp& op : plan.ops) {
    if (op.text) Blob::drop(slot[op.cell]);
    if (op.kind == AggregateKind::Distinct) ValueSet::drop(slot[op.cell]);
  }
  if (plan.tops) TopRows::drop(slot[plan.top_cell]);
}

inline size_t owned_bytes(const GroupPlan& plan, const uint64_t* slot) {
  size_t n = 0;
  for (const GroupOp& op : plan.ops) {
    if (op.text) n += Blob::space(slot[op.cell]);
    if (op.kind == AggregateKind::Distinct && slot[op.cell]) {
      n += ValueSet::of(slot[op.cell])->bytes();
    }
  }
  if (plan.tops && slot[plan.top_cell]) n += TopRows::of(slot[plan.top_cell])->bytes();
  return n;
}

// The result of one aggregate.
inline void emit_result(const GroupOp& op, const uint64_t* slot, GrowingColumn& out) {
  using K = AggregateKind;
  if (op.kind == K::Count) return out.word(slot[op.cell < 0 ? 1 : op.cell]);
  if (op.kind == K::Distinct) {
    return out.word(slot[op.cell] ? ValueSet::of(slot[op.cell])->size() : 0);
  }
  if (!group_detail::has_value(op, slot)) return out.null();
  if (op.text) {
    Blob* blob = Blob::of(slot[op.cell]);
    return out.text({blob->bytes(), blob->size});
  }
  if (op.kind != K::Mean) return out.word(slot[op.cell]);
  const double sum = std::bit_cast<double>(slot[op.cell]);
  out.word(std::bit_cast<uint64_t>(sum / double(group_detail::seen(op, slot))));
}

inline void write_cells(const GroupPlan& plan, const uint64_t* slot, GroupWriter& out) {
  for (const GroupOp& op : plan.ops) {
    if (op.cell < 0) continue;
    if (op.kind == AggregateKind::Distinct) {
      out.byte(slot[op.cell] != 0);
      if (slot[op.cell]) ValueSet::of(slot[op.cell])->write(out, is_varlen(op.type));
    } else if (op.text) {
      out.byte(slot[op.cell] != 0);
      if (slot[op.cell]) {
        Blob* blob = Blob::of(slot[op.cell]);
        out.text({blob->bytes(), blob->size});
      }
    } else {
      out.word(slot[op.cell]);
    }
    if (op.seen >= 0 && op.seen != op.cell) out.word(slot[op.seen]);
    if (op.place >= 0) out.word(slot[op.place]);
  }
  if (!plan.tops) return;
  out.byte(slot[plan.top_cell] != 0);
  if (slot[plan.top_cell]) TopRows::of(slot[plan.top_cell])->write(out);
}

// Into a slot whose cells are 0; on damage the reader is not ok() and what was read must be
// dropped.
inline void read_cells(const GroupPlan& plan, uint64_t* slot, GroupReader& in) {
  for (const GroupOp& op : plan.ops) {
    if (op.cell < 0) continue;
    if (op.kind == AggregateKind::Distinct) {
      if (in.byte()) ValueSet::in(slot[op.cell]).read(in, is_varlen(op.type));
    } else if (op.text) {
      if (in.byte()) {
        const std::string_view text = in.text();
        if (in.ok()) Blob::assign(slot[op.cell], text.data(), uint32_t(text.size()));
      }
    } else {
      slot[op.cell] = in.word();
    }
    if (op.seen >= 0 && op.seen != op.cell) slot[op.seen] = in.word();
    if (op.place >= 0) slot[op.place] = in.word();
  }
  if (plan.tops && in.byte()) TopRows::in(slot[plan.top_cell]).read(plan.top, in);
}

}  // namespace plait
