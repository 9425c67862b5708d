// The running aggregates over a block of rows whose slots are known.
//
// Each aggregate runs over the whole block by itself: a loop typed by kind and column, that folds
// row i's value into the cells of slots[i] and writes the result as of that row. Rows of one key
// meet their cells in row order, so the results are those of a sequential run. Nulls are skipped;
// min and max leave NaN out unless there is nothing else (of equal values, such as -0.0 and 0.0,
// the earlier stays); mean is the float64 sum of the values over their number. A sum of integers
// that int64 cannot hold says so once for the whole block, unless it wraps: sums go back by
// subtracting, and then rows can be tried one by one. For one thread at a time (the holder of the
// lane); never waits.
#pragma once

#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "plait/keyed/keyed_plan.hpp"
#include "plait/keyed/split_by_lane.hpp"

namespace plait {

// The bytes a text cell owns. The cell holds its address; 0 = no value yet.
struct Blob {
  uint32_t size, capacity;
  char* bytes() { return reinterpret_cast<char*>(this + 1); }

  static Blob* of(uint64_t cell) { return reinterpret_cast<Blob*>(cell); }
  static size_t space(uint64_t cell) { return cell ? sizeof(Blob) + of(cell)->capacity : 0; }
  static void drop(uint64_t& cell) {
    std::free(of(cell));
    cell = 0;
  }
  static void assign(uint64_t& cell, const char* data, uint32_t size) {
    Blob* blob = of(cell);
    if (!blob || blob->capacity < size) {
      const uint32_t capacity = (size + 15) & ~uint32_t(15);
      auto* fresh = static_cast<Blob*>(std::malloc(sizeof(Blob) + capacity));
      if (!fresh) throw std::bad_alloc();
      std::free(blob);
      fresh->capacity = capacity;
      blob = fresh;
      cell = reinterpret_cast<uint64_t>(blob);
    }
    blob->size = size;
    if (size) std::memcpy(blob->bytes(), data, size);
  }
  // Order by bytes, then by length; for UTF-8 that is the order of code points.
  static int compare(const char* a, uint32_t a_size, const char* b, uint32_t b_size) {
    const uint32_t n = a_size < b_size ? a_size : b_size;
    const int order = n ? std::memcmp(a, b, n) : 0;
    return order ? order : a_size < b_size ? -1 : a_size > b_size;
  }
};

// What is wrong with a sum of int64 that does not fit.
inline std::string sum_misfit(int64_t sum, int64_t value) {
  return "a sum does not fit int64: " + std::to_string(sum) + " + " + std::to_string(value) +
         "; write plait.sum(..., wrap=True) if it is to wrap around, or sum floats:"
         " plait.sum(col(...).cast(float))";
}
// Sums that were added to each other and do not fit: no single record is to blame, and the state of
// the lane is of no more use.
struct SumOverflow : std::runtime_error {
  SumOverflow(int64_t sum, int64_t value) : std::runtime_error(sum_misfit(sum, value)) {}
  explicit SumOverflow(const std::string& what) : std::runtime_error(what) {}
};

// What a value does to its cell. `first`: the cell holds nothing yet. `misfit` becomes true if the
// sum does not fit int64; what is returned has wrapped around then.
template <AggregateKind kKind, class T>
inline T fold(bool first, T old, T value, bool& misfit) {
  using K = AggregateKind;
  if constexpr (kKind == K::Sum || kKind == K::WrappingSum || kKind == K::Mean) {
    if constexpr (std::is_same_v<T, int64_t>) {
      T sum;
      const bool over = __builtin_add_overflow(old, value, &sum);
      if constexpr (kKind == K::Sum) misfit |= over;
      return sum;
    }
    // A new cell is +0.0; the sum starts with the first value so that -0.0 stays -0.0.
    else
      return first ? value : old + value;
  } else if constexpr (kKind == K::Min) {
    return (first | (value < old) | (old != old)) ? value : old;
  } else if constexpr (kKind == K::Max) {
    return (first | (value > old) | (old != old)) ? value : old;
  } else if constexpr (kKind == K::First) {
    return first ? value : old;
  } else {
    return value;
  }
}

// Rows of one lane's part whose slots have been found and will not move.
struct Block {
  static constexpr uint32_t kRows = 256;
  uint32_t from = 0, n = 0;  // positions in the part
  uint64_t* slots[kRows];
  uint64_t rows_seen[kRows];  // of the slot, this row included
  uint32_t rows[kRows];       // in the batch
};

namespace aggregates_detail {

template <class T>
struct Load {  // Int64, Float64, Timestamp
  const T* values;
  explicit Load(const Column& c) : values(reinterpret_cast<const T*>(c.data)) {}
  T operator()(uint32_t row) const { return values[row]; }
};
struct LoadBool {
  const Column& column;
  explicit LoadBool(const Column& c) : column(c) {}
  int64_t operator()(uint32_t row) const { return column.boolean(row); }
};
struct LoadAsDouble {
  const int64_t* values;
  explicit LoadAsDouble(const Column& c) : values(c.i64()) {}
  double operator()(uint32_t row) const { return double(values[row]); }
};
struct LoadBoolAsDouble {
  const Column& column;
  explicit LoadBoolAsDouble(const Column& c) : column(c) {}
  double operator()(uint32_t row) const { return column.boolean(row); }
};

template <AggregateKind kKind, class T, class Get>
bool run_fixed(const AggregateOp& op, const Block& b, const Column& c, LaneResult& out) {
  constexpr bool kMean = kKind == AggregateKind::Mean;
  const Get get(c);
  uint64_t* values = out.values.as<uint64_t>() + b.from;
  bool misfit = false;
  if (!op.nullable) {
    for (uint32_t i = 0; i < b.n; ++i) {
      uint64_t& cell = b.slots[i][op.cell];
      const T now =
          fold<kKind, T>(b.rows_seen[i] == 1, std::bit_cast<T>(cell), get(b.rows[i]), misfit);
      cell = std::bit_cast<uint64_t>(now);
      if constexpr (kMean) {
        values[i] = std::bit_cast<uint64_t>(now / double(b.rows_seen[i]));
      } else {
        values[i] = cell;
      }
    }
    return misfit;
  }
  uint8_t* valid = out.valid.data() + b.from;
  for (uint32_t i = 0; i < b.n; ++i) {
    uint64_t& cell = b.slots[i][op.cell];
    uint64_t& seen = b.slots[i][op.seen];
    if (c.valid(b.rows[i])) {
      const T now = fold<kKind, T>(seen == 0, std::bit_cast<T>(cell), get(b.rows[i]), misfit);
      cell = std::bit_cast<uint64_t>(now);
      ++seen;
    }
    valid[i] = seen != 0;
    if constexpr (kMean) {
      values[i] = seen ? std::bit_cast<uint64_t>(std::bit_cast<T>(cell) / double(seen)) : 0;
    } else {
      values[i] = cell;
    }
  }
  return misfit;
}

template <AggregateKind kKind>
bool run_typed(const AggregateOp& op, const Block& b, const Column& c, LaneResult& out) {
  if (op.type == Type::Float64) return run_fixed<kKind, double, Load<double>>(op, b, c, out);
  if constexpr (kKind == AggregateKind::Mean) {
    if (op.type == Type::Bool) return run_fixed<kKind, double, LoadBoolAsDouble>(op, b, c, out);
    return run_fixed<kKind, double, LoadAsDouble>(op, b, c, out);
  } else {
    if (op.type == Type::Bool) return run_fixed<kKind, int64_t, LoadBool>(op, b, c, out);
    return run_fixed<kKind, int64_t, Load<int64_t>>(op, b, c, out);
  }
}

inline bool replaces(AggregateKind kind, uint64_t cell, const char* data, uint32_t size) {
  if (!cell) return true;
  if (kind == AggregateKind::First) return false;
  if (kind == AggregateKind::Last) return true;
  Blob* old = Blob::of(cell);
  const int order = Blob::compare(data, size, old->bytes(), old->size);
  return kind == AggregateKind::Min ? order < 0 : order > 0;
}

inline void run_text(const AggregateOp& op, const Block& b, const Column& c, LaneResult& out) {
  uint32_t* sizes = out.values.as<uint32_t>() + b.from;
  uint8_t* valid = op.nullable ? out.valid.data() + b.from : nullptr;
  for (uint32_t i = 0; i < b.n; ++i) {
    uint64_t& cell = b.slots[i][op.cell];
    const uint32_t row = b.rows[i];
    if (!op.nullable || c.valid(row)) {
      const char* data = c.bytes(row);
      const auto size = uint32_t(c.size(row));
      if (replaces(op.kind, cell, data, size)) Blob::assign(cell, data, size);
    }
    if (valid) valid[i] = cell != 0;
    sizes[i] = cell ? Blob::of(cell)->size : 0;
    if (cell)
      out.text.insert(out.text.end(), Blob::of(cell)->bytes(), Blob::of(cell)->bytes() + sizes[i]);
  }
}

inline void run_count(const AggregateOp& op, const Block& b, const Column* c, LaneResult& out) {
  uint64_t* values = out.values.as<uint64_t>() + b.from;
  if (op.cell < 0) {
    std::memcpy(values, b.rows_seen, b.n * 8);
    return;
  }
  for (uint32_t i = 0; i < b.n; ++i) values[i] = b.slots[i][op.cell] += c->valid(b.rows[i]);
}
}  // namespace aggregates_detail

// Room for a lane's results of one aggregate over n rows.
inline LaneResult make_result(const AggregateOp& op, uint32_t n) {
  LaneResult r;
  r.values = BufferRef::make(int64_t(n) * (op.text ? 4 : 8));
  if (op.nullable && op.kind != AggregateKind::Count) r.valid = BufferRef::make(n);
  return r;
}

// The value of a checked sum.
inline int64_t whole_number(const AggregateOp& op, const Column& c, uint32_t row) {
  return op.type == Type::Bool ? int64_t(c.boolean(row)) : c.i64()[row];
}
// Whether the row's value fits a checked sum as it is; `why` says what does not.
inline bool fits_sum(const AggregateOp& op, const uint64_t* slot, const Batch& batch, uint32_t row,
                     std::string& why) {
  const Column& c = batch.columns[size_t(op.input)];
  if (op.nullable && !c.valid(row)) return true;
  const auto old = int64_t(slot[op.cell]), value = whole_number(op, c, row);
  int64_t sum;
  if (!__builtin_add_overflow(old, value, &sum)) [[likely]]
    return true;
  why = sum_misfit(old, value);
  return false;
}
// Adds the row's value to a checked sum that it fits.
inline void add_sum(const AggregateOp& op, uint64_t* slot, const Batch& batch, uint32_t row) {
  const Column& c = batch.columns[size_t(op.input)];
  if (op.nullable && !c.valid(row)) return;
  slot[op.cell] += uint64_t(whole_number(op, c, row));
  if (op.seen >= 0) ++slot[op.seen];
}
// A checked sum as it was before a row: what was added to it, wrapped around or not, is taken off.
inline void take_off_sum(const AggregateOp& op, uint64_t* slot, const Batch& batch, uint32_t row) {
  const Column& c = batch.columns[size_t(op.input)];
  if (op.nullable && !c.valid(row)) return;
  slot[op.cell] -= uint64_t(whole_number(op, c, row));
  if (op.seen >= 0) --slot[op.seen];
}

// Whether a sum did not fit: then the block's sums are to be taken back.
inline bool run_aggregate(const AggregateOp& op, const Block& b, const Batch& batch,
                          LaneResult& out) {
  using namespace aggregates_detail;
  using K = AggregateKind;
  const Column* c = op.input < 0 ? nullptr : &batch.columns[size_t(op.input)];
  if (op.kind == K::Count) return run_count(op, b, c, out), false;
  if (op.text) return run_text(op, b, *c, out), false;
  switch (op.kind) {
    case K::Sum:
      return run_typed<K::Sum>(op, b, *c, out);
    case K::WrappingSum:
      return run_typed<K::WrappingSum>(op, b, *c, out);
    case K::Min:
      return run_typed<K::Min>(op, b, *c, out);
    case K::Max:
      return run_typed<K::Max>(op, b, *c, out);
    case K::Mean:
      return run_typed<K::Mean>(op, b, *c, out);
    case K::First:
      return run_typed<K::First>(op, b, *c, out);
    default:
      return run_typed<K::Last>(op, b, *c, out);
  }
}

}  // namespace plait
