// SavedBins: a lane's bins that are written for a checkpoint while the lane works on.
//
// begin_save() notes, for a mark, which bins are to be written: those that changed since the mark
// before, or all; it costs a look at each bin. From then on save_some() writes them bit by bit, and
// save_touched() comes before every part: a key that the part may change is written first, with the
// few that share the beginning of its hash. So each key is written once, as it was at the mark.
// What is written already is known by a bitmap over the hash bits below the bin's, about one bit
// for each slot, as in change_tracker.hpp: tables may grow meanwhile. A bin that leaves is written
// to its end before. The entries of a bin are in no certain order.
//
// All calls belong to the holder of the lane; nothing waits. take_saved() gives the bins that are
// complete: sealing them needs no lane.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plait/keyed/dirty_bins.hpp"
#include "plait/keyed/keyed_bins.hpp"

namespace plait {

// A bin with all that it had at a mark; without a writer: it has no keys any more.
struct SavedBin {
  uint32_t bin = 0;
  std::unique_ptr<BinWriter> writer;
};

class SavedBins : public KeyedBins {
 public:
  SavedBins(const KeyedPlan& plan, unsigned lane)
      : KeyedBins(plan, lane), dirty_(plan.bin_bits, plan.lane_bits) {}

  // What was to be written for an older mark, and is not, is forgotten. `all`: whatever changed. A
  // copy whose difference has not come is nobody's state: it is left out, and counts as changed.
  void begin_save(bool all) {
    drop_save();
    pending_.resize(bins());
    for (uint32_t bin = first(); bin < first() + bins(); ++bin) {
      const bool here = !empty(bin) && !waits_for_difference(bin);
      if (here && (all || dirty_.changed(bin))) {
        Pending& p = pending_[bin - first()];
        p.waits = true;
        if (null_in(bin)) p.null_entry = null_entry(bin);
        ++left_;
      } else if (!here && !all && dirty_.changed(bin) && !dirty_.was_empty(bin)) {
        saved_.push_back({bin, nullptr});
      }
      dirty_.begin(bin, !here);
    }
    next_ = first();
  }
  // Nothing more is wanted of the last mark.
  void drop_save() {
    pending_.clear();
    saved_.clear();
    left_ = 0;
  }
  bool saving() const { return left_ != 0; }

  // Before a part of these hashes is folded in.
  void save_touched(const uint64_t* hash, uint32_t n) {
    for (uint32_t i = 0; i < n; ++i) {
      if (i + kTouchedAhead < n) table().template prefetch<0>(hash[i + kTouchedAhead]);
      const uint32_t bin = uint32_t(top_bits(hash[i], plan_.bin_bits));
      if (pending_[bin - first()].waits) save_prefix(bin, hash[i]);
    }
  }
  // Goes on until over() is true, which is asked now and then; whether every bin is written.
  template <class Over>
  bool save_some(Over over) {
    while (left_) {
      while (!pending_[next_ - first()].waits) ++next_;
      Pending& p = pending_[next_ - first()];
      if (!p.writer && bin_keys(next_) <= kKeysAtOnce) {
        write_at_once(next_, p);
      } else if (!write_groups(next_, open(next_), over)) {
        return false;
      }
      complete(next_, p);
      if (over()) break;
    }
    return left_ == 0;
  }
  std::vector<SavedBin> take_saved() { return std::exchange(saved_, {}); }

  // As those of KeyedBins.
  Bytes take_bin(uint32_t bin) {
    leaves(bin);
    return KeyedBins::take_bin(bin);
  }
  Bytes take_difference(uint32_t bin) {
    leaves(bin);
    return KeyedBins::take_difference(bin);
  }
  void discard_bin(uint32_t bin) {
    leaves(bin);
    KeyedBins::discard_bin(bin);
  }
  [[nodiscard]] std::string put_bin(const uint8_t* data, size_t size) {
    return noted(data, size, KeyedBins::put_bin(data, size));
  }
  [[nodiscard]] std::string apply_difference(const uint8_t* data, size_t size) {
    return noted(data, size, KeyedBins::apply_difference(data, size));
  }

 protected:
  DirtyBins dirty_;

 private:
  static constexpr uint32_t kTouchedAhead = 16;
  static constexpr uint64_t kKeysAtOnce = 4096;
  static constexpr unsigned kLeastBits = 6, kMostBits = 32;
  static constexpr uint64_t kGroups = 8;  // of 64 slots, between two looks at the clock

  struct Pending {
    bool waits = false;
    unsigned bits = 0;
    uint64_t group = 0;                   // those before it are written
    std::unique_ptr<uint64_t[]> written;  // a bit for each beginning of a hash
    std::unique_ptr<BinWriter> writer, null_entry;
  };

  uint32_t bins() const { return 1u << (plan_.bin_bits - plan_.lane_bits); }
  uint32_t first() const { return lane_ * bins(); }

  std::unique_ptr<BinWriter> writer_of(uint32_t bin, uint64_t keys) const {
    return std::make_unique<BinWriter>(plan_, BinKind::Whole, bin, 0, keys);
  }
  std::unique_ptr<BinWriter> null_entry(uint32_t bin) const {
    auto made = writer_of(bin, 1);
    made->add(null_slot_.data());
    return made;
  }
  Pending& open(uint32_t bin) {
    Pending& p = pending_[bin - first()];
    if (p.writer) return p;
    p.writer = writer_of(bin, bin_keys(bin));
    p.bits = std::clamp(table().bin_slot_bits(bin), kLeastBits, kMostBits);
    p.written = std::make_unique<uint64_t[]>(size_t(1) << (p.bits - 6));
    return p;
  }
  void save_prefix(uint32_t bin, uint64_t hash) {
    Pending& p = open(bin);
    const uint64_t at = bit_of(p, hash);
    const uint64_t bit = uint64_t(1) << (at & 63);
    if (p.written[at >> 6] & bit) return;
    p.written[at >> 6] |= bit;
    table().each_of(uint64_t(bin) << p.bits | at, plan_.bin_bits + p.bits,
                    [&](const uint64_t* slot) { p.writer->add(slot); });
  }
  uint64_t bit_of(const Pending& p, uint64_t hash) const {
    return (hash << plan_.bin_bits) >> (64 - p.bits);
  }
  void write_at_once(uint32_t bin, Pending& p) {
    p.writer = writer_of(bin, bin_keys(bin));
    if (travels_raw(plan_)) {
      p.writer->add_raw([&](uint64_t* out) { return copy_slots(bin, out); });
    } else {
      table().each_of_bin(bin, [&](const uint64_t* slot) { p.writer->add(slot); });
    }
  }
  template <class Over>
  bool write_groups(uint32_t bin, Pending& p, Over over) {
    const uint64_t groups = uint64_t(1) << (p.bits - 6);
    while (p.group < groups) {
      if (p.group % kGroups == kGroups - 1 && over()) return false;
      const uint64_t written = std::exchange(p.written[p.group], ~uint64_t(0));
      const uint64_t prefix = uint64_t(bin) << (p.bits - 6) | p.group++;
      if (written == ~uint64_t(0)) continue;
      table().each_of(prefix, plan_.bin_bits + p.bits - 6, [&](const uint64_t* slot) {
        if (!(written >> (bit_of(p, slot[0]) & 63) & 1)) p.writer->add(slot);
      });
    }
    return true;
  }
  void complete(uint32_t bin, Pending& p) {
    if (p.null_entry) p.writer->add_null(*p.null_entry);
    saved_.push_back({bin, std::move(p.writer)});
    p = Pending();
    --left_;
  }
  // The bin goes: what a mark still wants of it is written now.
  void leaves(uint32_t bin) {
    dirty_.note_bin(bin);
    if (!left_ || !pending_[bin - first()].waits) return;
    Pending& p = open(bin);
    (void)write_groups(bin, p, [] { return false; });
    complete(bin, p);
  }
  // The bin of these bytes has changed, if they were not refused.
  std::string noted(const uint8_t* data, size_t size, std::string why) {
    BinHeader h;
    if (!why.empty() || size < sizeof h) return why;
    std::memcpy(&h, data, sizeof h);
    dirty_.note_bin(h.bin);
    return why;
  }

  std::vector<Pending> pending_;  // by the bin's number in the lane; empty: nothing is saved
  std::vector<SavedBin> saved_;
  uint32_t next_ = 0;  // the bins of the lane before it are written
  uint64_t left_ = 0;  // bins that are not
};

}  // namespace plait
