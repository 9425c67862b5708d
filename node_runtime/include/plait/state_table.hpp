// One lane's flat open-addressing table of 8-byte words: slot = {hash, rows seen, cells...}, rows
// seen 0 = empty.
//
// The slot's index is the hash bits below the lane's, so a bin is a contiguous range (plus the run
// that probing pushed behind it). The lane's table is cut into segments by the first of those bits;
// each grows alone, by one sequential pass at 9/16 load, so that a batch never waits for the whole
// lane to grow. Probing is linear and wraps inside the segment. For one thread at a time (the
// holder of the lane); never waits. Keys chosen so that their hashes share the high bits would
// cluster; the hash is public and not meant against that.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "plait/key_hash.hpp"
#include "plait/zeroed_region.hpp"

namespace plait {

class StateTable {
 public:
  struct Segment {
    uint64_t* slots = nullptr;
    uint64_t mask = 0;  // slots - 1
    uint64_t used = 0;
    uint32_t shift = 0;  // hash bits below the slot's index
    uint32_t bits = 0;   // log2 of the slots
    uint64_t limit() const { return (mask + 1) * 9 / 16; }
  };
  static_assert(sizeof(Segment) == 32, "found by a shift in the hot loop");

  StateTable(unsigned words, unsigned lane_bits, unsigned segment_bits)
      : words_(words),
        above_bits_(lane_bits + segment_bits),
        segment_shift_(63 - above_bits_),
        segment_mask_((uint64_t(1) << segment_bits) - 1) {
    segments_.resize(size_t(1) << segment_bits);
    for (Segment& s : segments_) settle(s, kFirstBits);
  }

  unsigned words() const { return words_; }
  Segment& segment(uint64_t h) { return segments_[segment_index(h)]; }
  // The first shift by 1 lets there be no bits above: a shift by 64 is not defined.
  size_t segment_index(uint64_t h) const { return (h >> 1 >> segment_shift_) & segment_mask_; }
  static uint64_t index(const Segment& s, uint64_t h) { return (h >> s.shift) & s.mask; }

  // kWords: the slot's words where the caller knows them, 0 otherwise.
  // Always inlined: gcc takes a function that only prefetches for one without effect and drops the
  // call.
  template <unsigned kWords>
  [[gnu::always_inline]] void prefetch(uint64_t h) {
    const Segment& s = segment(h);
    const uint64_t words = kWords ? kWords : words_;
    const uint64_t* slot = s.slots + index(s, h) * words;
    __builtin_prefetch(slot, 1);
    if (words > 8) __builtin_prefetch(slot + 8, 1);
  }

  // The slot of a key that is its hash, or the empty slot where it belongs (the caller then writes
  // hash and rows seen, and calls inserted() when done with the slot).
  template <unsigned kWords>
  uint64_t* find(uint64_t h) {
    const Segment& s = segment(h);
    const uint64_t words = kWords ? kWords : words_;
    uint64_t i = index(s, h);
    uint64_t* slot = s.slots + i * words;
    while (slot[0] != h && slot[1] != 0) [[unlikely]] {
      i = (i + 1) & s.mask;
      slot = s.slots + i * words;
    }
    return slot;
  }

  // Whether counting one more key in h's segment makes it grow.
  bool full_after_one(uint64_t h) {
    const Segment& s = segment(h);
    return s.used + 1 >= s.limit();
  }
  // Counts a slot that was empty; may move all slots of its segment.
  void inserted(uint64_t h) {
    Segment& s = segment(h);
    if (++s.used >= s.limit()) [[unlikely]]
      grow(s);
  }

  uint64_t size() const {
    uint64_t n = 0;
    for (const Segment& s : segments_) n += s.used;
    return n;
  }
  size_t byte_size() const { return bytes_; }

  template <class Visit>
  void each(Segment& s, Visit visit) {
    uint64_t* end = s.slots + (s.mask + 1) * words_;
    for (uint64_t* slot = s.slots; slot != end; slot += words_) {
      if (slot[1]) visit(slot);
    }
  }
  template <class Visit>
  void each(Visit visit) {
    for (Segment& s : segments_) each(s, visit);
  }

  // Calls visit(slot) for each key of the bin.
  template <class Visit>
  void each_of_bin(uint64_t bin, unsigned bin_bits, Visit visit) {
    run_of_bin(bin, bin_bits, [&](uint64_t* slot) {
      if (top_bits(slot[0], bin_bits) == bin) visit(slot);
    });
  }

  // Forgets the keys of the bin (what their cells own is the caller's) and gives empty segments
  // their memory back.
  void erase_bin(uint64_t bin, unsigned bin_bits) {
    Segment& s = segment(first_hash(bin, bin_bits));
    std::vector<uint64_t> others;
    run_of_bin(bin, bin_bits, [&](uint64_t* slot) {
      if (top_bits(slot[0], bin_bits) != bin) others.insert(others.end(), slot, slot + words_);
      std::memset(slot, 0, words_ * 8);
      --s.used;
    });
    for (size_t i = 0; i < others.size(); i += words_) {
      place(s, others.data() + i);
      ++s.used;
    }
    if (s.used == 0) reset(s);
  }

 private:
  static constexpr uint64_t kFirstBits = 4;

  static uint64_t first_hash(uint64_t bin, unsigned bin_bits) {
    return bin_bits ? bin << (64 - bin_bits) : 0;
  }

  size_t segment_bytes(uint64_t bits) const { return size_t(words_ * 8) << bits; }

  // Gives the segment 2^bits empty slots: its place in the slab of that size.
  void settle(Segment& s, uint64_t bits) {
    const size_t i = size_t(&s - segments_.data());
    if (slabs_.size() <= bits) slabs_.resize(bits + 1);
    Slab& slab = slabs_[bits];
    if (slab.users++ == 0) {
      slab.memory = ZeroedRegion(segment_bytes(bits) * segments_.size());
      slab.touched.assign(segments_.size(), false);
    }
    s.slots = slab.memory.data() + (uint64_t(words_) << bits) * i;
    if (slab.touched[i]) std::memset(s.slots, 0, segment_bytes(bits));
    slab.touched[i] = true;
    s.bits = uint32_t(bits);
    s.shift = uint32_t(64 - above_bits_ - bits);
    s.mask = (uint64_t(1) << bits) - 1;
    bytes_ += segment_bytes(bits);
  }
  void leave(uint64_t bits) {
    bytes_ -= segment_bytes(bits);
    Slab& slab = slabs_[bits];
    if (--slab.users == 0) slab.memory = ZeroedRegion();
  }
  void reset(Segment& s) {
    const uint64_t bits = s.bits;
    if (bits == kFirstBits) return;
    leave(bits);
    settle(s, kFirstBits);
  }
  void grow(Segment& s) {
    const uint64_t bits = s.bits;
    const uint64_t* slot = s.slots;
    const uint64_t* end = slot + (s.mask + 1) * words_;
    settle(s, bits + 1);
    for (; slot != end; slot += words_) {
      if (slot[1]) place(s, slot);
    }
    leave(bits);
  }
  // Copies a slot whose key is not in the segment to the first empty place.
  void place(Segment& s, const uint64_t* from) {
    uint64_t i = index(s, from[0]);
    while (s.slots[i * words_ + 1]) i = (i + 1) & s.mask;
    std::memcpy(s.slots + i * words_, from, words_ * 8);
  }
  // Visits the used slots of the bin's range and of the run behind it: all of its keys, and some
  // others.
  template <class Visit>
  void run_of_bin(uint64_t bin, unsigned bin_bits, Visit visit) {
    const uint64_t first = first_hash(bin, bin_bits);
    const uint64_t last = bin_bits ? first | (~uint64_t(0) >> bin_bits) : ~uint64_t(0);
    Segment& s = segment(first);
    const uint64_t from = index(s, first), range = index(s, last) - from;
    for (uint64_t k = 0; k <= s.mask; ++k) {
      uint64_t* slot = s.slots + ((from + k) & s.mask) * words_;
      if (slot[1]) {
        visit(slot);
      } else if (k > range) {
        break;
      }
    }
  }

  // The memory of all segments of one size, side by side, so that small segments share huge pages.
  // Freed when the last segment has moved on.
  struct Slab {
    ZeroedRegion memory;
    size_t users = 0;
    std::vector<bool> touched;
  };

  const unsigned words_, above_bits_;  // of a slot; of the hash, for lane and segment
  const unsigned segment_shift_;
  const uint64_t segment_mask_;
  std::vector<Segment> segments_;
  std::vector<Slab> slabs_;  // by log2 of the slots
  size_t bytes_ = 0;
};

}  // namespace plait
