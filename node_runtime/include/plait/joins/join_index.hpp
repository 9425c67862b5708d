// JoinIndex: the keys of one lane by hash, and KeyReader: the key of a row.
//
// Open addressing over pairs of hash and address; a key of one fixed-width column is its hash, any
// other is known by its bytes. The null key of a fixed-width column is never in the index: its hash
// may be that of a number. One thread at a time: the holder of the lane; never waits.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "plait/columns/key_hash.hpp"
#include "plait/core/zeroed_region.hpp"
#include "plait/joins/join_record.hpp"
#include "plait/time/lane_operator.hpp"

namespace plait {

struct KeyView {
  uint64_t hash = 0;
  const char* data = nullptr;
  uint32_t size = 0;
  bool null = false;
};

class KeyReader {
 public:
  explicit KeyReader(const TimedSpec& spec) : columns_(spec.key_columns) {
    const size_t n = columns_.size();
    text_ = n == 1 && is_varlen(spec.types[size_t(columns_[0])]);
    wide_ = n > 1 || text_;
    if (n == 1) type_ = spec.types[size_t(columns_[0])];
    bound_.resize(n);
  }
  // Whether a key is more than its hash.
  bool wide() const { return wide_; }
  // Whether a key that came from elsewhere has the hash it should have.
  bool right_hash(const KeyView& v) const {
    if (wide_ && !text_) return v.hash == xxh64(v.data, v.size, 0);
    if (v.null) return v.size == 0 && columns_.size() == 1 && v.hash == null_hash(type_);
    return text_ ? v.hash == hash_bytes(v.data, v.size, type_) : v.size == 0;
  }
  void bind(const Batch& batch) {
    nulls_ = false;
    for (size_t i = 0; i < columns_.size(); ++i) {
      bound_[i] = &batch.columns[size_t(columns_[i])];
      nulls_ = nulls_ || bound_[i]->validity;
    }
  }
  // Valid until the next one is read.
  [[gnu::always_inline]] KeyView read(int64_t row, uint64_t hash) {
    if (!wide_ && !nulls_) return {hash, nullptr, 0, false};
    return read_slowly(row, hash);
  }

 private:
  KeyView read_slowly(int64_t row, uint64_t hash) {
    KeyView v{hash, nullptr, 0, false};
    for (const Column* c : bound_) v.null = v.null || !c->valid(row);
    if (!wide_ || (text_ && v.null)) return v;
    if (text_) {
      v.data = bound_[0]->bytes(row);
      v.size = uint32_t(bound_[0]->size(row));
    } else {
      bytes_.clear();
      encode_key(bound_, row, bytes_);
      v.data = reinterpret_cast<const char*>(bytes_.data());
      v.size = uint32_t(bytes_.size());
    }
    return v;
  }

  std::vector<int> columns_;
  std::vector<const Column*> bound_;
  std::vector<uint8_t> bytes_;
  Type type_ = Type::Int64;  // of the only column
  bool wide_ = false, text_ = false, nulls_ = false;
};

class JoinIndex {
 public:
  explicit JoinIndex(bool wide) : wide_(wide) { settle(kFirstBits); }

  [[gnu::always_inline]] void prefetch(uint64_t hash) const {
    __builtin_prefetch(&slots_[home(hash)], 1);
  }
  // Of a hash whose slot has been fetched: the key, if it is where it is at home.
  [[gnu::always_inline]] void prefetch_key(uint64_t hash) const {
    const IndexSlot& s = slots_[home(hash)];
    if (s.hash == hash && s.key) __builtin_prefetch(s.key, 1);
  }
  [[gnu::always_inline]] JoinKey* peek(uint64_t hash) const {
    const IndexSlot& s = slots_[home(hash)];
    return s.hash == hash ? s.key : nullptr;
  }
  [[gnu::always_inline]] JoinKey* find(const KeyView& v) const {
    for (uint64_t i = home(v.hash);; i = (i + 1) & mask_) {
      const IndexSlot& s = slots_[i];
      if (!s.key) return nullptr;
      if (s.hash == v.hash && (!wide_ || same(*s.key, v))) return s.key;
    }
  }
  // A key that is not in it.
  void insert(JoinKey* key) {
    if (++used_ * 2 > mask_) grow();
    place(key);
  }
  void erase(const JoinKey* key) {
    uint64_t i = home(key->hash);
    while (slots_[i].key != key) i = (i + 1) & mask_;
    --used_;
    // What follows in the run moves up where that brings it nearer to its home.
    for (uint64_t j = i;;) {
      j = (j + 1) & mask_;
      if (!slots_[j].key) break;
      if (((j - home(slots_[j].hash)) & mask_) < ((j - i) & mask_)) continue;
      slots_[i] = slots_[j];
      i = j;
    }
    slots_[i] = {0, nullptr};
  }
  // visit(key) may not change the index.
  template <class Visit>
  void each(Visit visit) const {
    for (uint64_t i = 0; i <= mask_; ++i) {
      if (slots_[i].key) visit(slots_[i].key);
    }
  }
  void clear() {
    used_ = 0;
    settle(kFirstBits);
  }
  size_t byte_size() const { return memory_.bytes(); }

 private:
  struct IndexSlot {
    uint64_t hash;
    JoinKey* key;
  };
  static constexpr unsigned kFirstBits = 6;

  // Not the hash's own top bits: those are the same in all keys of a bin, and a node may hold few.
  uint64_t home(uint64_t h) const { return ((h ^ (h >> 32)) * 0x9FB21C651E98DF25) >> shift_; }
  static bool same(const JoinKey& k, const KeyView& v) {
    return k.size == v.size && bool(k.null) == v.null &&
           (v.size == 0 || std::memcmp(k.bytes(), v.data, v.size) == 0);
  }
  void settle(unsigned bits) {
    memory_ = ZeroedRegion(sizeof(IndexSlot) << bits);
    slots_ = reinterpret_cast<IndexSlot*>(memory_.data());
    mask_ = (uint64_t(1) << bits) - 1;
    shift_ = 64 - bits;
  }
  void place(JoinKey* key) {
    uint64_t i = home(key->hash);
    while (slots_[i].key) i = (i + 1) & mask_;
    slots_[i] = {key->hash, key};
  }
  void grow() {
    ZeroedRegion old;
    std::swap(old, memory_);
    const auto* slot = reinterpret_cast<const IndexSlot*>(old.data());
    const auto* end = slot + mask_ + 1;
    settle(64 - shift_ + 1);
    for (; slot != end; ++slot) {
      if (slot->key) place(slot->key);
    }
  }

  const bool wide_;
  ZeroedRegion memory_;
  IndexSlot* slots_ = nullptr;
  uint64_t mask_ = 0, used_ = 0;
  unsigned shift_ = 0;
};

}  // namespace plait
