// One lane's flat open-addressing table of 8-byte words: slot = {hash, rows seen, cells...}, rows seen 0 = empty.
//
// The slot's index is the hash bits below the lane's, so a bin is a contiguous range (plus the run that probing pushed
// behind it). The lane's table is cut into segments by the first of those bits; each grows alone, by one sequential pass
// at 9/16 load, so that a batch never waits for the whole lane to grow. Probing is linear and wraps inside the segment.
// For one thread at a time (the holder of the lane); never waits.
// Keys chosen so that their hashes share the high bits would cluster; the hash is public and not meant against that.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include "plait/key_hash.hpp"

namespace plait {

// Zeroed memory for one segment. Large ones are mapped at a 2 MiB edge and ask for huge pages.
class ZeroedRegion {
 public:
  ZeroedRegion() = default;
  explicit ZeroedRegion(size_t bytes) : bytes_(bytes) {
    if (bytes < kMapped) {
      data_ = static_cast<uint64_t*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64));
      if (!data_) throw std::bad_alloc();
      std::memset(data_, 0, bytes);
      return;
    }
    map_bytes_ = bytes + kHuge;
    map_ = ::mmap(nullptr, map_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map_ == MAP_FAILED) {
      map_ = nullptr;
      throw std::bad_alloc();
    }
    const auto at = (reinterpret_cast<uintptr_t>(map_) + kHuge - 1) / kHuge * kHuge;
    data_ = reinterpret_cast<uint64_t*>(at);
#ifdef MADV_HUGEPAGE
    ::madvise(data_, bytes, MADV_HUGEPAGE);
#endif
  }
  ZeroedRegion(ZeroedRegion&& o) noexcept { swap(o); }
  ZeroedRegion& operator=(ZeroedRegion&& o) noexcept {
    swap(o);
    return *this;
  }
  ~ZeroedRegion() {
    if (map_) {
      ::munmap(map_, map_bytes_);
    } else {
      std::free(data_);
    }
  }
  uint64_t* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  static constexpr size_t kHuge = size_t(2) << 20, kMapped = kHuge;
  void swap(ZeroedRegion& o) {
    std::swap(data_, o.data_);
    std::swap(bytes_, o.bytes_);
    std::swap(map_, o.map_);
    std::swap(map_bytes_, o.map_bytes_);
  }
  uint64_t* data_ = nullptr;
  size_t bytes_ = 0, map_bytes_ = 0;
  void* map_ = nullptr;
};

class StateTable {
 public:
  struct Segment {
    uint64_t* slots = nullptr;
    uint64_t shift = 0;  // 64 - log2 of the slots
    uint64_t used = 0, limit = 0;
    ZeroedRegion region;
    uint64_t mask() const { return ~uint64_t(0) >> shift; }
  };

  StateTable(unsigned words, unsigned lane_bits, unsigned segment_bits)
      : words_(words), lane_bits_(lane_bits), segment_bits_(segment_bits) {
    segments_.resize(size_t(1) << segment_bits);
    for (Segment& s : segments_) reset(s);
  }

  unsigned words() const { return words_; }
  Segment& segment(uint64_t h) { return segments_[segment_index(h)]; }
  size_t segment_index(uint64_t h) const { return top_bits(h << lane_bits_, segment_bits_); }
  uint64_t index(const Segment& s, uint64_t h) const {
    return (h << (lane_bits_ + segment_bits_)) >> s.shift;
  }

  // kWords: the slot's words where the caller knows them, 0 otherwise.
  template <unsigned kWords>
  void prefetch(uint64_t h) {
    const Segment& s = segment(h);
    __builtin_prefetch(s.slots + index(s, h) * (kWords ? kWords : words_), 1);
  }

  // The slot of a key that is its hash, or the empty slot where it belongs (the caller then writes hash and rows
  // seen, and calls inserted() when done with the slot).
  template <unsigned kWords>
  uint64_t* find(uint64_t h) {
    const Segment& s = segment(h);
    const uint64_t words = kWords ? kWords : words_;
    uint64_t i = index(s, h);
    uint64_t* slot = s.slots + i * words;
    while (slot[0] != h && slot[1] != 0) [[unlikely]] {
      i = (i + 1) & s.mask();
      slot = s.slots + i * words;
    }
    return slot;
  }

  // Whether counting one more key in h's segment makes it grow.
  bool full_after_one(uint64_t h) {
    const Segment& s = segment(h);
    return s.used + 1 >= s.limit;
  }
  // Counts a slot that was empty; may move all slots of its segment.
  void inserted(uint64_t h) {
    Segment& s = segment(h);
    if (++s.used >= s.limit) [[unlikely]] grow(s);
  }

  uint64_t size() const {
    uint64_t n = 0;
    for (const Segment& s : segments_) n += s.used;
    return n;
  }
  size_t byte_size() const {
    size_t n = 0;
    for (const Segment& s : segments_) n += s.region.bytes();
    return n;
  }

  template <class Visit>
  void each(Segment& s, Visit visit) {
    uint64_t* end = s.slots + (s.mask() + 1) * words_;
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

  // Forgets the keys of the bin (what their cells own is the caller's) and gives empty segments their memory back.
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

  void resize(Segment& s, uint64_t bits) {
    s.region = ZeroedRegion((words_ * 8) << bits);
    s.slots = s.region.data();
    s.shift = 64 - bits;
    s.limit = (uint64_t(9) << bits) / 16;
  }
  void reset(Segment& s) {
    if (s.slots && s.shift == 64 - kFirstBits) return;
    s.region = ZeroedRegion();
    resize(s, kFirstBits);
  }
  void grow(Segment& s) {
    ZeroedRegion old = std::move(s.region);
    const uint64_t* slot = s.slots;
    const uint64_t* end = slot + (s.mask() + 1) * words_;
    s.region = ZeroedRegion();
    resize(s, 64 - s.shift + 1);
    for (; slot != end; slot += words_) {
      if (slot[1]) place(s, slot);
    }
  }
  // Copies a slot whose key is not in the segment to the first empty place.
  void place(Segment& s, const uint64_t* from) {
    uint64_t i = index(s, from[0]);
    while (s.slots[i * words_ + 1]) i = (i + 1) & s.mask();
    std::memcpy(s.slots + i * words_, from, words_ * 8);
  }
  // Visits the used slots of the bin's range and of the run behind it: all of its keys, and some others.
  template <class Visit>
  void run_of_bin(uint64_t bin, unsigned bin_bits, Visit visit) {
    const uint64_t first = first_hash(bin, bin_bits);
    const uint64_t last = bin_bits ? first | (~uint64_t(0) >> bin_bits) : ~uint64_t(0);
    Segment& s = segment(first);
    const uint64_t from = index(s, first), range = index(s, last) - from;
    for (uint64_t k = 0; k <= s.mask(); ++k) {
      uint64_t* slot = s.slots + ((from + k) & s.mask()) * words_;
      if (slot[1]) {
        visit(slot);
      } else if (k > range) {
        break;
      }
    }
  }

  unsigned words_, lane_bits_, segment_bits_;
  std::vector<Segment> segments_;
};

}  // namespace plait
