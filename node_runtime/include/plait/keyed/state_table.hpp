// One lane's flat open-addressing table of 8-byte words: slot = {hash, rows seen, cells...}, rows
// seen 0 = empty.
//
// The slot's index is the hash bits below the lane's, so a bin is a contiguous range (plus the run
// that probing pushed behind it). Probing is linear and wraps inside the segment; TableSegments has
// the sizes. For one thread at a time (the holder of the lane); never waits. Keys chosen so that
// their hashes share the high bits would cluster; the hash is public and not meant against that.
#pragma once

#include <cstdint>

#include "plait/columns/key_hash.hpp"
#include "plait/keyed/table_segments.hpp"

namespace plait {

class StateTable : public TableSegments {
 public:
  using TableSegments::TableSegments;

  template <unsigned kWords>
  [[gnu::always_inline]] static void prefetch(const Flat& f, uint64_t h) {
    __builtin_prefetch(f.slots + ((h >> f.shift) & f.all) * kWords, 1);
  }
  template <unsigned kWords>
  [[gnu::always_inline]] static uint64_t* find(const Flat& f, uint64_t h) {
    uint64_t i = (h >> f.shift) & f.all;
    uint64_t* slot = f.slots + i * kWords;
    while (slot[0] != h && slot[1] != 0) [[unlikely]] {
      i = (i & ~f.mask) | ((i + 1) & f.mask);
      slot = f.slots + i * kWords;
    }
    return slot;
  }

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

  // Calls visit(slot) for each key whose hash starts with these bits: a bin's number, or more.
  template <class Visit>
  void each_of(uint64_t prefix, unsigned prefix_bits, Visit visit) {
    const Range r = range(prefix, prefix_bits);
    const auto look = [&](uint64_t* slot) {
      if (slot[1] != 0 && top_bits(slot[0], prefix_bits) == prefix) visit(slot);
    };
    uint64_t* slot = at(r, 0);
    for (uint64_t k = 0; k < r.size; ++k, slot += words_) look(slot);
    for (uint64_t k = r.size; k <= r.segment.mask && at(r, k)[1]; ++k) look(at(r, k));
  }
  template <class Visit>
  void each_of_bin(uint64_t bin, Visit visit) {
    if (bin_keys(bin)) each_of(bin, bin_bits_, visit);
  }

 protected:
  // A range of slots in which hashes with a common prefix are at home.
  struct Range {
    Segment& segment;
    uint64_t from, size;
  };
  Range range(uint64_t prefix, unsigned prefix_bits) {
    const uint64_t first = first_hash(prefix, prefix_bits);
    const uint64_t last = prefix_bits ? first | (~uint64_t(0) >> prefix_bits) : ~uint64_t(0);
    Segment& s = segment(first);
    const uint64_t from = index(s, first);
    return {s, from, index(s, last) - from + 1};
  }
  // The k-th slot from the start of a range.
  uint64_t* at(const Range& r, uint64_t k) const {
    return r.segment.slots + ((r.from + k) & r.segment.mask) * words_;
  }

  static uint64_t first_hash(uint64_t prefix, unsigned bits) {
    return bits ? prefix << (64 - bits) : 0;
  }
};

}  // namespace plait
