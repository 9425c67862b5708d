// What a join keeps: records, in two lists for each key, one for each side.
//
// A record is this head and a body: the packed row, and what the operator puts before it. Lists are
// in the order in which the records came. Records and keys lie in the lane's arena and never move.
// One thread at a time: the holder of the lane.
#pragma once

#include <cstdint>

namespace plait {

struct JoinKey;

struct JoinRecord {
  JoinRecord *next, *prev;
  JoinKey* key;  // null: it is in no list any more, only waiting for its time to be forgotten
  int64_t time;  // its event time; of a span its start
  int64_t last;  // it is over when the watermark is above this
  uint64_t place;
  uint32_t size;    // of head and body
  uint8_t side;     // 0 left, 1 right
  uint8_t matched;  // of a left record: whether it has met a right one

  char* body() { return reinterpret_cast<char*>(this + 1); }
  const char* body() const { return reinterpret_cast<const char*>(this + 1); }
  size_t body_size() const { return size - sizeof(JoinRecord); }
};
static_assert(sizeof(JoinRecord) == 56);

struct JoinList {
  JoinRecord *head = nullptr, *tail = nullptr;

  void append(JoinRecord* r) { insert_behind(tail, r); }
  // `at` null: in front.
  void insert_behind(JoinRecord* at, JoinRecord* r) {
    r->prev = at;
    r->next = at ? at->next : head;
    (at ? at->next : head) = r;
    (r->next ? r->next->prev : tail) = r;
  }
  void remove(JoinRecord* r) {
    (r->prev ? r->prev->next : head) = r->next;
    (r->next ? r->next->prev : tail) = r->prev;
  }
};

struct JoinKey {
  uint64_t hash;
  JoinList lists[2];
  uint32_t size;        // of the bytes behind it; 0 where the hash is the key
  uint32_t null;        // 1: a null key, which matches nothing
  uint64_t newest = 0;  // of a span: the last entry of its log (span_log.hpp)

  char* bytes() { return reinterpret_cast<char*>(this + 1); }
  const char* bytes() const { return reinterpret_cast<const char*>(this + 1); }
  bool empty() const { return !lists[0].head && !lists[1].head && newest == 0; }
};
static_assert(sizeof(JoinKey) == 56);

// For DueQueue::take: first the record, then what it names.
struct FetchRecord {
  [[gnu::always_inline]] void operator()(const JoinRecord* r, int step) const {
    if (step == 0) {
      __builtin_prefetch(r, 1);
    } else {
      __builtin_prefetch(r->key, 1);
      __builtin_prefetch(r->next, 1);
    }
  }
};

}  // namespace plait
