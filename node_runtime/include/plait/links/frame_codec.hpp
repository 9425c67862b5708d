// Encoding every kind of frame: rows, control items, small messages, state.
//
// A batch goes with all that rides in it: dead letters and the failure, each with its record, lie
// in front of the columns as a MessagePack text and their records behind. The number of a Python
// exception means nothing on another node and is left out; its message goes. Who splits a batch
// over several nodes clears `letters` and `failure` in all but one. Any thread; nothing waits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plait/links/frame_decode.hpp"
#include "plait/links/frame_encode.hpp"

namespace plait {

namespace frame_detail {

// Letters and failure as text, and the shapes of their records.
struct Riders {
  std::string text;
  std::vector<Shape> records;
  int64_t bytes = 0;

  void add(PackWriter& out, const Letter& l) {
    out.array(11);
    out.uint(l.op);
    out.uint(l.source);
    out.uint(l.epoch);
    out.sint(l.row);
    out.boolean(l.half);
    out.sint(l.time);
    out.uint(l.sub);
    out.uint(uint64_t(l.kind));
    out.text(l.message);
    out.sint(l.code);
    records.push_back(shape_of(l.record, nullptr, l.record.length));
    pack_shape(out, records.back());
    bytes += records.back().bytes;
  }
};

inline Riders riders_of(const Batch& batch) {
  Riders r;
  if (!batch.failure && (!batch.letters || batch.letters->empty())) return r;
  PackWriter out(r.text);
  out.array(2);
  out.array(batch.letters ? batch.letters->size() : 0);
  if (batch.letters) {
    for (const Letter& l : *batch.letters) r.add(out, l);
  }
  out.array(batch.failure ? 2 : 0);
  if (batch.failure) {
    out.boolean(batch.failure->broken);
    r.add(out, batch.failure->letter);
  }
  r.bytes += padded8(int64_t(r.text.size()));
  return r;
}

// Whether the columns can be sent from where they lie: enough of them, all rows, plain values.
inline bool can_stay(const Shape& s) {
  constexpr int64_t kWorth = 4096;
  const auto& columns = s.batch->columns;
  if (s.rows || 8 * s.n < kWorth || columns.empty() || columns.size() > Encoded::kTails) {
    return false;
  }
  for (size_t i = 0; i < columns.size(); ++i) {
    if (!is_fixed64(columns[i].type) || s.parts[i].nulls || !columns[i].data_owner) return false;
  }
  return true;
}

inline Encoded in_place(const std::string& header, const Shape& s, const std::string& text) {
  int64_t columns = 0;
  for (const Shape::ColumnShape& part : s.parts) columns += padded8(part.narrow.width * s.n);
  const int64_t front = padded8(int64_t(text.size())) + s.bytes - columns;
  Encoded e = start(header, front + columns, front);
  BodyWriter body(body_of(e, front));
  body.copy(text.data(), int64_t(text.size()));
  body.tags(s);
  body.reach(s);
  for (size_t i = 0; i < s.parts.size(); ++i) {
    const Column& c = s.batch->columns[i];
    const PackedInts& narrow = s.parts[i].narrow;
    if (narrow.width == 8) {
      e.tails.push_back({c.data_owner, c.data, 8 * s.n});
      continue;
    }
    BufferRef low = BufferRef::make(narrow.width * s.n);
    pack_ints(reinterpret_cast<const uint64_t*>(c.data), nullptr, s.n, narrow, low.data());
    e.tails.push_back({low, low.data(), narrow.width * s.n});
  }
  return e;
}

}  // namespace frame_detail

// The given rows of a batch (null: the first n), with all that rides in it. `head` has channel,
// number, other and flag. Without `tags` the rows arrive as if they were dense.
inline Encoded encode_data(const Frame& head, const Batch& batch, const uint32_t* rows, int64_t n,
                           bool tags = true) {
  using namespace frame_detail;
  const Shape shape = shape_of(batch, rows, n, tags);
  const Riders riders = riders_of(batch);
  std::string header;
  PackWriter out(header);
  pack_common(out, FrameKind::Data, head, 8);
  out.boolean(false);
  pack_shape(out, shape);
  out.uint(riders.text.size());
  const int64_t bytes = shape.bytes + riders.bytes;
  if (riders.records.empty() && can_stay(shape)) return in_place(header, shape, riders.text);
  Encoded e = start(header, bytes, bytes);
  BodyWriter body(body_of(e, bytes));
  body.copy(riders.text.data(), int64_t(riders.text.size()));
  body.shape(shape);
  for (const Shape& record : riders.records) body.shape(record);
  return e;
}

namespace frame_detail {
// A batch's rows with 64-bit columns and nothing that rides in it; the body is the caller's to
// write.
inline Encoded start_rows(const Frame& head, const Shape& shape) {
  std::string header;
  PackWriter out(header);
  pack_common(out, FrameKind::Data, head, 8);
  out.boolean(false);
  pack_shape(out, shape);
  out.uint(0);
  return start(header, shape.bytes, shape.bytes);
}
}  // namespace frame_detail

inline Encoded encode_data(uint32_t channel, const Batch& batch, const uint32_t* rows, int64_t n) {
  Frame head;
  head.channel = channel;
  return encode_data(head, batch, rows, n);
}

// A control item's place among the rows of a channel; what it is, the receiver knows by its epoch.
inline Encoded encode_control(uint32_t channel, uint64_t epoch) {
  Frame head;
  head.channel = channel;
  std::string header;
  PackWriter out(header);
  frame_detail::pack_common(out, FrameKind::Data, head, 7);
  out.boolean(true);
  out.uint(epoch);
  return frame_detail::start(header, 0, 0);
}

// Credit, Progress, Expect, Start, Ack: numbers only.
inline Encoded encode_small(const Frame& frame) {
  std::string header;
  PackWriter out(header);
  frame_detail::pack_common(out, frame.kind, frame, 5);
  return frame_detail::start(header, 0, 0);
}

namespace frame_detail {
inline std::string state_header(const Frame& head, int64_t size) {
  std::string header;
  PackWriter out(header);
  pack_common(out, FrameKind::State, head, 8);
  out.uint(head.op);
  out.uint(head.bin);
  out.uint(uint64_t(size));
  return header;
}
}  // namespace frame_detail

struct Piece {
  const void* data = nullptr;
  int64_t size = 0;
};

// State in pieces, copied one after the other into the frame.
inline Encoded encode_state(const Frame& head, const std::vector<Piece>& pieces) {
  using namespace frame_detail;
  int64_t size = 0;
  for (const Piece& p : pieces) size += p.size;
  const int64_t bytes = padded8(size);
  Encoded e = start(state_header(head, size), bytes, bytes);
  uint8_t* to = BodyWriter(body_of(e, bytes)).next(size);
  for (const Piece& p : pieces) {
    if (p.size) std::memcpy(to, p.data, size_t(p.size));
    to += p.size;
  }
  return e;
}

// State that is sent from where it lies: `size` bytes at `state`, kept alive by `bytes`.
inline Encoded encode_state(const Frame& head) {
  Encoded e =
      frame_detail::start(frame_detail::state_header(head, head.size), padded8(head.size), 0);
  const uint8_t* data = head.state ? head.state : head.bytes ? head.bytes.data() : nullptr;
  if (head.size) e.tails.push_back({head.bytes, data, head.size});
  return e;
}

}  // namespace plait
