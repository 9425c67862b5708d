// Bytes to frames, whatever the bytes are.
//
// Every count and size is checked against the limits and against what is left of the bytes before
// it is used; nothing is read outside them, and columns, list tags and state point into them. Texts
// are checked for offsets that go back or past the end, so later readers need no checks. What is
// allocated: values that came narrow (8 bytes for each byte received at most), event times of rows,
// columns, letters; all bounded by the limits. Any thread; nothing waits.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "plait/columns/control.hpp"
#include "plait/columns/failure.hpp"
#include "plait/columns/packed_ints.hpp"
#include "plait/core/msgpack.hpp"
#include "plait/links/frame.hpp"
#include "plait/links/frame_reach.hpp"

namespace plait {

namespace frame_detail {

// What a header says of a batch, before its buffers are found.
struct ShapeRead {
  int64_t n = 0;
  TagForm form = TagForm::Dense;
  uint32_t first_tag = 0;
  int64_t tag_words = 0;
  bool subs = false, times = false;
  std::vector<ReachRead> reaches;
  struct PartRead {
    Type type = Type::Int64;
    bool nulls = false;
    int64_t text = 0;
    PackedInts narrow;
  };
  std::vector<PartRead> parts;
};

inline bool read_shape(PackReader& in, const FrameLimits& limits, Batch& batch, ShapeRead& s) {
  const uint64_t fields = in.array(18);
  s.n = int64_t(in.uint(uint64_t(limits.max_rows)));
  batch.length = s.n;
  batch.epoch = in.uint();
  batch.source = uint32_t(in.uint(UINT32_MAX));
  batch.first_row = in.sint();
  batch.ingest_ns = in.sint();
  batch.base = in.sint();
  batch.rows = in.sint();
  batch.flow = Flow(in.uint(uint64_t(Flow::Over)));
  batch.stamp = in.sint();
  batch.end = in.boolean();
  s.form = TagForm(in.uint(uint64_t(TagForm::Bitmap)));
  if (s.form == TagForm::Bitmap) {
    s.first_tag = uint32_t(in.uint(UINT32_MAX));
    s.tag_words = int64_t(in.uint(uint64_t(limits.max_body / 8)));
  }
  const uint64_t flags = in.uint(3);
  batch.halves = flags & 1;
  const bool reaches = flags & 2;
  if (batch.halves && s.form == TagForm::Dense) return false;
  if (fields != (s.form == TagForm::Bitmap ? 17u : 15u) + (reaches ? 1u : 0u)) return false;
  if (reaches && !read_reaches(in, limits, s.reaches)) return false;
  s.subs = in.boolean();
  s.times = in.boolean();
  const uint64_t entries = in.array(uint64_t(limits.max_columns) * 2);
  for (uint64_t read = 0; in.ok() && read < entries; ++read) {
    const uint64_t form = in.uint(0x7F);
    ShapeRead::PartRead part;
    part.nulls = form & 0x40;
    if ((form & 0x27) > uint64_t(Type::Object)) return false;
    part.type = Type(form & 7);
    part.narrow = PackedInts::of_code(form >> 3 & 3);
    if (part.narrow.width < 8) {
      if (!is_fixed64(part.type) || ++read == entries) return false;
      part.narrow.above = in.uint();
    }
    if (is_varlen(part.type)) {
      if (++read == entries) return false;
      part.text = int64_t(in.uint(INT32_MAX));
    }
    s.parts.push_back(part);
  }
  return in.ok() && s.parts.size() <= limits.max_columns;
}

class BodyReader {
 public:
  BodyReader(const uint8_t* at, int64_t bytes, const BufferRef& owner)
      : at_(at), left_(bytes), owner_(owner) {}

  // The next buffer, or null when there are not so many bytes.
  const uint8_t* next(int64_t bytes) {
    const int64_t step = padded8(bytes);
    if (bytes < 0 || step > left_) return nullptr;
    const uint8_t* here = at_;
    at_ += step;
    left_ -= step;
    return here;
  }
  int64_t left() const { return left_; }

  std::string batch(const ShapeRead& s, Batch& out) {
    if (std::string why = tags(s, out); !why.empty()) return why;
    if (s.subs) {
      out.subs = reinterpret_cast<const uint64_t*>(next(8 * s.n));
      if (!out.subs) return "order numbers are cut off";
      out.subs_owner = owner_;
    }
    if (s.times) {
      out.times = reinterpret_cast<const int64_t*>(next(8 * s.n));
      if (!out.times) return "times are cut off";
      out.times_owner = owner_;
    }
    for (const ReachRead& r : s.reaches) {
      ReachRef reach = read_reach(r, [&](int64_t bytes) { return next(bytes); });
      if (!reach) return "event times do not read";
      out.reach.push_back({r.origin, std::move(reach)});
    }
    out.columns.resize(s.parts.size());
    for (size_t i = 0; i < s.parts.size(); ++i) {
      std::string why = column(s.parts[i], s.n, out.columns[i]);
      if (!why.empty()) return "column " + std::to_string(i) + ": " + why;
    }
    return {};
  }

 private:
  std::string column(const ShapeRead::PartRead& part, int64_t n, Column& c) {
    c.type = part.type;
    c.length = n;
    if (part.nulls) {
      c.validity = next(bit_bytes(n));
      if (!c.validity) return "validity is cut off";
      c.validity_owner = owner_;
    }
    if (part.narrow.width < 8) {
      const uint8_t* values = next(part.narrow.width * n);
      if (!values) return "values are cut off";
      c.data_owner = BufferRef::make(8 * n);
      unpack_ints(values, n, part.narrow, c.data_owner.as<uint64_t>());
      c.data = c.data_owner.data();
      return {};
    }
    c.data_owner = owner_;
    if (!is_varlen(part.type)) {
      c.data = next(part.type == Type::Bool ? bit_bytes(n) : 8 * n);
      return c.data ? "" : "values are cut off";
    }
    c.offsets = reinterpret_cast<const int32_t*>(next(4 * (n + 1)));
    if (!c.offsets) return "offsets are cut off";
    c.offsets_owner = owner_;
    c.data = next(part.text);
    if (!c.data) return "text is cut off";
    if (c.offsets[0] != 0 || c.offsets[n] != part.text) return "offsets do not span the text";
    bool rising = true;
    for (int64_t i = 0; i < n; ++i) rising &= c.offsets[i] <= c.offsets[i + 1];
    return rising ? "" : "offsets go back";
  }

  std::string tags(const ShapeRead& s, Batch& out) {
    if (s.form == TagForm::List) {
      out.tags = reinterpret_cast<const uint32_t*>(next(4 * s.n));
      if (!out.tags) return "tags are cut off";
      out.tags_owner = owner_;
    } else if (s.form == TagForm::Bitmap) {
      const auto* words = reinterpret_cast<const uint64_t*>(next(8 * s.tag_words));
      if (!words || s.tag_words == 0) return "tags are cut off";
      int64_t set = 0;
      for (int64_t w = 0; w < s.tag_words; ++w) set += std::popcount(words[w]);
      if (set != s.n) return "tags are not as many as rows";
      const int64_t last =
          s.first_tag + s.tag_words * 64 - 1 - std::countl_zero(words[s.tag_words - 1]);
      if (last > int64_t(UINT32_MAX)) return "tags go past the last number";
      out.bits = {owner_, words, s.tag_words, s.first_tag};
    }
    return {};
  }

  const uint8_t* at_;
  int64_t left_;
  const BufferRef& owner_;
};

struct LetterRead {
  Letter* letter;
  ShapeRead shape;
};

inline bool read_letter(PackReader& in, const FrameLimits& limits, Letter& l, ShapeRead& shape) {
  if (in.array(11) != 11) return false;
  l.op = uint32_t(in.uint(UINT32_MAX));
  l.source = uint32_t(in.uint(UINT32_MAX));
  l.epoch = in.uint();
  l.row = in.sint();
  l.half = in.boolean();
  l.time = in.sint();
  l.sub = in.uint();
  l.kind = FailureKind(in.uint(uint64_t(kLastFailureKind)));
  l.message = std::string(in.text());
  const int64_t code = in.sint();
  l.code = int32_t(code);
  return code == l.code && read_shape(in, limits, l.record, shape);
}

// Letters and failure; their records' shapes in the order of the buffers.
inline bool read_riders(const uint8_t* text, int64_t size, const FrameLimits& limits, Batch& batch,
                        std::vector<LetterRead>& records) {
  PackReader in(text, size);
  if (in.array(2) != 2) return false;
  const uint64_t letters = in.array(limits.max_letters);
  if (int64_t(letters) > in.left()) return false;
  if (letters) batch.letters = std::make_shared<std::vector<Letter>>(letters);
  for (uint64_t i = 0; i < letters; ++i) {
    Letter& l = (*batch.letters)[i];
    records.push_back({&l, {}});
    if (!read_letter(in, limits, l, records.back().shape)) return false;
  }
  if (in.array(2) == 2) {
    batch.failure = std::make_shared<Failure>();
    batch.failure->broken = in.boolean();
    records.push_back({&batch.failure->letter, {}});
    if (!read_letter(in, limits, *records.back().letter, records.back().shape)) return false;
  }
  return in.ok() && in.left() == 0;
}

inline std::string decode_data(PackReader& in, uint64_t fields, BodyReader& body,
                               const FrameLimits& limits, Frame& out) {
  out.control = in.boolean();
  if (out.control) {
    out.control_epoch = in.uint();
    return in.ok() && fields == 7 ? "" : "a control item's header does not read";
  }
  ShapeRead shape;
  if (!read_shape(in, limits, out.batch, shape)) return "a batch's header does not read";
  const auto text_size = int64_t(in.uint(uint64_t(limits.max_body)));
  if (!in.ok() || fields != 8) return "a batch's header does not read";
  std::vector<LetterRead> records;
  const uint8_t* text = body.next(text_size);
  if (!text) return "letters are cut off";
  if (text_size && !read_riders(text, text_size, limits, out.batch, records)) {
    return "letters do not read";
  }
  if (std::string why = body.batch(shape, out.batch); !why.empty()) return why;
  for (const LetterRead& r : records) {
    if (std::string why = body.batch(r.shape, r.letter->record); !why.empty()) return why;
    r.letter->record.spread_tags();
  }
  return {};
}

}  // namespace frame_detail

// Empty: `out` is the frame, pointing into `owner`'s memory, in which the `size` bytes at `data`
// lie, 8-byte aligned. Else why it is refused, and `out` is of no use.
inline std::string decode(const uint8_t* data, int64_t size, const BufferRef& owner,
                          const FrameLimits& limits, Frame& out) {
  using namespace frame_detail;
  if (reinterpret_cast<uintptr_t>(data) % 8 != 0) return "the frame is not aligned";
  if (size < kPrefixBytes) return "the frame is cut off";
  Prefix prefix;
  if (std::string why = read_prefix(data, limits, prefix); !why.empty()) return why;
  if (prefix.frame_bytes() != size) return "the frame is cut off";
  PackReader in(data + kPrefixBytes, prefix.header);
  BodyReader body(data + kPrefixBytes + prefix.header, prefix.body, owner);
  const uint64_t fields = in.array(8);
  out.kind = FrameKind(in.uint(uint64_t(FrameKind::Refuse)));
  out.channel = uint32_t(in.uint(UINT32_MAX));
  out.number = in.uint();
  out.other = in.uint();
  out.flag = in.boolean();
  if (!in.ok()) return "the header does not read";
  switch (out.kind) {
    case FrameKind::Data:
      if (std::string why = decode_data(in, fields, body, limits, out); !why.empty()) return why;
      break;
    case FrameKind::State:
      out.op = uint32_t(in.uint(UINT32_MAX));
      out.bin = uint32_t(in.uint(UINT32_MAX));
      out.size = int64_t(in.uint(uint64_t(limits.max_body)));
      out.state = body.next(out.size);
      if (!in.ok() || fields != 8 || !out.state) return "state is cut off";
      out.bytes = owner;
      break;
    case FrameKind::Credit:
    case FrameKind::Progress:
    case FrameKind::Expect:
    case FrameKind::Start:
    case FrameKind::Ack:
      if (fields != 5) return "the header does not read";
      break;
    case FrameKind::Challenge:
    case FrameKind::Hello:
    case FrameKind::Welcome:
    case FrameKind::Refuse:
      return "a handshake out of place";
  }
  if (body.left() != 0) return "there is more than the header says";
  if (in.left() >= 8) return "the header is too long";
  return {};
}

}  // namespace plait
