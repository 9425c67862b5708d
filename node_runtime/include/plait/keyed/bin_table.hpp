// What moves of a state table: the slots of one bin, copied, put, erased; and memory made ready.
//
// A bin's slots are copied out one behind the other, in the order of the table, which is almost
// that of the hashes, so that putting them elsewhere is a sequential pass too. A segment gets its
// final size before many keys come, and an erased range is zeroed as a whole. All calls belong to
// the holder of the lane; nothing waits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "plait/keyed/state_table.hpp"

namespace plait {

class BinTable : public StateTable {
 public:
  using StateTable::StateTable;

  // log2 of the slots that are the bin's own.
  unsigned bin_slot_bits(uint64_t bin) {
    const Segment& s = segment(first_hash(bin, bin_bits_));
    return s.bits > range_bits_ ? s.bits - range_bits_ : 0;
  }
  // Asks for the first slot of the hashes with this prefix.
  [[gnu::always_inline]] void prefetch_prefix(uint64_t prefix, unsigned prefix_bits) {
    prefetch<0>(first_hash(prefix, prefix_bits));
  }

  // Writes the first words of each slot of the bin one after the other, and returns the end. `out`
  // has room for the bin's keys and one more.
  template <unsigned kWords, unsigned kUsed>
  uint64_t* copy_bin(uint64_t bin, unsigned used_words, uint64_t* out) {
    if (!bin_keys(bin)) return out;
    const Range r = range(bin, bin_bits_);
    const uint64_t words = kWords ? kWords : words_, used = kUsed ? kUsed : used_words;
    const auto copy = [&](const uint64_t* slot) {
      if constexpr (kUsed != 0) {
        for (unsigned w = 0; w < kUsed; ++w) out[w] = slot[w];
      } else {
        std::memcpy(out, slot, used * 8);
      }
      const bool ours = (slot[1] != 0) & (top_bits(slot[0], bin_bits_) == bin);
      out += ours ? used : 0;
    };
    const uint64_t* slot = at(r, 0);
    for (uint64_t k = 0; k < r.size; ++k, slot += words) copy(slot);
    for (uint64_t k = r.size; k <= r.segment.mask && at(r, k)[1]; ++k) copy(at(r, k));
    return out;
  }

  // Puts n slots of a bin that has no keys, given as their first words. False: a key is there
  // twice, and nothing was put.
  template <unsigned kWords, unsigned kUsed>
  bool put_bin(uint64_t bin, unsigned used_words, const uint8_t* from, uint64_t n) {
    reserve(bin, n);
    Segment& s = segment(first_hash(bin, bin_bits_));
    const uint64_t words = kWords ? kWords : words_, used = kUsed ? kUsed : used_words;
    for (uint64_t k = 0; k < n; ++k, from += used * 8) {
      uint64_t h;
      std::memcpy(&h, from, 8);
      uint64_t i = index(s, h);
      uint64_t* slot = s.slots + i * words;
      while (slot[1] != 0) {
        if (slot[0] == h) {
          count(s, bin & bin_mask_, int64_t(k));
          erase_bin(bin);
          return false;
        }
        i = (i + 1) & s.mask;
        slot = s.slots + i * words;
      }
      std::memcpy(slot, from, used * 8);
    }
    count(s, bin & bin_mask_, int64_t(n));
    return true;
  }

  // Room for n more keys of the bin, so that they come in without a step of growth each.
  void reserve(uint64_t bin, uint64_t n) {
    Segment& s = segment(first_hash(bin, bin_bits_));
    const unsigned bits = std::max(fitting_bits(s.used + n, bin_keys(bin) + n), prepared_bits_);
    if (n && bits > s.bits) grow(s, bits);
  }

  // Forgets the keys of the bin (what their cells own is the caller's). The memory of a segment
  // that is empty then waits for bins to come, until the next prepare().
  void erase_bin(uint64_t bin) {
    if (!bin_keys(bin)) return;
    const Range r = range(bin, bin_bits_);
    // Up to the first empty slot there may be keys of the bin before, behind the range some of the
    // bins after: they are found by way of slots that are about to be empty, and placed anew.
    std::vector<uint64_t> others;
    const auto keep = [&](const uint64_t* slot) {
      if (top_bits(slot[0], bin_bits_) != bin) others.insert(others.end(), slot, slot + words_);
    };
    uint64_t k = 0;
    for (; k < r.size && at(r, k)[1]; ++k) keep(at(r, k));
    for (k = r.size; k <= r.segment.mask && at(r, k)[1]; ++k) keep(at(r, k));
    const uint64_t first = std::min(k, r.segment.mask + 1 - r.from);
    std::memset(at(r, 0), 0, first * words_ * 8);
    std::memset(r.segment.slots, 0, (k - first) * words_ * 8);
    count(r.segment, bin & bin_mask_, -int64_t(bin_keys(bin)));
    for (size_t i = 0; i < others.size(); i += words_) place(r.segment, others.data() + i);
    if (r.segment.used == 0) reset(r.segment, true);
  }

  // Forgets one key. Those behind it that were pushed away by it move up.
  void remove(uint64_t* slot) {
    Segment& s = segment(slot[0]);
    count(s, bin_index(slot[0]), -1);
    uint64_t hole = uint64_t(slot - s.slots) / words_;
    for (uint64_t i = (hole + 1) & s.mask; s.slots[i * words_ + 1]; i = (i + 1) & s.mask) {
      const uint64_t* next = s.slots + i * words_;
      if (((i - index(s, next[0])) & s.mask) < ((i - hole) & s.mask)) continue;
      std::memcpy(s.slots + hole * words_, next, words_ * 8);
      hole = i;
    }
    std::memset(s.slots + hole * words_, 0, words_ * 8);
    if (s.used == 0) reset(s, false);
  }

  // Makes memory ready for bins with so many keys each; they come by put_bin or by inserting.
  void prepare(const std::vector<uint32_t>& bins, uint64_t keys_of_each) {
    std::vector<uint64_t> more(segments_.size(), 0);
    for (uint64_t bin : bins) {
      if (bin_keys(bin) == 0) more[segment_index(first_hash(bin, bin_bits_))] += keys_of_each;
    }
    prepared_bits_ = 0;
    for (size_t i = 0; i < more.size(); ++i) {
      if (more[i] == 0) continue;
      const unsigned bits = fitting_bits(segments_[i].used + more[i], keys_of_each);
      if (bits > segments_[i].bits) prepared_bits_ = std::max(prepared_bits_, bits);
    }
    memory_.prepare(prepared_bits_);
    for (uint64_t bin : bins) {
      const size_t i = segment_index(first_hash(bin, bin_bits_));
      const Segment& s = segments_[i];
      const unsigned bits = std::max(s.bits, prepared_bits_);
      const size_t all = memory_.segment_bytes(bits);
      if (s.used && bits > s.bits) {  // it will grow as a whole
        memory_.want(i, bits, 0, all);
        continue;
      }
      const uint64_t number = bin & ((uint64_t(1) << range_bits_) - 1);
      memory_.want(i, bits, (all * number) >> range_bits_, (all * (number + 1)) >> range_bits_);
    }
  }
  std::vector<SegmentMemory::Piece> untouched() { return memory_.untouched(); }

 private:
  // The size that so many keys grow to if they come one by one, and a little to spare: another one
  // than that of the segments around would keep the table from being flat.
  unsigned fitting_bits(uint64_t used, uint64_t of_bin) const {
    Segment s;
    for (s.bits = used_ ? common_ : kFirstBits;; ++s.bits) {
      s.mask = (uint64_t(1) << s.bits) - 1;
      if (!crowded(s, used + used / 32, of_bin)) return s.bits;
    }
  }

  // Of an empty segment.
  void reset(Segment& s, bool keep) {
    const unsigned bits = s.bits;
    if (bits == kFirstBits) return;
    settle(s, kFirstBits);
    const bool unmapped = memory_.leave(size_t(&s - segments_.data()), bits, true, keep);
    if (unmapped && bits == prepared_bits_) prepared_bits_ = 0;
  }
};

}  // namespace plait
