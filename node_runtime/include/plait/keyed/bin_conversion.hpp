// Bins of running aggregates for a plan with other aggregates: those that both have go on, others
// are left out, and new ones begin as if they had seen nothing.
//
// A count of rows goes on with the rows that the key has seen. What has no value to begin with, the
// first value and the mean of an input that is never null, cannot be new: can_begin() says so. Pure
// functions: any thread, no waiting.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "plait/keyed/bin_codec.hpp"

namespace plait {

// Whether an aggregate can begin at a key that has been seen before.
inline bool can_begin(const AggregateOp& op) {
  const bool counted = op.seen >= 0 || op.text || op.counts_rows();
  return counted || (op.kind != AggregateKind::First && op.kind != AggregateKind::Mean);
}

namespace bin_conversion_detail {
// What changes nothing when the next value comes.
inline uint64_t neutral(const AggregateOp& op) {
  const bool low = op.kind == AggregateKind::Max, high = op.kind == AggregateKind::Min;
  if (op.text || op.seen >= 0 || (!low && !high)) return 0;
  // NaN gives way to any number.
  if (op.type == Type::Float64)
    return std::bit_cast<uint64_t>(std::numeric_limits<double>::quiet_NaN());
  if (op.type == Type::Bool) return high;
  return uint64_t(low ? INT64_MIN : INT64_MAX);
}

inline void copy_cells(const AggregateOp& from, const uint64_t* old, const AggregateOp& to,
                       uint64_t* made) {
  if (to.cell >= 0) made[to.cell] = old[from.cell];
  if (to.seen >= 0) made[to.seen] = old[from.seen];
}
}  // namespace bin_conversion_detail

// The bin for the plan `to`, of the same keys; `source` has for each of its aggregates the number
// of the same one in `from`, or -1. If it is refused, `why` is not empty.
inline Bytes convert_bin(const KeyedPlan& from, const KeyedPlan& to, const std::vector<int>& source,
                         const uint8_t* data, size_t size, std::string& why) {
  using namespace bin_conversion_detail;
  BinHeader h;
  why = check_bin(from, BinKind::Whole, data, size, h);
  if (!why.empty()) return {};
  BinWriter writer(to, BinKind::Whole, h.bin, 0, h.count);
  BinReader reader(from, data + sizeof h, data + size);
  BinEntry e;
  for (uint64_t i = 0; i < h.count && reader.next(e); ++i) {
    std::vector<uint64_t> old(from.used_words, 0), made(to.used_words, 0);
    std::vector<uint64_t> key;
    made[0] = e.hash;
    made[1] = e.rows_seen;
    if (to.wide) {  // as a table keeps it: the size, then the bytes
      const size_t length = e.key_size == kNullKey ? 0 : e.key_size;
      key.resize((4 + length + 7) / 8);
      std::memcpy(key.data(), &e.key_size, 4);
      if (length) std::memcpy(reinterpret_cast<char*>(key.data()) + 4, e.key, length);
      made[2] = reinterpret_cast<uint64_t>(key.data());
    }
    BinReader::fill(from, e, old.data());
    for (size_t op = 0; op < to.ops.size(); ++op) {
      const AggregateOp& now = to.ops[op];
      if (source[op] >= 0) {
        copy_cells(from.ops[size_t(source[op])], old.data(), now, made.data());
      } else if (now.cell >= 0) {
        made[size_t(now.cell)] = neutral(now);
      }
    }
    if (h.has_null && i + 1 == h.count) {
      writer.add_null(made.data());
    } else {
      writer.add(made.data());
    }
    for (int w : from.text_words) Blob::drop(old[size_t(w)]);  // the writer has copied them
  }
  return writer.finish();
}

}  // namespace plait
