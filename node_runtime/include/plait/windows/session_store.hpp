// SessionStore: the open sessions of one lane: for each key a list of them in the order of time.
//
// A session is a slot {hash, rows, key's bytes, start, end, place, next, serial, when it is due,
// cells...} in memory that does not move; an open-addressing index finds the first session of a
// key. Keys without sessions leave the index at once. For one thread at a time (the holder of the
// lane); never waits.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "plait/core/dispatch.hpp"
#include "plait/groups/group_cells.hpp"

namespace plait {

class SessionStore {
 public:
  // Words of a slot.
  enum Word : unsigned { kHash, kRows, kKey, kStart, kEnd, kPlace, kNext, kSerial, kDue, kHeader };
  // Bits of the upper half of kNext; the lower half is the number of the next session, and 1.
  static constexpr uint64_t kNullKey = uint64_t(1) << 32, kGiven = uint64_t(1) << 33,
                            kEarly = uint64_t(1) << 34;
  static constexpr uint32_t kNone = 0xFFFFFFFF;

  explicit SessionStore(const GroupPlan& plan)
      : plan_(plan), index_(8), bin_sessions_(size_t(1) << (plan.bin_bits - plan.lane_bits), 0) {}
  SessionStore(const SessionStore&) = delete;
  SessionStore& operator=(const SessionStore&) = delete;
  ~SessionStore() {
    for (uint32_t id = 0; id < made_; ++id) {
      if (slot(id)[kSerial]) clear(slot(id));
    }
  }

  uint64_t* slot(uint32_t id) const {
    return chunks_[id / kChunk].get() + size_t(id % kChunk) * plan_.words;
  }
  static int64_t start(const uint64_t* s) { return int64_t(s[kStart]); }
  static int64_t end(const uint64_t* s) { return int64_t(s[kEnd]); }
  uint32_t next(const uint64_t* s) const { return uint32_t(s[kNext]) - 1; }
  // Whether the session is still there.
  bool alive(uint32_t id, uint64_t serial) const { return slot(id)[kSerial] == serial; }
  Key key(const uint64_t* s) const {
    Key key{s[kHash], (s[kNext] & kNullKey) != 0, {}};
    if (Blob* blob = Blob::of(s[kKey])) key.bytes = {blob->bytes(), blob->size};
    return key;
  }

  [[gnu::always_inline]] void prefetch(uint64_t h) const { __builtin_prefetch(&index_[home(h)]); }
  // Some time after prefetch().
  [[gnu::always_inline]] void prefetch_slot(uint64_t h) const {
    if (const IndexEntry& e = index_[home(h)]; e.id) {
      const uint64_t* s = slot(e.id - 1);
      __builtin_prefetch(s, 1);
      __builtin_prefetch(s + 8, 1);
    }
  }
  // The first session of a key, or kNone.
  uint32_t first(const Key& key) const {
    const IndexEntry& e = index_[find(key)];
    return e.id - 1;
  }

  // A new session without rows, in its place in the key's list.
  uint32_t insert(const Key& key, int64_t start, int64_t end, uint64_t place) {
    if ((keys_ + 1) * 2 > index_.size()) grow();
    const uint32_t id = make();
    uint64_t* s = slot(id);
    s[kHash] = key.hash;
    if (!key.bytes.empty()) Blob::assign(s[kKey], key.bytes.data(), uint32_t(key.bytes.size()));
    s[kNext] = key.null ? kNullKey : 0;
    s[kStart] = uint64_t(start);
    s[kEnd] = uint64_t(end);
    s[kPlace] = place;
    s[kDue] = uint64_t(INT64_MAX);
    s[kSerial] = ++serial_;
    ++bin_sessions_[plan_.bin_in_lane(plan_.bin(key.hash))];
    IndexEntry& e = index_[find(key)];
    if (e.id == 0) {
      ++keys_;
      e = {id + 1, tag(key.hash)};
    } else if (SessionStore::start(slot(e.id - 1)) > start) {
      link(s, e.id - 1);
      e.id = id + 1;
    } else {
      uint32_t at = e.id - 1;
      while (next(slot(at)) != kNone && SessionStore::start(slot(next(slot(at)))) < start) {
        at = next(slot(at));
      }
      link(s, next(slot(at)));
      link(slot(at), id);
    }
    return id;
  }

  void erase(uint32_t id) {
    uint64_t* s = slot(id);
    const size_t i = find(key(s));
    --bin_sessions_[plan_.bin_in_lane(plan_.bin(s[kHash]))];
    if (index_[i].id - 1 == id) {
      if (next(s) != kNone) {
        index_[i].id = next(s) + 1;
      } else {
        forget(i);
      }
    } else {
      uint32_t at = index_[i].id - 1;
      while (next(slot(at)) != id) at = next(slot(at));
      link(slot(at), next(s));
    }
    clear(s);
    free_.push_back(id);
  }

  // Calls visit(id) for every session, those of a key in the order of time.
  template <class Visit>
  void each(Visit visit) const {
    for (const IndexEntry& e : index_) {
      for (uint32_t id = e.id - 1; id != kNone; id = next(slot(id))) visit(id);
    }
  }
  uint64_t in_bin(uint32_t bin) const { return bin_sessions_[plan_.bin_in_lane(bin)]; }
  size_t byte_size() const {
    size_t n = chunks_.size() * kChunk * plan_.words * 8 + index_.size() * sizeof(IndexEntry);
    each([&](uint32_t id) { n += Blob::space(slot(id)[kKey]) + owned_bytes(plan_, slot(id)); });
    return n;
  }

 private:
  static constexpr uint32_t kChunk = 1024;
  struct IndexEntry {
    uint32_t id = 0;   // and 1; 0: free
    uint32_t tag = 0;  // of the hash, to spare a look at the session
  };

  static uint64_t mixed(uint64_t h) { return (h ^ h >> 32) * 0xD6E8FEB86659FD93; }
  static uint32_t tag(uint64_t h) { return uint32_t(h); }
  size_t home(uint64_t h) const { return size_t(mixed(h) >> 32) & (index_.size() - 1); }
  void link(uint64_t* s, uint32_t next) {
    s[kNext] = (s[kNext] & ~uint64_t(0xFFFFFFFF)) | uint32_t(next + 1);
  }
  bool is(const uint64_t* s, const Key& key) const {
    if (s[kHash] != key.hash) return false;
    const Key mine = this->key(s);
    return mine.null == key.null && mine.bytes == key.bytes;
  }
  PLAIT_INLINE size_t find(const Key& key) const {
    size_t i = home(key.hash);
    for (; index_[i].id; i = (i + 1) & (index_.size() - 1)) {
      if (index_[i].tag == tag(key.hash) && is(slot(index_[i].id - 1), key)) break;
    }
    return i;
  }
  // Frees an entry; those behind it that would not be found any more move up.
  void forget(size_t i) {
    const size_t mask = index_.size() - 1;
    for (size_t k = (i + 1) & mask; index_[k].id; k = (k + 1) & mask) {
      const size_t from = home(slot(index_[k].id - 1)[kHash]);
      if (((k - from) & mask) < ((k - i) & mask)) continue;
      index_[i] = index_[k];
      i = k;
    }
    index_[i] = IndexEntry();
    --keys_;
  }
  void grow() {
    std::vector<IndexEntry> old(index_.size() * 2);
    old.swap(index_);
    for (const IndexEntry& e : old) {
      if (!e.id) continue;
      size_t i = home(slot(e.id - 1)[kHash]);
      while (index_[i].id) i = (i + 1) & (index_.size() - 1);
      index_[i] = e;
    }
  }
  uint32_t make() {
    if (!free_.empty()) {
      const uint32_t id = free_.back();
      free_.pop_back();
      return id;
    }
    if (made_ >= kNone - 1) throw std::length_error("too many sessions in one lane");
    if (made_ % kChunk == 0) {
      chunks_.push_back(std::make_unique<uint64_t[]>(size_t(kChunk) * plan_.words));
    }
    return made_++;
  }
  void clear(uint64_t* s) {
    drop_cells(plan_, s);
    Blob::drop(s[kKey]);
    std::memset(s, 0, plan_.words * 8);
  }

  const GroupPlan& plan_;
  std::vector<std::unique_ptr<uint64_t[]>> chunks_;
  std::vector<uint32_t> free_;
  uint32_t made_ = 0;
  uint64_t serial_ = 0;
  std::vector<IndexEntry> index_;
  size_t keys_ = 0;
  std::vector<uint64_t> bin_sessions_;  // by the bin's number in the lane
};

}  // namespace plait
