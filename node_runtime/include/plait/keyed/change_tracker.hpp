// Which keys of some bins of a lane have changed since start(): a set that may hold a few too many.
//
// A tracked bin has a bitmap over the hash bits below the bin's, about one bit for each slot;
// mark() sets the bits of a part's hashes and changed() gives them back as prefixes of hashes,
// ascending. Tables may grow meanwhile: the bits belong to hashes, not to slots. The number that
// start() gives goes with the copy of a bin and with its difference, so that the two find each
// other. All calls belong to the holder of the lane; nothing waits. mark() without a tracked bin
// must not be called.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <random>
#include <unordered_map>
#include <vector>

#include "plait/core/xxh64.hpp"

namespace plait {

class ChangeTracker {
 public:
  ChangeTracker(unsigned bin_bits, unsigned lane_bits)
      : bin_bits_(bin_bits), bin_mask_((uint64_t(1) << (bin_bits - lane_bits)) - 1) {}
  ChangeTracker(const ChangeTracker&) = delete;
  ChangeTracker& operator=(const ChangeTracker&) = delete;

  bool any() const { return !tracked_.empty(); }

  // `slot_bits`: log2 of the slots that are the bin's.
  void start(uint32_t bin, unsigned slot_bits) {
    if (maps_.empty()) maps_.assign(bin_mask_ + 1, Map{&nowhere_, 64 - kLeastBits});
    Tracked& t = tracked_[bin];
    t.number = fresh_number();
    t.bits = std::min(std::max(slot_bits, kLeastBits), kMostBits);
    t.words = std::make_unique<uint64_t[]>(size_t(1) << (t.bits - 6));
    maps_[bin & bin_mask_] = {t.words.get(), 64 - t.bits};
  }
  void stop(uint32_t bin) {
    if (tracked_.erase(bin)) maps_[bin & bin_mask_] = {&nowhere_, 64 - kLeastBits};
    if (tracked_.empty()) maps_ = {};
  }
  // 0: the bin is not tracked.
  uint64_t number(uint32_t bin) const {
    const auto found = tracked_.find(bin);
    return found == tracked_.end() ? 0 : found->second.number;
  }

  void mark(const uint64_t* hash, uint32_t n) {
    for (uint32_t i = 0; i < n; ++i) {
      if (i + kAhead < n) __builtin_prefetch(place(hash[i + kAhead]).word, 1);
      const Place p = place(hash[i]);
      *p.word |= p.bit;
    }
  }

  // What has changed in one bin. Valid until the tracker's next call.
  struct Changes {
    const uint64_t* words;
    unsigned bin_bits, bits;
    uint64_t bin;

    bool has(uint64_t hash) const {
      const uint64_t bit = (hash << bin_bits) >> (64 - bits);
      return words[bit >> 6] >> (bit & 63) & 1;
    }
    // Prefixes of hashes, apart and ascending: every hash that has() is under one of them. Where
    // few have changed they are long ones, and ask(prefix, bits) comes some time before
    // visit(prefix, bits).
    template <class Ask, class Visit>
    void each(Ask ask, Visit visit) const {
      for (uint64_t w = 0; w < uint64_t(1) << (bits - 6); ++w) {
        const uint64_t group = bin << (bits - 6) | w;
        if (std::popcount(words[w]) > 3) {
          visit(group, bin_bits + bits - 6);
          continue;
        }
        for (uint64_t left = words[w]; left; left &= left - 1) {
          ask(group << 6 | unsigned(std::countr_zero(left)), bin_bits + bits);
        }
        for (uint64_t left = words[w]; left; left &= left - 1) {
          visit(group << 6 | unsigned(std::countr_zero(left)), bin_bits + bits);
        }
      }
    }
  };
  Changes changes(uint32_t bin) const {
    const Tracked& t = tracked_.at(bin);
    return {t.words.get(), bin_bits_, t.bits, bin};
  }

 private:
  static constexpr unsigned kLeastBits = 6, kMostBits = 32;  // with the bin's at most 56
  static constexpr uint32_t kAhead = 16;                     // rows
  struct Map {
    uint64_t* words;
    unsigned shift;
  };
  struct Place {
    uint64_t *word, bit;
  };
  // The first shift by 1 lets there be one bin: a shift by 64 is not defined.
  Place place(uint64_t h) const {
    const Map m = maps_[(h >> 1 >> (63 - bin_bits_)) & bin_mask_];
    const uint64_t bit = (h << bin_bits_) >> m.shift;
    return {m.words + (bit >> 6), uint64_t(1) << (bit & 63)};
  }
  struct Tracked {
    uint64_t number = 0;
    unsigned bits = 0;
    std::unique_ptr<uint64_t[]> words;
  };

  // Unlike any number of any process, but for chance; never 0.
  static uint64_t fresh_number() {
    static const uint64_t start = [] {
      std::random_device random;
      return uint64_t(random()) << 32 | random();
    }();
    static std::atomic<uint64_t> next{0};
    const uint64_t words[] = {start, next.fetch_add(1, std::memory_order_relaxed)};
    return xxh64(words, sizeof words, 0) | 1;
  }

  const unsigned bin_bits_;
  const uint64_t bin_mask_;
  uint64_t nowhere_ = 0;   // where the bits of bins that are not tracked go
  std::vector<Map> maps_;  // by the bin's number in the lane; empty when nothing is tracked
  std::unordered_map<uint32_t, Tracked> tracked_;
};

}  // namespace plait
