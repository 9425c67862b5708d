// Frames to bytes: the rows of a batch are gathered straight into the frame, one pass for a column.
//
// A first look over the columns finds the sizes (text bytes, whether any of the rows is null), so
// the frame is allocated once. Fixed columns are 8 bytes a row, or the low 4, 2 or 1 where all
// values agree in the bits above; bools and validity are bit-packed from bit 0, validity only if a
// row is null; texts are int32 offsets from 0, then the bytes. Row tags are left out when dense, a
// bitmap when that is smaller than the list. Any thread may encode anything that it may read;
// nothing waits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "plait/columns/control.hpp"
#include "plait/columns/failure.hpp"
#include "plait/columns/packed_ints.hpp"
#include "plait/columns/select.hpp"
#include "plait/core/msgpack.hpp"
#include "plait/links/frame.hpp"
#include "plait/links/frame_reach.hpp"

namespace plait {

namespace frame_detail {

// How the rows of one batch will lie in the body.
struct Shape {
  const Batch* batch = nullptr;
  const uint32_t* rows = nullptr;  // null: all
  int64_t n = 0;
  TagForm form = TagForm::Dense;
  std::vector<uint32_t> gathered;  // tags of the rows, when both are lists
  BufferRef spread;                // the batch's tags, when they are bits and rows are chosen
  const uint32_t* tags = nullptr;
  const uint64_t* bits = nullptr;  // or the bitmap as it is
  uint32_t first_tag = 0;
  int64_t tag_words = 0;  // of the bitmap, 64 rows each
  struct ColumnShape {
    bool nulls = false;
    int64_t text = 0;
    PackedInts narrow;
  };
  std::vector<ColumnShape> parts;
  std::vector<ReachShape> reaches;  // what this node knows of them, unless all nodes do already
  int64_t bytes = 0;
};

inline bool any_null(const Column& c, const uint32_t* rows, int64_t n) {
  if (!c.validity) return false;
  bool all = true;
  for (int64_t i = 0; i < n; ++i) all &= c.valid(rows ? rows[i] : i);
  return !all;
}

inline int64_t text_bytes(const Column& c, const uint32_t* rows, int64_t n) {
  if (n == 0) return 0;
  int64_t total = 0;
  if (!rows) {
    total = int64_t(c.offsets[n]) - c.offsets[0];
  } else {
    for (int64_t i = 0; i < n; ++i) total += c.size(rows[i]);
  }
  check_text(total);
  return total;
}

struct LoopAscending {
  PLAIT_INLINE static bool run(const uint32_t* tags, int64_t n) {
    uint32_t back = 0;
    for (int64_t i = 1; i < n; ++i) back |= uint32_t(tags[i - 1] >= tags[i]);
    return back == 0;
  }
};

inline void shape_tags(Shape& s) {
  const Batch& b = *s.batch;
  if (b.bits && !s.rows && s.n == b.length && s.n > 0) {
    s.form = TagForm::Bitmap;
    s.first_tag = b.bits.first;
    s.tag_words = b.bits.count;
    s.bits = b.bits.words;
    s.bytes += s.tag_words * 8;
    return;
  }
  if (!b.tags && !b.bits && !s.rows) return;
  if (b.bits) s.spread = b.bits.spread(b.length);
  const uint32_t* all = b.bits ? s.spread.as<uint32_t>() : b.tags;
  s.tags = all ? all : s.rows;
  if (all && s.rows) {
    s.gathered.resize(size_t(s.n));
    dispatch<LoopGather<uint32_t>>(all, s.rows, s.gathered.data(), s.n);
    s.tags = s.gathered.data();
  }
  s.form = TagForm::List;
  if (s.n > 0) {
    const bool ascending = dispatch<LoopAscending>(s.tags, s.n);
    const int64_t words = (int64_t(s.tags[s.n - 1]) - s.tags[0]) / 64 + 1;
    if (ascending && words * 8 < padded8(s.n * 4)) {
      s.form = TagForm::Bitmap;
      s.first_tag = s.tags[0];
      s.tag_words = words;
    }
  }
  s.bytes += s.form == TagForm::Bitmap ? s.tag_words * 8 : padded8(s.n * 4);
}

inline void shape_reach(Shape& s) {
  s.reaches = shape_reaches(*s.batch);
  for (const ReachShape& r : s.reaches) {
    for (const TrackShape& t : r.tracks) s.bytes += t.bytes();
  }
}

inline Shape shape_of(const Batch& batch, const uint32_t* rows, int64_t n, bool tags = true) {
  Shape s;
  s.batch = &batch;
  s.rows = rows;
  s.n = n;
  if (tags) shape_tags(s);
  shape_reach(s);
  if (batch.subs) s.bytes += 8 * n;
  if (batch.times) s.bytes += 8 * n;
  s.parts.resize(batch.columns.size());
  for (size_t c = 0; c < s.parts.size(); ++c) {
    const Column& column = batch.columns[c];
    Shape::ColumnShape& part = s.parts[c];
    part.nulls = any_null(column, rows, n);
    if (part.nulls) s.bytes += padded8(bit_bytes(n));
    if (column.type == Type::Bool) {
      s.bytes += padded8(bit_bytes(n));
    } else if (is_fixed64(column.type)) {
      // Of chosen rows too all are asked: one look for all receivers, and none beside the rows.
      if (n > 0)
        part.narrow = choose_packing(reinterpret_cast<const uint64_t*>(column.data), batch.length);
      s.bytes += padded8(part.narrow.width * n);
    } else {
      part.text = text_bytes(column, rows, n);
      s.bytes += padded8(4 * (n + 1)) + padded8(part.text);
    }
  }
  return s;
}

// The shape in a header; frame_decode reads it back.
inline void pack_shape(PackWriter& out, const Shape& s) {
  const Batch& b = *s.batch;
  uint64_t fields = b.columns.size();
  for (size_t c = 0; c < s.parts.size(); ++c) {
    fields += is_varlen(b.columns[c].type) || s.parts[c].narrow.width < 8;
  }
  out.array((s.form == TagForm::Bitmap ? 17 : 15) + (s.reaches.empty() ? 0 : 1));
  out.uint(uint64_t(s.n));
  out.uint(b.epoch);
  out.uint(b.source);
  out.sint(b.first_row);
  out.sint(b.ingest_ns);
  out.sint(b.base);
  out.sint(b.rows);
  out.uint(uint64_t(b.flow));
  out.sint(b.stamp);
  out.boolean(b.end);
  out.uint(uint64_t(s.form));
  if (s.form == TagForm::Bitmap) {
    out.uint(s.first_tag);
    out.uint(uint64_t(s.tag_words));
  }
  out.uint(uint64_t(b.halves && s.form != TagForm::Dense) | (s.reaches.empty() ? 0u : 2u));
  if (!s.reaches.empty()) pack_reaches(out, s.reaches);
  out.boolean(b.subs != nullptr);
  out.boolean(b.times != nullptr);
  out.array(fields);
  for (size_t c = 0; c < s.parts.size(); ++c) {
    const Type type = b.columns[c].type;
    const PackedInts& narrow = s.parts[c].narrow;
    out.uint(uint64_t(type) | narrow.code() << 3 | (s.parts[c].nulls ? 0x40u : 0u));
    if (is_varlen(type)) out.uint(uint64_t(s.parts[c].text));
    if (narrow.width < 8) out.uint(narrow.above);
  }
}

// Writes buffers one after the other, each filled up with zeros to 8 bytes.
class BodyWriter {
 public:
  explicit BodyWriter(uint8_t* at) : at_(at) {}

  // Memory for the next buffer; what its user leaves unwritten is only behind its last byte.
  uint8_t* next(int64_t bytes) {
    uint8_t* here = at_;
    at_ += padded8(bytes);
    if (at_ != here) std::memset(at_ - 8, 0, 8);
    return here;
  }
  void copy(const void* from, int64_t bytes) {
    uint8_t* to = next(bytes);
    if (bytes) std::memcpy(to, from, size_t(bytes));
  }
  void bits(const uint8_t* from, int64_t offset, const uint32_t* rows, int64_t n) {
    uint8_t* to = next(bit_bytes(n));
    if (!rows && offset % 8 == 0) {
      if (n >= 8) std::memcpy(to, from + offset / 8, size_t(n / 8));
      if (n % 8) to[n / 8] = uint8_t(from[offset / 8 + n / 8] & ((1u << (n % 8)) - 1));
      return;
    }
    for (int64_t i = 0; i < n; i += 8) {
      unsigned byte = 0;
      const int64_t end = std::min<int64_t>(8, n - i);
      for (int64_t k = 0; k < end; ++k) {
        byte |= unsigned(get_bit(from, offset + (rows ? rows[i + k] : i + k))) << k;
      }
      to[i >> 3] = uint8_t(byte);
    }
  }
  void words(const uint64_t* from, const uint32_t* rows, int64_t n, const PackedInts& narrow = {}) {
    if (narrow.width < 8) return pack_ints(from, rows, n, narrow, next(narrow.width * n));
    if (!rows) return copy(from, 8 * n);
    dispatch<LoopGather<uint64_t>>(from, rows, reinterpret_cast<uint64_t*>(next(8 * n)), n);
  }
  void texts(const Column& c, const uint32_t* rows, int64_t n, int64_t total) {
    auto* offsets = reinterpret_cast<int32_t*>(next(4 * (n + 1)));
    uint8_t* to = next(total);
    if (!rows) {
      const int32_t base = n ? c.offsets[0] : 0;
      for (int64_t i = 0; i < n; ++i) offsets[i] = c.offsets[i] - base;
      if (total) std::memcpy(to, c.data + base, size_t(total));
    } else {
      int32_t at = 0;
      for (int64_t i = 0; i < n; ++i) {
        offsets[i] = at;
        const auto size = int32_t(c.size(rows[i]));
        if (size) std::memcpy(to + at, c.bytes(rows[i]), size_t(size));
        at += size;
      }
    }
    offsets[n] = int32_t(total);
  }
  void shape(const Shape& s) {
    tags(s);
    reach(s);
    columns(s);
  }
  void reach(const Shape& s) {
    for (const ReachShape& r : s.reaches) {
      for (const TrackShape& t : r.tracks) {
        if (t.words()) write_presence(t, reinterpret_cast<uint64_t*>(next(8 * t.words())));
        words(t.packed(), nullptr, t.present, t.narrow);
      }
    }
  }
  void tags(const Shape& s) {
    const Batch& b = *s.batch;
    if (s.form == TagForm::List) copy(s.tags, 4 * s.n);
    if (s.bits) {
      copy(s.bits, 8 * s.tag_words);
    } else if (s.form == TagForm::Bitmap) {
      auto* to = reinterpret_cast<uint64_t*>(next(8 * s.tag_words));
      std::memset(to, 0, size_t(8 * s.tag_words));
      // Tags rise, so a word is done when the next begins: one store for each, not one for a row.
      uint64_t word = 0;
      uint32_t at = 0;
      for (int64_t i = 0; i < s.n; ++i) {
        const uint32_t bit = s.tags[i] - s.first_tag;
        if (bit >> 6 != at) {
          to[at] = word;
          at = bit >> 6;
          word = 0;
        }
        word |= uint64_t(1) << (bit & 63);
      }
      to[at] = word;
    }
    if (b.subs) words(b.subs, s.rows, s.n);
    if (b.times) words(reinterpret_cast<const uint64_t*>(b.times), s.rows, s.n);
  }
  void columns(const Shape& s) {
    const Batch& b = *s.batch;
    for (size_t i = 0; i < s.parts.size(); ++i) {
      const Column& c = b.columns[i];
      if (s.parts[i].nulls) bits(c.validity, c.validity_offset, s.rows, s.n);
      if (c.type == Type::Bool) {
        bits(c.data, c.data_offset, s.rows, s.n);
      } else if (is_fixed64(c.type)) {
        words(reinterpret_cast<const uint64_t*>(c.data), s.rows, s.n, s.parts[i].narrow);
      } else {
        texts(c, s.rows, s.n, s.parts[i].text);
      }
    }
  }

 private:
  uint8_t* at_;
};

inline void pack_common(PackWriter& out, FrameKind kind, const Frame& f, uint64_t fields) {
  out.array(fields);
  out.uint(uint64_t(kind));
  out.uint(f.channel);
  out.uint(f.number);
  out.uint(f.other);
  out.boolean(f.flag);
}

// A frame of this header with room for `body` bytes behind it, `in_place` of them to be written.
inline Encoded start(const std::string& header, int64_t body, int64_t in_place) {
  Prefix prefix;
  prefix.header = padded8(int64_t(header.size()));
  prefix.body = body;
  Encoded e;
  e.head = kPrefixBytes + prefix.header + in_place;
  e.size = prefix.frame_bytes();
  e.bytes = BufferRef::make(e.head);
  write_prefix(e.bytes.data(), prefix);
  uint8_t* to = e.bytes.data() + kPrefixBytes;
  if (prefix.header) std::memset(to + prefix.header - 8, 0, 8);
  if (!header.empty()) std::memcpy(to, header.data(), header.size());
  return e;
}

inline uint8_t* body_of(const Encoded& e, int64_t in_place) {
  return e.bytes.data() + e.head - in_place;
}

}  // namespace frame_detail
}  // namespace plait
