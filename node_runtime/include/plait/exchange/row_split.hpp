// The rows of a batch apart by the node that owns their key: as lists, or, for two nodes and 64-bit
// columns, by a bit for each row.
//
// The bits are the tags of both parts: the other node's columns are written straight into its frame
// and this node's into fresh ones, in one pass over each column. Pure functions over batches of the
// caller: any thread; nothing waits.
#pragma once

#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

#include "plait/columns/layout.hpp"
#include "plait/columns/row_bits.hpp"
#include "plait/keyed/split_by_lane.hpp"
#include "plait/links/frame_codec.hpp"

namespace plait {

// The rows of each member, ascending.
struct RowLists {
  BufferRef memory;
  std::vector<uint32_t*> rows;
  std::vector<int64_t> counts;
};

// Of two members: a 1 for each row of the second.
struct RowSides {
  BufferRef memory;
  int64_t ones = 0;
  const uint64_t* words() const { return memory.as<uint64_t>(); }
};

// The key column, if it is one of 64 bits that are hashed as they are.
inline const Column* plain_key(const KeyedPlan& plan, const Batch& batch) {
  if (plan.key_types.size() != 1 || !is_fixed64(plan.key_types[0])) return nullptr;
  const Column& key = batch.columns[size_t(plan.key_columns[0])];
  return key.validity || key.type == Type::Float64 ? nullptr : &key;
}

// Whether two nodes' rows can be kept apart by bits. `tags`: they are wanted.
inline bool parts_by_bits(const KeyedPlan& plan, const Batch& batch, bool tags) {
  if (!have_lane_mask() || !plain_key(plan, batch) || batch.subs || batch.times || batch.failure) {
    return false;
  }
  if (tags && (batch.tags || batch.bits)) return false;
  for (const Column& c : batch.columns) {
    if (!is_fixed64(c.type) || c.validity) return false;
  }
  return true;
}

inline RowSides sides_of(const uint64_t* keys, int64_t n, uint64_t salt, unsigned shift,
                         const uint16_t* places) {
  RowSides out;
  out.memory = BufferRef::make(8 * TagBits::words_for(n));
  out.ones = key_sides(keys, n, salt, shift, places, out.memory.as<uint64_t>());
  return out;
}

// Encodes the rows of the other side and leaves those of `mine` in the batch.
inline Encoded part_by_bits(const Frame& head, Batch& batch, const RowSides& sides, bool mine,
                            bool tags) {
  using namespace frame_detail;
  const int64_t n = batch.length, words = TagBits::words_for(n);
  const int64_t kept = mine ? sides.ones : n - sides.ones;
  TagBits bits[2];  // of the other, of mine
  for (bool side : {false, true}) {
    if (!tags) break;
    const bool ones = side == mine;
    TagBits& b = bits[side];
    b.count = words;
    b.owner = ones ? sides.memory : BufferRef::make(8 * words);
    b.words = b.owner.as<uint64_t>();
    if (ones) continue;
    auto* to = b.owner.as<uint64_t>();
    for (int64_t w = 0; w < words; ++w) to[w] = ~sides.words()[w];
    if (n % 64) to[words - 1] &= (uint64_t(1) << (n % 64)) - 1;
  }
  Shape shape;
  shape.batch = &batch;
  shape.n = n - kept;
  if (tags) {
    shape.form = TagForm::Bitmap;
    shape.tag_words = words;
    shape.bits = bits[0].words;
    shape.bytes = 8 * words;
  }
  shape_reach(shape);
  for (const Column& c : batch.columns) {
    const PackedInts narrow = choose_packing(reinterpret_cast<const uint64_t*>(c.data), n);
    shape.parts.push_back({false, 0, narrow});
    shape.bytes += padded8(narrow.width * shape.n);
  }
  Encoded e = start_rows(head, shape);
  BodyWriter body(body_of(e, shape.bytes));
  if (tags) body.copy(shape.bits, 8 * words);
  body.reach(shape);
  for (size_t i = 0; i < batch.columns.size(); ++i) {
    Column& c = batch.columns[i];
    const PackedInts& narrow = shape.parts[i].narrow;
    BufferRef own = BufferRef::make(8 * kept), wide;
    // What is written beyond its end is written again by the next column, or in the buffer's slack.
    auto* theirs = body.next(narrow.width * shape.n);
    auto* other = reinterpret_cast<uint64_t*>(theirs);
    if (narrow.width < 8) {
      wide = BufferRef::make(8 * shape.n);
      other = wide.as<uint64_t>();
    }
    compress_bits(reinterpret_cast<const uint64_t*>(c.data), n, sides.words(),
                  mine ? other : own.as<uint64_t>(), mine ? own.as<uint64_t>() : other);
    if (wide) pack_ints(other, nullptr, shape.n, narrow, theirs);
    c.data = own.data();
    c.length = kept;
    c.data_owner = std::move(own);
  }
  batch.length = kept;
  batch.tags = nullptr;
  batch.tags_owner = BufferRef();
  batch.halves = false;  // a batch that has them comes here only if no operator looks at tags
  batch.bits = std::move(bits[1]);
  return e;
}

// Two members, without a branch: both lists are written, one of them counts.
template <class Hash>
RowLists two_lists(int64_t n, unsigned shift, const uint16_t* places, Hash hash) {
  RowLists out;
  out.memory = BufferRef::make(8 * (n + 1));
  uint32_t* zero = out.memory.as<uint32_t>();
  uint32_t* one = zero + n + 1;
  out.rows = {zero, one};
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t place = places[hash(i) >> shift];
    *zero = uint32_t(i);
    *one = uint32_t(i);
    zero += 1 - place;
    one += place;
  }
  out.counts = {zero - out.rows[0], one - out.rows[1]};
  return out;
}

inline RowLists lists_of(const uint64_t* hashes, int64_t n, unsigned shift, const Layout& layout) {
  const uint16_t* places = layout.places.data();
  if (layout.members.size() == 2) {
    return two_lists(n, shift, places, [=](int64_t i) { return hashes[i]; });
  }
  RowLists out;
  out.counts.assign(layout.members.size(), 0);
  out.memory = BufferRef::make(4 * n);
  for (int64_t i = 0; i < n; ++i) ++out.counts[places[hashes[i] >> shift]];
  uint32_t* start = out.memory.as<uint32_t>();
  for (size_t m = 0; m < out.counts.size(); start += out.counts[m++]) out.rows.push_back(start);
  std::vector<uint32_t*> at = out.rows;
  for (int64_t i = 0; i < n; ++i) *at[places[hashes[i] >> shift]]++ = uint32_t(i);
  return out;
}

// Replaces the batch's rows by the given ones; dense tags become bits.
inline void keep_rows(Batch& batch, const uint32_t* rows, int64_t n, bool tags) {
  if (batch.times || (tags && (batch.tags || batch.bits || batch.subs)))
    return take_rows(batch, rows, n);
  const int64_t before = batch.length;
  for (Column& c : batch.columns) c = take(c, rows, n);
  take_subs(batch, rows, n);
  batch.length = n;
  batch.tags = nullptr;
  batch.halves = false;
  batch.bits = tags ? TagBits::of(rows, n, before) : TagBits();
}

}  // namespace plait
