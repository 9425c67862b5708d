// The lanes' results of one batch, put back in row order as columns.
//
// merge_lanes() runs after the last lane's turn (the caller's parts-left counter, acq_rel), outside
// every lane's lock, on any thread. The output is the key columns, shared with the input and not
// copied, then a column for each aggregate. With one lane the results already are in row order and
// their memory becomes the column.
#pragma once

#include <cstdint>
#include <limits>
#include <stdexcept>

#include "plait/keyed/split_by_lane.hpp"

namespace plait {

namespace merge_detail {
// Calls visit(part, i, row) for each row of each part.
template <class Visit>
void each_row(const SplitBatch& s, Visit visit) {
  for (const Part& part : s.parts) {
    for (uint32_t i = 0; i < part.n; ++i) visit(part, i, part.row ? part.row[i] : i);
  }
}

inline Column column_of(Type type, int64_t length, BufferRef data) {
  Column c;
  c.type = type;
  c.length = length;
  c.data = data.data();
  c.data_owner = std::move(data);
  return c;
}

// Eight-byte values of all parts in row order; `values(part)` is a part's array. `whole` is its
// owner with one lane.
template <class Values>
BufferRef in_row_order(const SplitBatch& s, const BufferRef& whole, Values values) {
  if (s.parts.size() == 1 && s.length) return whole;
  BufferRef out = BufferRef::make(s.length * 8);
  uint64_t* to = out.as<uint64_t>();
  if (s.mask) {
    expand2(values(s.parts[0]), values(s.parts[1]), s.mask.data(), s.length, to);
    return out;
  }
  for (const Part& part : s.parts) {
    if (!part.n) continue;
    const uint64_t* from = values(part);
    for (uint32_t i = 0; i < part.n; ++i) to[part.row[i]] = from[i];
  }
  return out;
}

inline void add_validity(const SplitBatch& s, size_t op, Column& c) {
  c.validity_owner = BufferRef::zeroed(bit_bytes(s.length));
  uint8_t* bits = c.validity_owner.data();
  each_row(s, [&](const Part& part, uint32_t i, uint32_t row) {
    if (part.results[op].valid.data()[i]) set_bit(bits, row);
  });
  c.validity = bits;
}

inline Column text_column(const SplitBatch& s, size_t op, Type type) {
  Column c;
  c.type = type;
  c.length = s.length;
  c.offsets_owner = BufferRef::make(4 * (s.length + 1));
  int32_t* offsets = c.offsets_owner.as<int32_t>();
  each_row(s, [&](const Part& part, uint32_t i, uint32_t row) {
    offsets[row + 1] = int32_t(part.results[op].values.as<uint32_t>()[i]);
  });
  offsets[0] = 0;
  int64_t total = 0;
  for (int64_t i = 0; i < s.length; ++i) {
    total += offsets[i + 1];
    check_text(total);
    offsets[i + 1] = int32_t(total);
  }
  c.offsets = offsets;
  c.data_owner = BufferRef::make(total);
  uint8_t* data = c.data_owner.data();
  c.data = data;
  for (const Part& part : s.parts) {
    if (!part.n) continue;
    const char* from = part.results[op].text.data();
    for (uint32_t i = 0; i < part.n; ++i) {
      const uint32_t row = part.row ? part.row[i] : i;
      const auto size = size_t(offsets[row + 1] - offsets[row]);
      if (size) std::memcpy(data + offsets[row], from, size);
      from += size;
    }
  }
  return c;
}

inline Column general_column(const SplitBatch& s, size_t op, const AggregateOp& spec) {
  Column c;
  if (is_varlen(spec.result)) {
    c = text_column(s, op, spec.result);
  } else if (spec.result == Type::Bool) {
    c = column_of(spec.result, s.length, BufferRef::zeroed(bit_bytes(s.length)));
    uint8_t* bits = c.data_owner.data();
    each_row(s, [&](const Part& part, uint32_t i, uint32_t row) {
      if (part.results[op].values.as<uint64_t>()[i]) set_bit(bits, row);
    });
  } else {
    const BufferRef whole = s.parts[0].n ? s.parts[0].results[op].values : BufferRef();
    c = column_of(spec.result, s.length, in_row_order(s, whole, [op](const Part& part) {
                    return part.results[op].values.as<uint64_t>();
                  }));
  }
  if (spec.nullable && spec.kind != AggregateKind::Count) add_validity(s, op, c);
  return c;
}
}  // namespace merge_detail

// Fills out.length and out.columns only; the batch's place in the order is the caller's.
inline void merge_lanes(const KeyedPlan& plan, const Batch& in, SplitBatch& s, Batch& out) {
  using namespace merge_detail;
  out.length = s.length;
  out.columns.clear();
  for (int k : plan.key_columns) out.columns.push_back(in.columns[size_t(k)]);
  BufferRef counts;
  for (size_t op = 0; op < plan.ops.size(); ++op) {
    const Type type = plan.ops[op].result;
    if (!s.hot) {
      out.columns.push_back(general_column(s, op, plan.ops[op]));
    } else if (int(op) == plan.hot_op) {
      out.columns.push_back(column_of(
          type, s.length, in_row_order(s, s.values, [](const Part& part) { return part.output; })));
    } else {
      if (!counts) {
        counts = in_row_order(s, s.hashes, [](const Part& part) { return part.hash; });
      }
      out.columns.push_back(column_of(type, s.length, counts));
    }
  }
}

}  // namespace plait
