// One batch cut into its lanes' parts, before the lanes' turns.
//
// split_by_lane() hashes every row and writes each lane's hashes (and, for hot plans, its input
// values) compactly in row order; any thread may run it, without a lane's lock. The holder of lane
// l then reads and writes only parts[l], in place, and the worker that finishes the last part
// merges. The caller orders these three by release/acquire (split flag, parts-left counter). Rows
// with a NaN key must be gone before: nan_key_rows() finds them. The protocol is that of the
// reorder buffer and hybrid queue of the ordered data-parallel runtime (Fig. 4 and 7), a batch
// being the unit and a lane the partition.
#pragma once

#include <cstdint>
#include <vector>

#include "plait/columns/failure.hpp"
#include "plait/columns/lane_mask.hpp"
#include "plait/keyed/keyed_plan.hpp"

namespace plait {

// One lane's results of one aggregate, in the lane's row order (general plans).
struct LaneResult {
  BufferRef values;        // 8 bytes a row; for text the length, 4 bytes a row
  BufferRef valid;         // 1 byte a row; none when all are valid
  std::vector<char> text;  // the bytes of all rows, one after the other
};

struct alignas(64) Part {
  uint32_t n = 0;
  uint64_t* hash = nullptr;         // hot plans: overwritten by the rows seen
  const uint64_t* input = nullptr;  // hot plans with a value: the lane's inputs
  uint64_t* output = nullptr;       // and their results (may be the same memory)
  const uint32_t* row =
      nullptr;  // the batch's rows of the part, ascending; null: one lane, or kept as a mask
  std::vector<LaneResult> results;  // general plans: one for each aggregate
  std::vector<RowFailure> failed;   // rows that do not fit a sum, ascending; they have no results
  std::string overflowed;           // sums that were added to each other do not fit, and why
};

struct SplitBatch {
  int64_t length = 0;
  bool hot = false;  // this batch goes the plan's hot way: no nulls where it matters
  BufferRef hashes, values, rows, mask;
  BufferRef key_bytes,
      key_offsets;  // several key columns: their encodings, one a row (offsets are uint32)
  std::vector<Part> parts;
};

// The rows whose key holds a NaN, ascending. Costs nothing without a float key column.
inline void nan_key_rows(const KeyedPlan& plan, const Batch& batch, std::vector<uint32_t>& rows) {
  for (size_t k = 0; k < plan.key_types.size(); ++k) {
    if (plan.key_types[k] != Type::Float64) continue;
    const Column& c = batch.columns[size_t(plan.key_columns[k])];
    const double* v = c.f64();
    const size_t before = rows.size();
    for (int64_t i = 0; i < batch.length; ++i) {
      if (v[i] != v[i] && c.valid(i)) rows.push_back(uint32_t(i));
    }
    if (before && rows.size() > before) {
      std::sort(rows.begin(), rows.end());
      rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
    }
  }
}

namespace split_detail {
inline void hash_fixed_column(const Column& c, int64_t n, uint64_t* out) {
  const uint64_t s = salt(c.type);
  const auto* v = reinterpret_cast<const uint64_t*>(c.data);
  if (c.type == Type::Bool) {
    for (int64_t i = 0; i < n; ++i) out[i] = (uint64_t(c.boolean(i)) ^ s) * kGolden;
  } else if (c.type == Type::Float64) {
    for (int64_t i = 0; i < n; ++i) out[i] = (canonical_double(v[i]) ^ s) * kGolden;
  } else {
    for (int64_t i = 0; i < n; ++i) out[i] = (v[i] ^ s) * kGolden;
  }
  if (!c.validity) return;
  for (int64_t i = 0; i < n; ++i) {
    if (!c.valid(i)) out[i] = null_hash(c.type);
  }
}

inline void hash_text_column(const Column& c, int64_t n, uint64_t* out) {
  for (int64_t i = 0; i < n; ++i) {
    out[i] = c.valid(i) ? hash_bytes(c.bytes(i), size_t(c.size(i)), c.type) : null_hash(c.type);
  }
}

inline void hash_columns(const KeyedPlan& plan, const Batch& batch, SplitBatch& s, uint64_t* out) {
  std::vector<const Column*> columns;
  for (int k : plan.key_columns) columns.push_back(&batch.columns[size_t(k)]);
  std::vector<uint8_t> bytes;
  bytes.reserve(size_t(batch.length) * columns.size() * 12);
  s.key_offsets = BufferRef::make(4 * (batch.length + 1));
  auto* offsets = s.key_offsets.as<uint32_t>();
  for (int64_t i = 0; i < batch.length; ++i) {
    const size_t at = bytes.size();
    offsets[i] = uint32_t(at);
    encode_key(columns, i, bytes);
    if (bytes.size() > 0xFFFFFFFF) throw TooMuchText();
    out[i] = xxh64(bytes.data() + at, bytes.size() - at, 0);
  }
  offsets[batch.length] = uint32_t(bytes.size());
  s.key_bytes = BufferRef::make(int64_t(bytes.size()));
  if (!bytes.empty()) std::memcpy(s.key_bytes.data(), bytes.data(), bytes.size());
}

inline void hash_rows(const KeyedPlan& plan, const Batch& batch, SplitBatch& s, uint64_t* out) {
  if (plan.key_types.empty()) {
    std::memset(out, 0, size_t(batch.length) * 8);
  } else if (plan.key_types.size() > 1) {
    hash_columns(plan, batch, s, out);
  } else {
    const Column& c = batch.columns[size_t(plan.key_columns[0])];
    (plan.wide ? hash_text_column : hash_fixed_column)(c, batch.length, out);
  }
}

// Whether the lanes of this batch can be kept apart by a mask: two lanes, one 64-bit key column,
// the hot way.
inline bool by_mask(const KeyedPlan& plan, const SplitBatch& s) {
  return plan.lane_bits == 1 && s.hot && plan.key_types.size() == 1 &&
         is_fixed64(plan.key_types[0]) && have_lane_mask();
}

inline void split_by_mask(const KeyedPlan& plan, const Batch& batch, SplitBatch& s) {
  const int64_t n = batch.length, room = n + 8;
  const Column& key = batch.columns[size_t(plan.key_columns[0])];
  const auto* keys = reinterpret_cast<const uint64_t*>(key.data);
  s.hashes = BufferRef::make(2 * room * 8);
  s.mask = BufferRef::make(n / 4 + 1);
  uint64_t* h = s.hashes.as<uint64_t>();
  const bool canonical = key.type == Type::Float64;
  const uint32_t ones =
      (canonical ? hash_compress2<true> : hash_compress2<false>)(keys, n, salt(key.type),
                                                                 s.mask.data(), h, h + room);
  s.parts[0].n = uint32_t(n) - ones;
  s.parts[1].n = ones;
  for (int l : {0, 1}) s.parts[size_t(l)].hash = h + l * room;
  if (plan.hot_op < 0) return;
  const Column& in = batch.columns[size_t(plan.ops[size_t(plan.hot_op)].input)];
  s.values = BufferRef::make(2 * room * 8);
  uint64_t* v = s.values.as<uint64_t>();
  compress2(reinterpret_cast<const uint64_t*>(in.data), n, s.mask.data(), v, v + room);
  for (int l : {0, 1}) s.parts[size_t(l)].input = s.parts[size_t(l)].output = v + l * room;
}

inline void split_one_lane(const KeyedPlan& plan, const Batch& batch, SplitBatch& s) {
  s.hashes = BufferRef::make(batch.length * 8);
  Part& part = s.parts[0];
  part.n = uint32_t(batch.length);
  part.hash = s.hashes.as<uint64_t>();
  hash_rows(plan, batch, s, part.hash);
  if (!s.hot || plan.hot_op < 0) return;
  s.values = BufferRef::make(batch.length * 8);
  part.input = reinterpret_cast<const uint64_t*>(
      batch.columns[size_t(plan.ops[size_t(plan.hot_op)].input)].data);
  part.output = s.values.as<uint64_t>();
}

inline void split_by_rows(const KeyedPlan& plan, const Batch& batch, SplitBatch& s) {
  const int64_t n = batch.length;
  BufferRef scratch = BufferRef::make(n * 8);
  uint64_t* all = scratch.as<uint64_t>();
  hash_rows(plan, batch, s, all);
  std::vector<uint32_t> at(plan.lanes() + 1, 0);
  const unsigned shift = 64 - plan.lane_bits;
  if (plan.lane_bits == 1) {
    uint64_t ones = 0;
    for (int64_t i = 0; i < n; ++i) ones += all[i] >> 63;
    at[1] = uint32_t(uint64_t(n) - ones);
    at[2] = uint32_t(ones);
  } else {
    for (int64_t i = 0; i < n; ++i) ++at[(all[i] >> shift) + 1];
  }
  s.hashes = BufferRef::make(n * 8);
  s.rows = BufferRef::make(n * 4);
  uint64_t* hashes = s.hashes.as<uint64_t>();
  uint32_t* rows = s.rows.as<uint32_t>();
  for (unsigned l = 0; l < plan.lanes(); ++l) {
    s.parts[l].n = at[l + 1];
    at[l + 1] += at[l];
    s.parts[l].hash = hashes + at[l];
    s.parts[l].row = rows + at[l];
  }
  if (plan.lane_bits == 1) {  // both places in registers: 2 ns a row less than through memory
    uint32_t next0 = 0, next1 = at[1];
    for (int64_t i = 0; i < n; ++i) {
      const auto lane = uint32_t(all[i] >> 63);
      const uint32_t to = lane ? next1 : next0;
      hashes[to] = all[i];
      rows[to] = uint32_t(i);
      next1 += lane;
      next0 += 1 - lane;
    }
  } else {
    for (int64_t i = 0; i < n; ++i) {
      const uint32_t to = at[all[i] >> shift]++;
      hashes[to] = all[i];
      rows[to] = uint32_t(i);
    }
  }
  if (!s.hot || plan.hot_op < 0) return;
  const Column& in = batch.columns[size_t(plan.ops[size_t(plan.hot_op)].input)];
  const auto* from = reinterpret_cast<const uint64_t*>(in.data);
  s.values = BufferRef::make(n * 8);
  uint64_t* values = s.values.as<uint64_t>();
  for (int64_t i = 0; i < n; ++i) values[i] = from[rows[i]];
  for (Part& part : s.parts) part.input = part.output = values + (part.hash - hashes);
}
}  // namespace split_detail

inline void split_by_lane(const KeyedPlan& plan, const Batch& batch, SplitBatch& s) {
  using namespace split_detail;
  s = SplitBatch();
  s.length = batch.length;
  s.parts.resize(plan.lanes());
  s.hot = plan.hot;
  for (int k : plan.key_columns) s.hot = s.hot && !batch.columns[size_t(k)].validity;
  if (s.hot && plan.hot_op >= 0) {
    const AggregateOp& op = plan.ops[size_t(plan.hot_op)];
    s.hot = !op.nullable || !batch.columns[size_t(op.input)].validity;
  }
  if (plan.lane_bits == 0) {
    split_one_lane(plan, batch, s);
  } else if (by_mask(plan, s)) {
    split_by_mask(plan, batch, s);
  } else {
    split_by_rows(plan, batch, s);
  }
}

}  // namespace plait
