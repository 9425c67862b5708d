// The memory of a lane's table segments: one slab for each size, a place in it for each segment.
//
// Segments of one size lie side by side, so that small ones share huge pages. enter() gives a
// segment its place, zeroed; leave() says whether it was left zeroed; the slab is unmapped when the
// last segment leaves it, or kept if bins may come back: fresh memory costs more than all else of a
// move. prepare() maps a slab before any segment is in it, and want() and untouched() name the
// pieces of it that another thread may populate (ZeroedRegion::populate) meanwhile. All calls
// belong to the holder of the lane; nothing waits, but a call may map or unmap memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "plait/core/zeroed_region.hpp"

namespace plait {

class SegmentMemory {
 public:
  using Piece = std::pair<void*, size_t>;

  SegmentMemory(unsigned words, size_t segments) : slot_bytes_(words * 8), segments_(segments) {}

  size_t segment_bytes(unsigned bits) const { return slot_bytes_ << bits; }
  // Of the places in use.
  size_t bytes() const { return bytes_; }

  uint64_t* enter(size_t segment, unsigned bits) {
    Slab& slab = slab_of(bits);
    ++slab.users;
    bytes_ += segment_bytes(bits);
    uint64_t* place = slab.memory.data() + segment_bytes(bits) / 8 * segment;
    if (slab.dirty[segment]) std::memset(place, 0, segment_bytes(bits));
    slab.dirty[segment] = true;
    return place;
  }

  // `keep`: the slab stays if it was the last segment, until the next prepare(). Whether it went.
  bool leave(size_t segment, unsigned bits, bool zeroed, bool keep = false) {
    bytes_ -= segment_bytes(bits);
    Slab& slab = slabs_[bits];
    slab.dirty[segment] = !zeroed;
    if (--slab.users != 0 || keep) return false;
    drop(slab);
    return true;
  }

  // Maps the slab of a size; slabs of other sizes that hold no segment are unmapped. 0: none.
  void prepare(unsigned bits) {
    for (unsigned b = 0; b < slabs_.size(); ++b) {
      if (b != bits && slabs_[b].users == 0) drop(slabs_[b]);
    }
    if (bits) slab_of(bits);
  }

  // Adds to untouched() the bytes [from, to) of a segment's place, in whole huge pages, each of
  // which is named once. Small slabs are touched when they are made.
  void want(size_t segment, unsigned bits, size_t from, size_t to) {
    Slab& slab = slab_of(bits);
    if (!slab.memory.mapped()) return;
    constexpr size_t kPiece = ZeroedRegion::kHuge;
    const size_t base = segment_bytes(bits) * segment, all = slab.memory.bytes();
    slab.named.resize(all / kPiece + 1);
    for (size_t p = (base + from) / kPiece; p * kPiece < std::min(base + to, all); ++p) {
      if (slab.named[p]) continue;
      slab.named[p] = true;
      auto* at = reinterpret_cast<uint8_t*>(slab.memory.data()) + p * kPiece;
      slab.untouched.emplace_back(at, std::min(kPiece, all - p * kPiece));
    }
  }

  // The pieces wanted since the last call.
  std::vector<Piece> untouched() {
    std::vector<Piece> all;
    for (Slab& slab : slabs_) {
      all.insert(all.end(), slab.untouched.begin(), slab.untouched.end());
      slab.untouched.clear();
    }
    return all;
  }

 private:
  struct Slab {
    ZeroedRegion memory;
    size_t users = 0;
    std::vector<bool> dirty;  // by segment: its place is not known to be zero
    std::vector<bool> named;  // by piece: want() has named it
    std::vector<Piece> untouched;
  };

  Slab& slab_of(unsigned bits) {
    if (slabs_.size() <= bits) slabs_.resize(bits + 1);
    Slab& slab = slabs_[bits];
    if (!slab.memory.data()) {
      slab.memory = ZeroedRegion(segment_bytes(bits) * segments_);
      slab.dirty.assign(segments_, false);
    }
    return slab;
  }
  // The old slab leaves with the temporary.
  static void drop(Slab& slab) { Slab old = std::exchange(slab, Slab()); }

  const size_t slot_bytes_, segments_;
  std::vector<Slab> slabs_;  // by log2 of a segment's slots
  size_t bytes_ = 0;
};

}  // namespace plait
