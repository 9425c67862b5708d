// Columns in Arrow's memory layout, and the batch that travels through the stages.
//
// A Buffer is shared, reference-counted, written once by the thread that made it and only read
// after it was handed on; a Column is a view of up to three buffers; a Batch is columns plus its
// place in the total order: epoch, source, and for each row its row number within the source (the
// order tag). Handing a batch to another thread is the queue's business (release/acquire there);
// nothing here locks.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "plait/columns/reach.hpp"
#include "plait/columns/tag_bits.hpp"
#include "plait/columns/text_limit.hpp"
#include "plait/core/buffer.hpp"

namespace plait {

enum class Type : uint8_t { Int64, Float64, Bool, String, Bytes, Timestamp, Object };

inline constexpr bool is_fixed64(Type t) {
  return t == Type::Int64 || t == Type::Float64 || t == Type::Timestamp;
}
inline constexpr bool is_varlen(Type t) {
  return t == Type::String || t == Type::Bytes || t == Type::Object;
}

inline bool get_bit(const uint8_t* bits, int64_t i) { return (bits[i >> 3] >> (i & 7)) & 1; }
inline void set_bit(uint8_t* bits, int64_t i) { bits[i >> 3] |= uint8_t(1u << (i & 7)); }
inline void clear_bit(uint8_t* bits, int64_t i) { bits[i >> 3] &= uint8_t(~(1u << (i & 7))); }
inline int64_t bit_bytes(int64_t n) { return (n + 7) / 8; }

// A view of `length` values. For Int64/Float64/Timestamp `data` points at the first value. For Bool
// `data` is Arrow's bit-packed form, the first value being bit `data_offset`. For
// String/Bytes/Object `offsets` points at the first value's offset (length + 1 of them, not
// necessarily from 0) into the bytes at `data`. `validity` is null when no value is null, else
// bit-packed from bit `validity_offset` (1 = valid).
struct Column {
  Type type = Type::Int64;
  int64_t length = 0;
  const uint8_t* validity = nullptr;
  int64_t validity_offset = 0;
  const uint8_t* data = nullptr;
  int64_t data_offset = 0;  // Bool only
  const int32_t* offsets = nullptr;
  BufferRef validity_owner, data_owner, offsets_owner;

  bool valid(int64_t i) const { return !validity || get_bit(validity, validity_offset + i); }
  const int64_t* i64() const { return reinterpret_cast<const int64_t*>(data); }
  const double* f64() const { return reinterpret_cast<const double*>(data); }
  bool boolean(int64_t i) const { return get_bit(data, data_offset + i); }
  const char* bytes(int64_t i) const { return reinterpret_cast<const char*>(data) + offsets[i]; }
  int64_t size(int64_t i) const { return offsets[i + 1] - offsets[i]; }

  // The same values without the first `from`, `count` of them. Shares the buffers.
  Column slice(int64_t from, int64_t count) const {
    Column c = *this;
    c.length = count;
    if (c.validity) c.validity_offset += from;
    if (type == Type::Bool) {
      c.data_offset += from;
    } else if (is_varlen(type)) {
      c.offsets += from;
    } else {
      c.data += from * 8;
    }
    return c;
  }
  // Bytes the values take (for queue bounds), not counting shared slack.
  int64_t byte_size() const {
    int64_t n = validity ? bit_bytes(length) : 0;
    if (type == Type::Bool) return n + bit_bytes(length);
    if (is_varlen(type)) return n + (length ? offsets[length] - offsets[0] : 0) + 4 * length;
    return n + 8 * length;
  }
};

// What a source's time is worth: it goes on, it has had nothing for a while, it was stopped where
// it would have gone on (Flushed: and counts as if it were at its end), or it is at its end. Of the
// parts of a unit the least one counts.
enum class Flow : uint8_t { Running, Idle, Cut, Flushed, Over };

struct Letter;   // a dead letter that rides with its batch to the first sink (engine's)
struct Failure;  // the error that ends the job after this batch's rows (engine's)
struct Control;  // a control item at an epoch boundary (engine's)

struct Batch {
  int64_t length = 0;
  std::vector<Column> columns;

  uint64_t epoch = 0;
  uint32_t source = 0;
  int64_t first_row = 0;  // row number, within the source, of tag 0
  // Row tags: row i of this batch is row first_row + tags[i] of the source. Ascending, with repeats
  // after flat_map. Null means dense: tag i = i.
  const uint32_t* tags = nullptr;
  BufferRef tags_owner;
  // After an event-time operator: first_row is the unit's base, and a tag is twice the row plus 1
  // for what was made of that record, plus 0 for what fell due before it (at its mark).
  bool halves = false;
  // The tags as bits, all different, between the stages of exchanges (Stage::keeps_bits); then
  // `tags` is null.
  TagBits bits;
  // Order among rows of equal tag, from several nodes; null: as they stand.
  const uint64_t* subs = nullptr;
  BufferRef subs_owner;
  // On the way from a timed operator to where its rows are put in order: the time of each.
  const int64_t* times = nullptr;
  BufferRef times_owner;
  int64_t ingest_ns = 0;  // when the last record was due, steady clock
  // Of the unit, whatever rows are left of it: the number of its first row within the source, how
  // many rows the source had, how the source is, and the wall clock when it was cut (microseconds
  // since 1970; 0 in jobs that have no use for it).
  int64_t base = 0, rows = 0;
  // How far event time is at each of them, for each origin that has rows in the unit; mostly one.
  std::vector<OriginReach> reach;
  Flow flow = Flow::Running;
  int64_t stamp = 0;

  std::shared_ptr<std::vector<Letter>> letters;
  std::shared_ptr<Failure> failure;
  std::shared_ptr<Control> control;
  bool end = false;  // the last batch of its edge

  PLAIT_INLINE uint32_t tag(int64_t i) const {
    return tags ? tags[i] : bits ? bits.at(i) : uint32_t(i);
  }
  // The row of the source that row i goes back to.
  int64_t row_number(int64_t i) const { return first_row + (halves ? tag(i) >> 1 : tag(i)); }
  bool half(int64_t i) const { return !halves || tag(i) & 1; }
  // Where row i is in its unit: twice the row of the unit, plus its half.
  PLAIT_INLINE int64_t position(int64_t i) const {
    return halves ? int64_t(tag(i)) : 2 * (first_row - base + tag(i)) + 1;
  }
  // The sum of first row and tag, by which rows of batches of one form are in order.
  int64_t order_number(int64_t i) const { return first_row + tag(i); }
  int64_t last_number() const {
    return bits ? first_row + bits.highest() : order_number(length - 1);
  }
  // Gives the tags their halves, so that rows can meet those of an event-time operator.
  void split_halves() {
    if (halves) return;
    BufferRef made = BufferRef::make(4 * length);
    for (int64_t i = 0; i < length; ++i) made.as<uint32_t>()[i] = uint32_t(position(i));
    tags = made.as<uint32_t>();
    tags_owner = std::move(made);
    bits = TagBits();
    first_row = base;
    halves = true;
  }
  // From bits to the list.
  void spread_tags() {
    if (!bits) return;
    tags_owner = length ? bits.spread(length) : BufferRef();
    tags = length ? tags_owner.as<uint32_t>() : nullptr;
    bits = TagBits();
  }
  // Takes over what is the same for all batches of a unit.
  void same_unit(const Batch& other) {
    epoch = other.epoch;
    source = other.source;
    base = other.base;
    rows = other.rows;
    reach = other.reach;
    flow = other.flow;
    stamp = other.stamp;
  }
  // Of an origin of time; null: none of its rows is in the unit.
  ReachRef reach_from(uint32_t origin) const {
    for (const OriginReach& one : reach) {
      if (one.origin == origin) return one.reach;
    }
    return nullptr;
  }
  int64_t byte_size() const {
    int64_t n = tags ? 4 * length : 8 * bits.count;
    for (const auto& c : columns) n += c.byte_size();
    return n;
  }
};

// Gives all parts halves if one has them, so that their rows can be put in order.
inline void even_halves(std::vector<Batch>& parts) {
  bool any = false;
  for (const Batch& p : parts) any = any || p.halves;
  for (Batch& p : parts) {
    if (any) p.split_halves();
  }
}

}  // namespace plait
