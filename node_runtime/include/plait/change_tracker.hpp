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

#include "plait/xxh64.hpp"

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
    const Map* maps = maps_.data();
    for (uint32_t i = 0; i < n; ++i) {
      // The first shift by 1 lets there be one bin: a shift by 64 is not defined.
      const Map m = maps[(hash[i] >> 1 >> (63 - bin_bits_)) & bin_mask_];
      const uint64_t bit = (hash[i] << bin_bits_) >> m.shift;
      m.words[bit >> 6] |= uint64_t(1) << (bit & 63);
    }
  }

  // For each prefix of hashes of the tracked bin among which one has changed: first ask(prefix,
  // bits) and soon after visit(prefix, bits).
  template <class Ask, class Visit>
  void changed(uint32_t bin, Ask ask, Visit visit) const {
    const Tracked& t = tracked_.at(bin);
    const unsigned bits = bin_bits_ + t.bits;
    const uint64_t words = uint64_t(1) << (t.bits - 6);
    for (uint64_t w = 0; w < words; ++w) {
      const uint64_t first = (uint64_t(bin) << t.bits) | (w << 6);
      for (uint64_t left = t.words[w]; left; left &= left - 1) {
        ask(first | unsigned(std::countr_zero(left)), bits);
      }
      for (uint64_t left = t.words[w]; left; left &= left - 1) {
        visit(first | unsigned(std::countr_zero(left)), bits);
      }
    }
  }
  bool has_changed(uint32_t bin, uint64_t hash) const {
    const Tracked& t = tracked_.at(bin);
    const uint64_t bit = (hash << bin_bits_) >> (64 - t.bits);
    return t.words[bit >> 6] >> (bit & 63) & 1;
  }

 private:
  static constexpr unsigned kLeastBits = 6, kMostBits = 32;  // with the bin's at most 56
  struct Map {
    uint64_t* words;
    unsigned shift;
  };
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
