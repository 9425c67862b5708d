// The segments of one lane's flat table: how large each is, and when it grows.
//
// The lane's table is cut into segments by the first bits of the slot's index; each grows alone, by
// one sequential pass, so that a batch never waits for the whole lane to grow. As long as all
// segments have one size the table is flat: a slot's address needs no look at its segment (with a
// segment for each of 4,096 bins that look took as long as the rest of a count). So the segments
// have a size in common, which doubles when 9/16 of all are used; one that holds more than most by
// chance may be nearly full, and only one that holds far more has a larger size. For one thread at
// a time (the holder of the lane); never waits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "plait/columns/key_hash.hpp"
#include "plait/keyed/segment_memory.hpp"

namespace plait {

class TableSegments {
 public:
  struct Segment {
    uint64_t* slots = nullptr;
    uint64_t mask = 0;  // slots - 1
    uint64_t used = 0;
    uint32_t shift = 0;  // hash bits below the slot's index
    uint32_t bits = 0;   // log2 of the slots
  };
  static_assert(sizeof(Segment) == 32, "found by a shift in the hot loop");

  // A bin is a segment or a part of one.
  TableSegments(unsigned words, unsigned lane_bits, unsigned segment_bits)
      : TableSegments(words, lane_bits, segment_bits, lane_bits + segment_bits) {}
  TableSegments(unsigned words, unsigned lane_bits, unsigned segment_bits, unsigned bin_bits)
      : words_(words),
        above_bits_(lane_bits + segment_bits),
        segment_shift_(63 - above_bits_),
        segment_mask_((uint64_t(1) << segment_bits) - 1),
        bin_bits_(bin_bits),
        range_bits_(bin_bits - above_bits_),
        bin_mask_((uint64_t(1) << (bin_bits - lane_bits)) - 1),
        segments_(size_t(1) << segment_bits),
        memory_(words, size_t(1) << segment_bits),
        bin_keys_(size_t(1) << (bin_bits - lane_bits), 0) {
    for (Segment& s : segments_) settle(s, kFirstBits);
  }

  // Where slots are as long as all segments have one size.
  struct Flat {
    uint64_t* slots = nullptr;  // null: they have not
    uint64_t all = 0;           // slots of all segments - 1
    uint64_t mask = 0;          // of one - 1
    unsigned shift = 0;
  };
  // Valid until a key is inserted or a bin comes or goes.
  const Flat& flat() const { return flat_; }
  // Brings segments to the common size: empty ones at once (their memory is not touched), the
  // others as far as so many rows can bear. Between batches.
  void even_out(uint32_t rows) {
    if (unsettled_) flatten(rows);
  }

  unsigned words() const { return words_; }
  Segment& segment(uint64_t h) { return segments_[segment_index(h)]; }
  // The first shift by 1 lets there be no bits above: a shift by 64 is not defined.
  size_t segment_index(uint64_t h) const { return (h >> 1 >> segment_shift_) & segment_mask_; }
  static uint64_t index(const Segment& s, uint64_t h) { return (h >> s.shift) & s.mask; }

  // Whether counting one more key like h makes its segment grow.
  bool full_after_one(uint64_t h) {
    const Segment& s = segment(h);
    return crowded(s, s.used + 1, bin_keys_[bin_index(h)] + 1) || used_ + 1 >= limit_;
  }
  // Counts a slot that was empty; may move all slots of its segment.
  void inserted(uint64_t h) {
    Segment& s = segment(h);
    const size_t bin = bin_index(h);
    count(s, bin, 1);
    if (crowded(s, s.used, bin_keys_[bin])) [[unlikely]]
      grow(s, s.bits + 1);
  }

  uint64_t size() const { return used_; }
  size_t byte_size() const { return memory_.bytes(); }
  uint64_t bin_keys(uint64_t bin) const { return bin_keys_[bin & bin_mask_]; }

 protected:
  static constexpr unsigned kFirstBits = 4;
  static constexpr uint64_t kFewKeys = 16;   // of a bin, wherever they lie
  static constexpr uint64_t kMostUsed = 14;  // sixteenths of a segment of the common size
  static constexpr uint64_t kSlotsARow = 8;  // moved by even_out()
  // When one outgrows the common size and the keys of all are so many quarters of the limit, it is
  // better for all to grow: by the smallest sizes, where chance makes the greatest difference.
  static constexpr uint64_t kQuarters[] = {1, 2, 2, 3};

  size_t bin_index(uint64_t h) const { return top_bits(h, bin_bits_) & bin_mask_; }

  // Counts keys of a bin that came or went.
  void count(Segment& s, size_t bin_index, int64_t keys) {
    const bool was = s.used != 0;
    s.used += uint64_t(keys);
    used_ += uint64_t(keys);
    bin_keys_[bin_index] += uint32_t(keys);
    const bool is = s.used != 0;
    if (was != is) {
      filled_ += is ? 1 : -1;
      if (used_ == 0) common_ = kFirstBits;
      limit_ = limit();
    }
    while (used_ >= limit_) [[unlikely]]
      raise();
  }
  // Keys of all segments at which the common size doubles.
  uint64_t limit() const {
    return std::max<uint64_t>(1, filled_) * ((uint64_t(9) << common_) / 16);
  }
  void raise() {
    ++common_;
    limit_ = limit();
    unsettled_ = true;
  }

  // One that is behind the common size waits for even_out() as long as it can. Few bins of many in
  // a segment have less than its part to fill: their own range may be full to 5/8, which bins of
  // equal size do not reach before the segment is full. The last condition bounds the memory when a
  // few hashes are all alike.
  bool crowded(const Segment& s, uint64_t used, uint64_t of_bin) const {
    const uint64_t sixteenths = s.bits == common_ ? kMostUsed : s.bits < common_ ? 12 : 9;
    if (used >= (s.mask + 1) / 16 * sixteenths) return true;
    const uint64_t own = (s.mask + 1) >> range_bits_;
    return range_bits_ != 0 && of_bin > own / 8 * 5 + kFewKeys && s.mask < used << 12;
  }

  // Gives the segment 2^bits empty slots.
  void settle(Segment& s, unsigned bits) {
    s.slots = memory_.enter(size_t(&s - segments_.data()), bits);
    s.bits = bits;
    s.shift = 64 - above_bits_ - bits;
    s.mask = (uint64_t(1) << bits) - 1;
    unsettled_ = true;
    flat_ = Flat();
  }
  void flatten(uint32_t rows) {
    unsettled_ = false;
    size_t larger = 0;
    for (const Segment& s : segments_) larger += s.used != 0 && s.bits > common_;
    if (larger * 4 > filled_ * 3) raise();
    const bool whole = catch_up(uint64_t(rows) * kSlotsARow);
    const bool even = std::all_of(segments_.begin(), segments_.end(), [this](const Segment& s) {
      return s.used == 0 || s.bits == common_;
    });
    unsettled_ = !whole;
    if (!even) return;
    for (Segment& s : segments_) {
      if (s.bits == common_) continue;
      const unsigned old = s.bits;
      settle(s, common_);
      memory_.leave(size_t(&s - segments_.data()), old, true, old > common_);
    }
    const Segment& first = segments_.front();
    flat_ = {first.slots, ((segment_mask_ + 1) << common_) - 1, first.mask, first.shift};
    unsettled_ = false;
  }
  // Grows segments that are behind the common size, up to so many slots but at least one; whether
  // none is left.
  bool catch_up(uint64_t slots) {
    uint64_t done = 0;
    for (Segment& s : segments_) {
      if (s.used == 0 || s.bits >= common_) continue;
      if (done > slots) return false;
      done += s.mask + 1;
      grow(s, common_);
    }
    return true;
  }
  void grow(Segment& s, unsigned bits) {
    if (bits > common_ && used_ >= limit_ / 4 * kQuarters[std::min(common_ - kFirstBits, 3u)])
      raise();
    const unsigned old = s.bits;
    const uint64_t* slot = s.slots;
    const uint64_t* end = slot + (s.mask + 1) * words_;
    settle(s, std::max({bits, prepared_bits_, common_}));
    const bool none = s.used == 0;
    for (; !none && slot != end; slot += words_) {
      if (slot[1]) place(s, slot);
    }
    memory_.leave(size_t(&s - segments_.data()), old, none);
  }
  // Copies a slot whose key is not in the segment to the first empty place.
  void place(Segment& s, const uint64_t* from) {
    uint64_t i = index(s, from[0]);
    while (s.slots[i * words_ + 1]) i = (i + 1) & s.mask;
    std::memcpy(s.slots + i * words_, from, words_ * 8);
  }

  const unsigned words_, above_bits_;  // of a slot; of the hash, for lane and segment
  const unsigned segment_shift_;
  const uint64_t segment_mask_;
  const unsigned bin_bits_, range_bits_;  // of the hash, for the bin; for the bin in its segment
  const uint64_t bin_mask_;
  Flat flat_;
  bool unsettled_ = true;           // segments or the common size have changed since the last look
  unsigned common_ = kFirstBits;    // log2 of the slots that most segments have, or should
  uint64_t used_ = 0, filled_ = 0;  // keys; segments that have any
  uint64_t limit_ = limit();
  unsigned prepared_bits_ = 0;  // segments that grow get at least so many slots; 0: any
  std::vector<Segment> segments_;
  SegmentMemory memory_;
  std::vector<uint32_t> bin_keys_;  // by the bin's number in the lane
};

}  // namespace plait
