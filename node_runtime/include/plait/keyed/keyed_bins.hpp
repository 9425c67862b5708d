// The keys of one lane by bin: what a lane's state is between batches, and how it moves.
//
// A bin goes out as bytes (copy, take) and comes in as bytes (put), all or nothing. To move it
// while its records flow: track it and copy it, put the copy elsewhere, and at the switch take the
// difference here and apply it there; until then the copy is not yet state. prepare() makes memory
// ready for bins to come, and another thread may populate untouched(). All calls belong to the
// holder of the lane's lock, one at a time; nothing here waits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "plait/keyed/bin_codec.hpp"
#include "plait/keyed/change_tracker.hpp"

namespace plait {

class KeyedBins {
 public:
  using Piece = SegmentMemory::Piece;

  // The plan must outlive the state.
  KeyedBins(const KeyedPlan& plan, unsigned lane)
      : plan_(plan),
        lane_(lane),
        table_(plan.words, plan.lane_bits, plan.segment_bits, plan.bin_bits),
        null_slot_(plan.words, 0),
        tracker_(plan.bin_bits, plan.lane_bits),
        entry_bytes_(plan.used_words * 8 + (plan.wide ? 16 : 0) + 16 * plan.text_words.size()) {}
  KeyedBins(const KeyedBins&) = delete;
  KeyedBins& operator=(const KeyedBins&) = delete;
  ~KeyedBins() {
    if (plan_.text_words.empty()) return;
    table().each([this](uint64_t* slot) { drop_texts(slot); });
    drop_texts(null_slot_.data());
  }

  uint64_t key_count() const { return table().size() + (null_slot_[1] != 0); }

  // Bytes of tables, keys and texts. Walks the keys when there are texts.
  size_t byte_size() {
    size_t n = table_.byte_size();
    if (plan_.text_words.empty()) return n;
    table().each([&](uint64_t* slot) { n += text_bytes(slot); });
    return n + text_bytes(null_slot_.data());
  }

  uint64_t bin_keys(uint32_t bin) const { return table().bin_keys(bin) + null_in(bin); }
  // About what the bin weighs on the way. Keys and texts of varying length are guessed from the
  // bins that came or went last.
  uint64_t bin_bytes(uint32_t bin) const {
    return sizeof(BinHeader) + bin_keys(bin) * entry_bytes_;
  }
  bool empty(uint32_t bin) const { return bin_keys(bin) == 0; }

  // Calls visit(slot, whether it is the null of a narrow key).
  template <class Visit>
  void each_slot(Visit visit) {
    table().each([&](uint64_t* slot) { visit(slot, false); });
    if (null_slot_[1]) visit(null_slot_.data(), true);
  }

  // The bin as bytes. Of a tracked bin it is the base of the difference to come.
  Bytes copy_bin(uint32_t bin) {
    BinWriter writer(plan_, BinKind::Whole, bin, tracker_.number(bin), bin_keys(bin));
    if (travels_raw(plan_)) {
      writer.add_raw([&](uint64_t* out) { return copy_slots(bin, out); });
    } else {
      table().each_of_bin(bin, [&](uint64_t* slot) { writer.add(slot); });
    }
    if (null_in(bin)) writer.add_null(null_slot_.data());
    return sealed(writer);
  }
  Bytes take_bin(uint32_t bin) {
    tracker_.stop(bin);
    Bytes bytes = copy_bin(bin);
    discard_bin(bin);
    return bytes;
  }

  // Empty: the bin is in. Otherwise the reason, and nothing was changed.
  [[nodiscard]] std::string put_bin(const uint8_t* data, size_t size) {
    BinHeader h;
    std::string reason = check(BinKind::Whole, data, size, h);
    if (!reason.empty()) return reason;
    if (plan_.put_bits != plan_.bin_bits) return put_others(h, data + sizeof h, data + size);
    if (!empty(h.bin)) return "bin " + std::to_string(h.bin) + " is here already";
    if (tracked(h.bin)) return "bin " + std::to_string(h.bin) + " is tracked here";
    const bool good = travels_raw(plan_) ? put_slots(h, data + sizeof h)
                                         : put_entries(h, data + sizeof h, data + size);
    if (!good) {
      erase_bin(h.bin);
      return "damaged: a key is there twice";
    }
    bases_.erase(h.bin);
    if (h.base) bases_[h.bin] = h.base;
    learn(h.count, h.length);
    return "";
  }
  // Whether the bin came as a copy whose difference has not come yet.
  bool waits_for_difference(uint32_t bin) const { return bases_.contains(bin); }

  // From now on the keys of the bin that change are remembered; what was remembered is forgotten.
  void track(uint32_t bin) { tracker_.start(bin, table().bin_slot_bits(bin)); }
  void untrack(uint32_t bin) { tracker_.stop(bin); }
  bool tracked(uint32_t bin) const { return tracker_.number(bin) != 0; }

  // The keys that changed since track(), and some of their neighbours. Tracking ends; the keys stay
  // until discard_bin(), which may take longer than this when little has changed.
  Bytes copy_difference(uint32_t bin) {
    if (!tracked(bin)) throw std::logic_error("bin " + std::to_string(bin) + " is not tracked");
    BinWriter writer(plan_, BinKind::Difference, bin, tracker_.number(bin), 64);
    const ChangeTracker::Changes changes = tracker_.changes(bin);
    changes.each([&](uint64_t prefix, unsigned bits) { table().prefetch_prefix(prefix, bits); },
                 [&](uint64_t prefix, unsigned bits) {
                   table().each_of(prefix, bits, [&](uint64_t* slot) {
                     if (changes.has(slot[0])) writer.add(slot);
                   });
                 });
    if (null_in(bin) && changes.has(null_slot_[0])) writer.add_null(null_slot_.data());
    Bytes bytes = sealed(writer);
    tracker_.stop(bin);
    return bytes;
  }
  Bytes take_difference(uint32_t bin) {
    Bytes bytes = copy_difference(bin);
    discard_bin(bin);
    return bytes;
  }

  // Empty: the bin is what it was where the difference was taken. Otherwise the reason, and nothing
  // was changed.
  [[nodiscard]] std::string apply_difference(const uint8_t* data, size_t size) {
    BinHeader h;
    std::string reason = check(BinKind::Difference, data, size, h);
    if (!reason.empty()) return reason;
    const auto base = bases_.find(h.bin);
    if (base == bases_.end()) return "bin " + std::to_string(h.bin) + ": its copy is not here";
    if (base->second != h.base) {
      return "bin " + std::to_string(h.bin) + ": the difference is of another copy";
    }
    bases_.erase(base);
    if (h.count > 2 * bin_keys(h.bin)) table().reserve(h.bin, h.count);
    BinReader reader(plan_, data + sizeof h, data + size);
    BinEntry e;
    for (uint64_t i = 0; i < h.count && reader.next(e); ++i) {
      if (travels_raw(plan_) && i + kKeysAhead < h.count) {  // else the distance is not known
        uint64_t ahead;
        std::memcpy(&ahead, data + sizeof h + (i + kKeysAhead) * plan_.used_words * 8, 8);
        table().prefetch<0>(ahead);
      }
      uint64_t* slot = slot_of(e, h.has_null && i + 1 == h.count);
      drop_texts(slot);
      if (e.rows_seen == 0) {
        remove(slot);
      } else {
        fill(slot, e);
      }
    }
    return "";
  }

  // Forgets a bin: its keys, its changes, and that it was a copy.
  void discard_bin(uint32_t bin) {
    tracker_.stop(bin);
    bases_.erase(bin);
    erase_bin(bin);
  }

  // Makes memory ready for these bins of the lane with so many keys in all. No bins: gives back
  // what was made ready and is not used.
  void prepare(const std::vector<uint32_t>& bins, uint64_t keys) {
    table().prepare(bins, bins.empty() ? 0 : (keys + bins.size() - 1) / bins.size());
  }
  // The pieces of at most 2 MiB that prepare() has made ready since the last call: any thread may
  // ZeroedRegion::populate() them, at any time.
  std::vector<Piece> untouched() { return table().untouched(); }

 protected:
  BinTable& table() { return table_.table(); }
  const BinTable& table() const { return table_.table(); }

  const KeyedPlan& plan_;
  const unsigned lane_;
  WideTable table_;                  // narrow plans use only its slots
  std::vector<uint64_t> null_slot_;  // the null key of a narrow table; rows seen 0 = none
  ChangeTracker tracker_;

  bool null_in(uint32_t bin) const {
    return null_slot_[1] != 0 && top_bits(null_slot_[0], plan_.bin_bits) == bin;
  }
  uint64_t* copy_slots(uint32_t bin, uint64_t* out) {
    const unsigned words = plan_.words, used = plan_.used_words;
    if (used == 2) return table().copy_bin<2, 2>(bin, used, out);
    if (used == 3) return table().copy_bin<4, 3>(bin, used, out);
    if (words == 4) return table().copy_bin<4, 4>(bin, used, out);
    return table().copy_bin<0, 0>(bin, used, out);
  }

 private:
  static constexpr uint64_t kKeysAhead = 8;

  std::string check(BinKind kind, const uint8_t* data, size_t size, BinHeader& h) const {
    std::string reason = check_bin(plan_, kind, data, size, h);
    if (!reason.empty() || h.bin >> (plan_.put_bits - plan_.lane_bits) == lane_) return reason;
    return "bin " + std::to_string(h.bin) + " is not of lane " + std::to_string(lane_);
  }
  void learn(uint64_t count, uint64_t length) {
    if (count) entry_bytes_ = length / count;
  }
  Bytes sealed(BinWriter& writer) {
    const uint64_t count = writer.count();
    Bytes bytes = writer.finish();
    learn(count, uint64_t(bytes.size) - sizeof(BinHeader));
    return bytes;
  }

  bool put_slots(const BinHeader& h, const uint8_t* from) {
    const unsigned words = plan_.words, used = plan_.used_words;
    const uint64_t n = h.count - h.has_null;
    if (h.has_null) std::memcpy(null_slot_.data(), from + n * used * 8, used * 8);
    if (used == 2) return table().put_bin<2, 2>(h.bin, used, from, n);
    if (used == 3) return table().put_bin<4, 3>(h.bin, used, from, n);
    if (words == 4) return table().put_bin<4, 4>(h.bin, used, from, n);
    return table().put_bin<0, 0>(h.bin, used, from, n);
  }
  // Takes in the keys of a bin that is none of the plan's: part of one, or several.
  std::string put_others(const BinHeader& h, const uint8_t* at, const uint8_t* end) {
    return read_entries(h, at, end) ? "" : "damaged: a key is there twice";
  }
  bool put_entries(const BinHeader& h, const uint8_t* at, const uint8_t* end) {
    table().reserve(h.bin, h.count);
    return read_entries(h, at, end);
  }
  bool read_entries(const BinHeader& h, const uint8_t* at, const uint8_t* end) {
    BinReader reader(plan_, at, end);
    BinEntry e;
    for (uint64_t i = 0; i < h.count && reader.next(e); ++i) {
      uint64_t* slot = slot_of(e, h.has_null && i + 1 == h.count);
      if (slot[1] != 0) return false;
      fill(slot, e);
    }
    return true;
  }

  uint64_t* slot_of(const BinEntry& e, bool null_entry) {
    if (null_entry) return null_slot_.data();
    return plan_.wide ? table_.find(e.hash, e.key, e.key_size) : table().find<0>(e.hash);
  }
  // The slot's texts must have been dropped.
  void fill(uint64_t* slot, const BinEntry& e) {
    const bool fresh = slot[1] == 0 && slot != null_slot_.data();
    slot[0] = e.hash;
    slot[1] = e.rows_seen;
    BinReader::fill(plan_, e, slot);
    if (tracker_.any()) tracker_.mark(&e.hash, 1);
    if (fresh) table().inserted(e.hash);
  }
  void remove(uint64_t* slot) {
    if (slot == null_slot_.data()) {
      std::fill(null_slot_.begin(), null_slot_.end(), 0);
    } else if (plan_.wide) {
      table_.remove(slot);
    } else if (slot[1] != 0) {
      table().remove(slot);
    }
  }

  void drop_texts(uint64_t* slot) {
    for (int w : plan_.text_words) Blob::drop(slot[w]);
  }
  size_t text_bytes(const uint64_t* slot) const {
    size_t n = 0;
    for (int w : plan_.text_words) n += Blob::space(slot[w]);
    return n;
  }
  void erase_bin(uint32_t bin) {
    if (!plan_.text_words.empty()) {
      table().each_of_bin(bin, [this](uint64_t* slot) { drop_texts(slot); });
    }
    if (plan_.wide) {
      table_.erase_bin(bin, plan_.bin_bits);
    } else {
      table().erase_bin(bin);
    }
    if (null_in(bin)) {
      drop_texts(null_slot_.data());
      std::fill(null_slot_.begin(), null_slot_.end(), 0);
    }
  }

  std::unordered_map<uint32_t, uint64_t> bases_;  // of copies: the number of their tracking
  uint64_t entry_bytes_;                          // of a key on the way, about
};

}  // namespace plait
