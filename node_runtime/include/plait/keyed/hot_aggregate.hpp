// The specialised loops of hot plans: narrow key, rows seen, at most one other 64-bit aggregate, no
// nulls in the batch.
//
// One pass over a lane's part in row order: find the slot, asked for kAhead rows earlier, count the
// row, fold the value, and write rows seen and result in place of hash and input. Without branches
// but for probing and new keys. For one thread at a time (the holder of the lane); never waits.
#pragma once

#include <bit>
#include <cstdint>

#include "plait/keyed/aggregates.hpp"
#include "plait/keyed/state_table.hpp"

namespace plait {

inline constexpr uint32_t kAhead = 32;                // rows
inline constexpr size_t kCached = size_t(128) << 10;  // a table this small needs no prefetch

// Runs the rows from `i` on; flat tables stop behind a row that changed the table's shape. Returns
// the next row.
template <unsigned kWords, bool kFlat, class Update>
inline uint32_t run_rows(StateTable& table, Part& part, uint32_t i, Update update) {
  uint64_t* hash = part.hash;
  const uint32_t n = part.n;
  const StateTable::Flat flat = table.flat();
  const auto one = [&](uint32_t row) {
    const uint64_t h = hash[row];
    uint64_t* slot = kFlat ? StateTable::find<kWords>(flat, h) : table.find<kWords>(h);
    const uint64_t seen = ++slot[1];
    slot[0] = h;
    update(slot, seen, row);
    hash[row] = seen;
    if (seen != 1) [[likely]]
      return true;
    table.inserted(h);
    return !kFlat || table.flat().slots == flat.slots;
  };
  const auto ask = [&](uint64_t h) {
    if constexpr (kFlat) {
      StateTable::prefetch<kWords>(flat, h);
    } else {
      table.prefetch<kWords>(h);
    }
  };
  if (n > kAhead && table.byte_size() > kCached) {
    for (uint32_t k = i; k < std::min(n, i + kAhead); ++k) ask(hash[k]);
    while (i + kAhead < n) {
      ask(hash[i + kAhead]);
      if (!one(i++)) return i;
    }
  }
  while (i < n) {
    if (!one(i++)) return i;
  }
  return i;
}

template <unsigned kWords, class Update>
inline void run_hot(StateTable& table, Part& part, Update update) {
  for (uint32_t i = 0; i < part.n;) {
    i = table.flat().slots ? run_rows<kWords, true>(table, part, i, update)
                           : run_rows<kWords, false>(table, part, i, update);
  }
}

namespace hot_detail {
// Slot: {hash, rows seen, cell, values seen or unused}.
template <AggregateKind kKind, class T, class In, bool kSeen>
bool run(StateTable& table, Part& part) {
  const uint64_t* in = part.input;
  uint64_t* out = part.output;
  bool misfit = false;
  run_hot<4>(table, part, [in, out, &misfit](uint64_t* slot, uint64_t seen, uint32_t i) {
    if constexpr (kSeen) seen = ++slot[3];
    const T now =
        fold<kKind, T>(seen == 1, std::bit_cast<T>(slot[2]), T(std::bit_cast<In>(in[i])), misfit);
    slot[2] = std::bit_cast<uint64_t>(now);
    if constexpr (kKind == AggregateKind::Mean) {
      out[i] = std::bit_cast<uint64_t>(now / double(seen));
    } else {
      out[i] = slot[2];
    }
  });
  return misfit;
}

template <AggregateKind kKind>
bool run_typed(const AggregateOp& op, StateTable& table, Part& part) {
  constexpr bool kMean = kKind == AggregateKind::Mean;
  using Int = std::conditional_t<kMean, double, int64_t>;
  if (op.type == Type::Float64) {
    return op.nullable ? run<kKind, double, double, true>(table, part)
                       : run<kKind, double, double, false>(table, part);
  }
  return op.nullable ? run<kKind, Int, int64_t, true>(table, part)
                     : run<kKind, Int, int64_t, false>(table, part);
}
}  // namespace hot_detail

// Whether a sum did not fit: see KeyedState::try_rows.
inline bool run_hot_plan(const KeyedPlan& plan, StateTable& table, Part& part) {
  using K = AggregateKind;
  if (plan.hot_op < 0) {
    run_hot<2>(table, part, [](uint64_t*, uint64_t, uint32_t) {});
    return false;
  }
  const AggregateOp& op = plan.ops[size_t(plan.hot_op)];
  switch (op.kind) {
    case K::Sum:
      return hot_detail::run_typed<K::Sum>(op, table, part);
    case K::WrappingSum:
      return hot_detail::run_typed<K::WrappingSum>(op, table, part);
    case K::Min:
      return hot_detail::run_typed<K::Min>(op, table, part);
    case K::Max:
      return hot_detail::run_typed<K::Max>(op, table, part);
    case K::Mean:
      return hot_detail::run_typed<K::Mean>(op, table, part);
    case K::First:
      return hot_detail::run_typed<K::First>(op, table, part);
    default:
      return hot_detail::run_typed<K::Last>(op, table, part);
  }
}

}  // namespace plait
