// Event times in frames: what a node knows of how far the origins of time are in a unit.
//
// A reach is up to three tracks of times, one for each row of the unit that it covers: the least of
// what was made of the row, the greatest where that may be another, and the greatest of what was
// given at its mark. A track whose rows do not all have a time has a bitmap of those that do in
// front of its values. Beside them: where the stream ended, if it did. What all nodes know already
// (`whole`) is not sent. The reader checks every size before it allocates, at most 8 bytes for each
// row that the limits allow. Pure functions: any thread.
#pragma once

#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

#include "plait/columns/batch.hpp"
#include "plait/columns/packed_ints.hpp"
#include "plait/core/msgpack.hpp"
#include "plait/links/frame.hpp"

namespace plait::frame_detail {

// One track on its way out.
struct TrackShape {
  const int64_t* times = nullptr;
  int64_t rows = 0, present = 0;
  std::vector<uint64_t> values;  // of the rows that have one, if not all have
  PackedInts narrow;

  const uint64_t* packed() const {
    return present < rows ? values.data() : reinterpret_cast<const uint64_t*>(times);
  }
  int64_t words() const { return present < rows ? TagBits::words_for(rows) : 0; }
  int64_t bytes() const { return 8 * words() + padded8(narrow.width * present); }
};

struct ReachShape {
  uint32_t origin = 0;
  const Reach* reach = nullptr;
  std::vector<TrackShape> tracks;
};

inline TrackShape track_of(const int64_t* times, int64_t rows) {
  TrackShape t;
  t.times = times;
  t.rows = rows;
  for (int64_t i = 0; i < rows; ++i) t.present += times[i] != kNoTime;
  if (t.present < rows) {
    t.values.reserve(size_t(t.present));
    for (int64_t i = 0; i < rows; ++i) {
      if (times[i] != kNoTime) t.values.push_back(uint64_t(times[i]));
    }
  }
  if (t.present) t.narrow = choose_packing(t.packed(), t.present);
  return t;
}

// What is to be sent of a batch's reaches.
inline std::vector<ReachShape> shape_reaches(const Batch& batch) {
  std::vector<ReachShape> out;
  for (const OriginReach& one : batch.reach) {
    if (one.reach->whole) continue;
    const Reach& reach = *one.reach;
    ReachShape shape{one.origin, &reach, {}};
    shape.tracks.push_back(track_of(reach.row_times, reach.rows));
    if (reach.high_times) shape.tracks.push_back(track_of(reach.high_times, reach.rows));
    if (reach.given_times) shape.tracks.push_back(track_of(reach.given_times, reach.rows));
    out.push_back(std::move(shape));
  }
  return out;
}

inline void pack_reaches(PackWriter& out, const std::vector<ReachShape>& reaches) {
  out.array(reaches.size());
  for (const ReachShape& r : reaches) {
    out.array(5 + 3 * r.tracks.size());
    out.uint(r.origin);
    out.uint(uint64_t(r.reach->first));
    out.uint(uint64_t(r.reach->rows));
    out.uint((r.reach->high_times ? 1u : 0u) | (r.reach->given_times ? 2u : 0u));
    out.uint(r.reach->ended == kNotEnded ? 0 : uint64_t(r.reach->ended) + 1);
    for (const TrackShape& t : r.tracks) {
      out.uint(uint64_t(t.present));
      out.uint(t.narrow.code());
      out.uint(t.narrow.above);
    }
  }
}

// The bits of the rows that have a time.
inline void write_presence(const TrackShape& t, uint64_t* to) {
  for (int64_t w = 0; w < t.words(); ++w) {
    uint64_t word = 0;
    const int64_t end = std::min<int64_t>(64, t.rows - 64 * w);
    for (int64_t i = 0; i < end; ++i) word |= uint64_t(t.times[64 * w + i] != kNoTime) << i;
    to[w] = word;
  }
}

// One track on its way in.
struct TrackRead {
  int64_t present = 0;
  PackedInts narrow;
};

struct ReachRead {
  uint32_t origin = 0;
  int64_t first = 0, rows = 0, ended = kNotEnded;
  bool high = false, given = false;
  std::vector<TrackRead> tracks;
};

inline bool read_reaches(PackReader& in, const FrameLimits& limits, std::vector<ReachRead>& out) {
  const uint64_t count = in.array(limits.max_columns);
  if (!in.ok() || count == 0) return false;
  const auto most = uint64_t(limits.max_rows) + 2;
  for (uint64_t n = 0; n < count; ++n) {
    ReachRead r;
    const uint64_t fields = in.array(14);
    r.origin = uint32_t(in.uint(UINT32_MAX));
    r.first = int64_t(in.uint(most));
    r.rows = int64_t(in.uint(most));
    const uint64_t flags = in.uint(3);
    r.high = flags & 1;
    r.given = flags & 2;
    if (const uint64_t ended = in.uint(2 * most)) r.ended = int64_t(ended) - 1;
    const size_t tracks = 1u + r.high + r.given;
    if (!in.ok() || fields != 5 + 3 * tracks || r.rows == 0) return false;
    for (size_t t = 0; t < tracks; ++t) {
      TrackRead track;
      track.present = int64_t(in.uint(uint64_t(r.rows)));
      track.narrow = PackedInts::of_code(in.uint(3));
      track.narrow.above = in.uint();
      r.tracks.push_back(track);
    }
    for (const ReachRead& other : out) {
      if (other.origin == r.origin) return false;
    }
    out.push_back(std::move(r));
  }
  return in.ok();
}

// A track's times, one for each row; null if the body does not have them. `next(bytes)` gives the
// next buffer of the body.
template <class Next>
BufferRef read_track(const TrackRead& t, int64_t rows, Next next) {
  const uint64_t* bits = nullptr;
  const int64_t words = t.present < rows ? TagBits::words_for(rows) : 0;
  if (words) {
    bits = reinterpret_cast<const uint64_t*>(next(8 * words));
    if (!bits) return {};
    int64_t set = 0;
    for (int64_t w = 0; w < words; ++w) set += std::popcount(bits[w]);
    if (set != t.present || (rows % 64 && bits[words - 1] >> (rows % 64))) return {};
  }
  const uint8_t* values = next(t.narrow.width * t.present);
  if (!values) return {};
  BufferRef out = BufferRef::make(8 * rows);
  auto* to = out.as<int64_t>();
  BufferRef wide = bits ? BufferRef::make(8 * t.present) : out;
  if (t.narrow.width == 8) {
    std::memcpy(wide.data(), values, size_t(8 * t.present));
  } else {
    unpack_ints(values, t.present, t.narrow, wide.as<uint64_t>());
  }
  if (!bits) return out;
  const auto* from = wide.as<int64_t>();
  for (int64_t i = 0; i < rows; ++i) {
    to[i] = bits[i >> 6] >> (i & 63) & 1 ? *from++ : kNoTime;
  }
  return out;
}

// A reach from its tracks; null: they are cut off or do not belong together.
template <class Next>
ReachRef read_reach(const ReachRead& r, Next next) {
  auto reach = std::make_shared<Reach>();
  reach->first = r.first;
  reach->rows = r.rows;
  reach->ended = r.ended;
  reach->row_owner = read_track(r.tracks[0], r.rows, next);
  if (!reach->row_owner) return nullptr;
  reach->row_times = reach->row_owner.template as<int64_t>();
  if (!r.high && !r.given && r.tracks[0].present == r.rows) {
    reach = reach_of(reach->row_times, r.rows, reach->row_owner, r.first);
    reach->ended = r.ended;
    return reach;
  }
  if (r.high) {
    reach->high_owner = read_track(r.tracks[1], r.rows, next);
    if (!reach->high_owner) return nullptr;
    reach->high_times = reach->high_owner.template as<int64_t>();
    bool below = false;
    for (int64_t i = 0; i < r.rows; ++i) below |= reach->high_times[i] < reach->row_times[i];
    if (below) return nullptr;
  }
  if (r.given) {
    reach->given_owner = read_track(r.tracks.back(), r.rows, next);
    if (!reach->given_owner) return nullptr;
    reach->given_times = reach->given_owner.template as<int64_t>();
  }
  settle_reach(*reach);
  return reach;
}

}  // namespace plait::frame_detail
