// GroupTable: the groups of one pane of time: a dict of keys in the order in which they came.
//
// An open-addressing table of slots {hash, rows seen, [where the key's bytes are], cells...}, rows
// seen 0 = empty, and beside it the slots in the order of their first rows with the places of
// those: a row of a known key costs one look into memory, and a walk needs no sorting. The slot
// behind the last is that of the null of a narrow key. For one thread at a time (the holder of the
// lane); never waits.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "plait/core/zeroed_region.hpp"
#include "plait/groups/group_cells.hpp"

namespace plait {

class GroupTable {
 public:
  // `key_word`: the slot's word that says where the key's bytes are; -1: keys are narrow.
  // `numbered`: number() may be asked. `words`: of a slot, if more than the plan says.
  GroupTable(const GroupPlan& plan, int key_word, bool numbered, unsigned words = 0)
      : plan_(plan),
        key_word_(key_word),
        numbered_(numbered),
        words_(std::max(words, plan.words)),
        word_shift_(std::has_single_bit(words_) ? unsigned(std::countr_zero(words_)) : kNoShift) {
    make(kFirstBits);
  }
  GroupTable(const GroupTable&) = delete;
  GroupTable& operator=(const GroupTable&) = delete;
  ~GroupTable() {
    if (plan_.owns) each([&](uint64_t* slot, uint64_t) { drop_cells(plan_, slot); });
  }

  size_t size() const { return where_.size(); }
  uint64_t* slot(size_t number) const { return at(where_[number]); }
  uint64_t place(size_t number) const { return places_[number]; }
  size_t number(const uint64_t* slot) const { return numbers_[index(slot)]; }
  Key key(const uint64_t* slot) const {
    if (key_word_ < 0) return {slot[0], is_null(slot), {}};
    const char* from = keys_.data() + slot[key_word_];
    uint32_t size;
    std::memcpy(&size, from, 4);
    if (size == kNull) return {slot[0], true, {}};
    return {slot[0], false, {from + 4, size}};
  }
  // Of a narrow key.
  bool is_null(const uint64_t* slot) const { return slot == at(mask_ + 1); }
  size_t byte_size() const {
    size_t n = (mask_ + 2) * words_ * 8 + keys_.capacity() + places_.capacity() * 12 +
               numbers_.capacity() * 4;
    if (plan_.owns) each([&](uint64_t* slot, uint64_t) { n += owned_bytes(plan_, slot); });
    return n;
  }

  // Always inlined: gcc drops calls of functions that only prefetch.
  [[gnu::always_inline]] void prefetch(uint64_t h) const {
    __builtin_prefetch(slots_ + home(h) * words_, 1);
  }
  bool large() const { return (mask_ + 1) * words_ * 8 > kCached; }

  // The slot of a narrow key that is not null, or the empty slot where it belongs.
  template <unsigned kWords>
  [[gnu::always_inline]] uint64_t* find_hash(uint64_t h) const {
    const unsigned words = kWords ? kWords : words_;
    uint64_t i = home(h);
    uint64_t* slot = slots_ + i * words;
    while (slot[0] != h && slot[1] != 0) [[unlikely]] {
      i = (i + 1) & mask_;
      slot = slots_ + i * words;
    }
    return slot;
  }
  uint64_t* find(const Key& key) const {
    if (key_word_ < 0) return key.null ? at(mask_ + 1) : find_hash<0>(key.hash);
    uint64_t i = home(key.hash);
    for (uint64_t* slot = at(i); slot[1]; i = (i + 1) & mask_, slot = at(i)) {
      if (slot[0] == key.hash && same(slot, key)) return slot;
    }
    return at(i);
  }

  // Whether one more key moves the slots.
  bool full() const { return where_.size() >= limit_; }
  // Makes an empty slot the key's; it has no rows yet and must be given one at once. The table must
  // not be full.
  void enter(uint64_t* slot, const Key& key, uint64_t place) {
    slot[0] = key.hash;
    if (key_word_ >= 0) {
      slot[key_word_] = keys_.size();
      const uint32_t size = key.null ? kNull : uint32_t(key.bytes.size());
      keys_.append(reinterpret_cast<const char*>(&size), 4);
      keys_.append(key.bytes);
    }
    if (numbered_) numbers_[index(slot)] = uint32_t(where_.size());
    where_.push_back(uint32_t(index(slot)));
    places_.push_back(place);
  }
  void grow() { rehash(bits_ + 1); }
  // The slot of a key, entered if it was not there: then it has no rows yet. Moves slots.
  uint64_t* obtain(const Key& key, uint64_t place) {
    uint64_t* slot = find(key);
    if (slot[1]) return slot;
    if (full()) {
      grow();
      slot = find(key);
    }
    enter(slot, key, place);
    return slot;
  }

  // Calls visit(slot, place) in order.
  template <class Visit>
  void each(Visit visit) const {
    const size_t n = where_.size();
    for (size_t k = 0; k < n; ++k) {
      if (k + 16 < n) __builtin_prefetch(at(where_[k + 16]), 1);
      visit(at(where_[k]), places_[k]);
    }
  }

  // The same; ask(hash) comes some groups before each is visited.
  template <class Ask, class Visit>
  void each(Ask ask, Visit visit) const {
    const size_t n = where_.size();
    for (size_t k = 0; k < n; ++k) {
      if (k + 32 < n) __builtin_prefetch(at(where_[k + 32]), 1);
      if (k + 16 < n) ask(at(where_[k + 16])[0]);
      visit(at(where_[k]), places_[k]);
    }
  }

  // Drops the groups for which drop(hash) is true; the others keep their order.
  template <class Drop>
  void erase_if(Drop drop) {
    erase_where([&](const uint64_t* slot) { return drop(slot[0]); });
  }
  // The same with drop(slot).
  template <class Drop>
  void erase_where(Drop drop) {
    GroupTable kept(plan_, key_word_, numbered_);
    each([&](uint64_t* slot, uint64_t place) {
      if (drop(slot)) {
        drop_cells(plan_, slot);
      } else {
        kept.take(key(slot), slot, place);
      }
    });
    where_.clear();
    swap(kept);
  }
  // Moves a group of another table, whose slot is left without rows and cells to drop.
  void take(const Key& key, uint64_t* from, uint64_t place) {
    uint64_t* to = obtain(key, place);
    const uint64_t key_at = key_word_ < 0 ? 0 : to[key_word_];
    std::memcpy(to + 1, from + 1, (plan_.used_words - 1) * 8);
    if (key_word_ >= 0) to[key_word_] = key_at;
    std::memset(from + plan_.first_cell, 0, (plan_.used_words - plan_.first_cell) * 8);
  }
  // No groups; the memory stays for as many as there were.
  void clear() {
    const size_t used = where_.size();
    if (plan_.owns) each([&](uint64_t* slot, uint64_t) { drop_cells(plan_, slot); });
    if (used * 16 < mask_ && bits_ > kFirstBits + 2) {
      make(bits_ - 1);
    } else if (used * 4 < mask_) {
      each([&](uint64_t* slot, uint64_t) { std::memset(slot, 0, words_ * 8); });
    } else {
      std::memset(slots_, 0, (mask_ + 2) * words_ * 8);
    }
    where_.clear();
    places_.clear();
    keys_.clear();
  }

 private:
  static constexpr uint32_t kNull = 0xFFFFFFFF;
  static constexpr unsigned kFirstBits = 3, kNoShift = 64;
  static constexpr size_t kCached = size_t(128) << 10;

  uint64_t home(uint64_t h) const {
    // The bits that all keys of a lane or bin share must not decide.
    return ((h ^ h >> 32) * 0xD6E8FEB86659FD93) >> shift_;
  }
  uint64_t* at(uint64_t i) const { return slots_ + i * words_; }
  uint64_t index(const uint64_t* slot) const {
    const auto words = uint64_t(slot - slots_);
    return word_shift_ == kNoShift ? words / words_ : words >> word_shift_;  // divisions are slow
  }
  bool same(const uint64_t* slot, const Key& key) const {
    const Key mine = this->key(slot);
    return mine.null == key.null && mine.bytes == key.bytes;
  }
  void make(unsigned bits) {
    bits_ = bits;
    shift_ = 64 - bits;
    mask_ = (uint64_t(1) << bits) - 1;
    limit_ = (mask_ + 1) * 9 / 16;
    if (mask_ >= UINT32_MAX) throw std::length_error("too many keys in one window of a lane");
    memory_ = ZeroedRegion((mask_ + 2) * words_ * 8);
    slots_ = memory_.data();
    if (numbered_) numbers_.assign(mask_ + 2, 0);
  }
  void rehash(unsigned bits) {
    const ZeroedRegion old = std::move(memory_);
    const uint64_t null_at = mask_ + 1;
    make(bits);
    for (size_t k = 0; k < where_.size(); ++k) {
      const uint64_t* from = old.data() + uint64_t(where_[k]) * words_;
      uint64_t i = mask_ + 1;
      if (where_[k] != null_at) {
        for (i = home(from[0]); at(i)[1];) i = (i + 1) & mask_;
      }
      std::memcpy(at(i), from, words_ * 8);
      where_[k] = uint32_t(i);
      if (numbered_) numbers_[i] = uint32_t(k);
    }
  }
  void swap(GroupTable& o) {
    std::swap(bits_, o.bits_);
    std::swap(shift_, o.shift_);
    std::swap(mask_, o.mask_);
    std::swap(limit_, o.limit_);
    std::swap(memory_, o.memory_);
    std::swap(slots_, o.slots_);
    where_.swap(o.where_);
    places_.swap(o.places_);
    numbers_.swap(o.numbers_);
    keys_.swap(o.keys_);
  }

  const GroupPlan& plan_;
  const int key_word_;
  const bool numbered_;
  const unsigned words_, word_shift_;
  unsigned bits_ = 0, shift_ = 0;
  uint64_t mask_ = 0, limit_ = 0;
  ZeroedRegion memory_;
  uint64_t* slots_ = nullptr;
  std::vector<uint32_t> where_;  // slots, in the order of their first rows
  std::vector<uint64_t> places_;
  std::vector<uint32_t> numbers_;  // by slot: its position in `where_`
  std::string keys_;
};

}  // namespace plait
