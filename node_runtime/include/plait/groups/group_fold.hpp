// Folds a block of rows into the slots of their groups.
//
// Each result runs over the whole block by itself: a loop typed by kind and column. Rows of one
// group meet their cells in row order, so the state is that of a sequential run. What a value does
// is `fold` of aggregates.hpp. Rows that do not fit a sum change nothing and are said to have
// failed: sums are folded first, and if one did not fit, those of the block are taken back and its
// rows are tried one by one. For one thread at a time (the holder of the lane); never waits.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "plait/columns/failure.hpp"
#include "plait/groups/group_cells.hpp"

namespace plait {

// Rows whose slots have been found and will not move.
struct GroupBlock {
  static constexpr uint32_t kRows = 256;
  uint32_t n = 0;
  uint64_t* slots[kRows];
  uint64_t seen[kRows];  // rows of the group, this row included
  uint32_t rows[kRows];  // in the batch
  uint64_t places[kRows];
};

namespace group_detail {

template <AggregateKind kKind, class T, class Get>
bool fold_fixed(const GroupOp& op, const GroupBlock& b, const Column& c) {
  constexpr bool kPlaced = kKind == AggregateKind::First || kKind == AggregateKind::Last;
  const Get get(c);
  const bool nulls = op.nullable && c.validity;
  bool misfit = false;
  for (uint32_t i = 0; i < b.n; ++i) {
    if (nulls && !c.valid(b.rows[i])) continue;
    uint64_t& cell = b.slots[i][op.cell];
    const bool first = op.seen < 0 ? b.seen[i] == 1 : b.slots[i][op.seen]++ == 0;
    cell = std::bit_cast<uint64_t>(
        fold<kKind, T>(first, std::bit_cast<T>(cell), get(b.rows[i]), misfit));
    if constexpr (kPlaced) {
      if (op.place >= 0 && (first || kKind == AggregateKind::Last)) {
        b.slots[i][op.place] = b.places[i];
      }
    }
  }
  return misfit;
}

template <AggregateKind kKind>
bool fold_typed(const GroupOp& op, const GroupBlock& b, const Column& c) {
  using namespace aggregates_detail;
  if (op.type == Type::Float64) return fold_fixed<kKind, double, Load<double>>(op, b, c);
  if constexpr (kKind == AggregateKind::Mean) {
    if (op.type == Type::Bool) return fold_fixed<kKind, double, LoadBoolAsDouble>(op, b, c);
    return fold_fixed<kKind, double, LoadAsDouble>(op, b, c);
  } else {
    if (op.type == Type::Bool) return fold_fixed<kKind, int64_t, LoadBool>(op, b, c);
    return fold_fixed<kKind, int64_t, Load<int64_t>>(op, b, c);
  }
}

inline void fold_text(const GroupOp& op, const GroupBlock& b, const Column& c) {
  for (uint32_t i = 0; i < b.n; ++i) {
    if (!c.valid(b.rows[i])) continue;
    uint64_t& cell = b.slots[i][op.cell];
    const char* data = c.bytes(b.rows[i]);
    const auto size = uint32_t(c.size(b.rows[i]));
    if (!aggregates_detail::replaces(op.kind, cell, data, size)) continue;
    Blob::assign(cell, data, size);
    if (op.place >= 0) b.slots[i][op.place] = b.places[i];
  }
}

inline void fold_distinct(const GroupOp& op, const GroupBlock& b, const Column& c) {
  for (uint32_t i = 0; i < b.n; ++i) {
    const uint32_t row = b.rows[i];
    if (!c.valid(row)) continue;
    ValueSet& set = ValueSet::in(b.slots[i][op.cell]);
    if (is_varlen(op.type)) {
      set.add_text({c.bytes(row), size_t(c.size(row))});
    } else if (op.type == Type::Bool) {
      set.add_word(c.boolean(row));
    } else {
      uint64_t bits;
      std::memcpy(&bits, c.data + 8 * size_t(row), 8);
      set.add_word(ValueSet::canonical(bits, op.type));
    }
  }
}

// Whether a sum did not fit.
inline bool fold_op(const GroupOp& op, const GroupBlock& b, const Batch& batch) {
  using K = AggregateKind;
  if (op.counts_rows()) return false;
  const Column& c = batch.columns[size_t(op.input)];
  if (op.text) return fold_text(op, b, c), false;
  switch (op.kind) {
    case K::Count:
      for (uint32_t i = 0; i < b.n; ++i) b.slots[i][op.cell] += c.valid(b.rows[i]);
      return false;
    case K::Distinct:
      return fold_distinct(op, b, c), false;
    case K::Sum:
      return fold_typed<K::Sum>(op, b, c);
    case K::WrappingSum:
      return fold_typed<K::WrappingSum>(op, b, c);
    case K::Min:
      return fold_typed<K::Min>(op, b, c);
    case K::Max:
      return fold_typed<K::Max>(op, b, c);
    case K::Mean:
      return fold_typed<K::Mean>(op, b, c);
    case K::First:
      return fold_typed<K::First>(op, b, c);
    case K::Last:
      return fold_typed<K::Last>(op, b, c);
  }
  return false;
}

// All but checked sums.
inline void fold_others(const GroupPlan& plan, const Batch& batch, const GroupBlock& b) {
  for (const GroupOp& op : plan.ops) {
    if (!op.checked()) fold_op(op, b, batch);
  }
  if (plan.tops) {
    for (uint32_t i = 0; i < b.n; ++i) {
      TopRows::in(b.slots[i][plan.top_cell]).add(plan.top, batch, b.rows[i], b.places[i]);
    }
  }
}
}  // namespace group_detail

// Whether a row fits all sums of its group as they are; if not it has failed.
inline bool fits_sums(const GroupPlan& plan, const uint64_t* slot, const Batch& batch, uint32_t row,
                      std::vector<RowFailure>& failed) {
  std::string why;
  for (const GroupOp& op : plan.sums) {
    if (fits_sum(op, slot, batch, row, why)) continue;
    failed.push_back({row, std::move(why)});
    return false;
  }
  return true;
}

namespace group_detail {
// A block whose sums have been folded and did not fit, once more. The first row of a group fits
// always, so no slot is left without rows.
[[gnu::noinline, gnu::cold]] inline void try_block(const GroupPlan& plan, const Batch& batch,
                                                   const GroupBlock& b,
                                                   std::vector<RowFailure>& failed) {
  for (uint32_t i = 0; i < b.n; ++i) {
    --b.slots[i][1];
    for (const GroupOp& op : plan.sums) take_off_sum(op, b.slots[i], batch, b.rows[i]);
  }
  GroupBlock one;
  one.n = 1;
  for (uint32_t i = 0; i < b.n; ++i) {
    if (!fits_sums(plan, b.slots[i], batch, b.rows[i], failed)) continue;
    one.slots[0] = b.slots[i];
    one.seen[0] = ++b.slots[i][1];
    one.rows[0] = b.rows[i];
    one.places[0] = b.places[i];
    for (const GroupOp& op : plan.sums) fold_op(op, one, batch);
    fold_others(plan, batch, one);
  }
}
}  // namespace group_detail

// Works the block off; rows that failed are added.
inline void fold_block(const GroupPlan& plan, const Batch& batch, GroupBlock& b,
                       std::vector<RowFailure>& failed) {
  bool misfit = false;
  for (const GroupOp& op : plan.sums) misfit |= group_detail::fold_op(op, b, batch);
  if (misfit) [[unlikely]] {
    group_detail::try_block(plan, batch, b, failed);
  } else {
    group_detail::fold_others(plan, batch, b);
  }
  b.n = 0;
}

}  // namespace plait
