// SpanLog: the right records that a span keeps for left ones that may still come, one after the
// other.
//
// Most of them are never looked at again, so a record costs one append: it names the one before it
// of its key, and the key names its newest. Chunks go from the front when the watermark has passed
// all of their records, or all but a few, which the owner then keeps elsewhere: all that is kept
// elsewhere is older than what is here. One thread at a time: the holder of the lane; never waits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "plait/joins/join_record.hpp"
#include "plait/joins/join_times.hpp"

namespace plait {

class SpanLog {
 public:
  struct LogEntry {
    JoinKey* key;
    uint64_t before;  // the entry before it of its key; 0: none
    int64_t time;
    uint64_t size;  // of head and body

    char* body() { return reinterpret_cast<char*>(this + 1); }
    const char* body() const { return reinterpret_cast<const char*>(this + 1); }
    size_t body_size() const { return size - sizeof(LogEntry); }
  };
  static constexpr size_t kChunk = 65536, kLargestBody = 8192;

  // `wait`: how long the watermark may be above a record's time before it is over.
  explicit SpanLog(int64_t wait) : wait_(wait) {}

  // Room for a body of at most kLargestBody bytes.
  [[gnu::always_inline]] char* append(JoinKey* key, int64_t time, size_t body) {
    const size_t size = (sizeof(LogEntry) + body + 7) / 8 * 8;
    if (chunks_.empty() || chunks_.back().used + size > kChunk) [[unlikely]]
      add_chunk();
    Chunk& c = chunks_.back();
    const uint64_t ref = ((first_ + chunks_.size() - 1) * kChunk) + c.used;
    auto* e = reinterpret_cast<LogEntry*>(c.bytes.get() + c.used);
    *e = {key, key->newest, time, sizeof(LogEntry) + body};
    key->newest = ref;
    if ((c.used + size) / kSampled != c.used / kSampled) c.samples[c.sampled++] = time;
    c.used += uint32_t(size);
    c.latest = std::max(c.latest, time);
    return e->body();
  }

  // Calls visit(entry) for each entry of a key that is still here, in the order they came.
  template <class Visit>
  void each_of(const JoinKey& key, Visit visit) {
    found_.clear();
    for (uint64_t ref = key.newest; ref >= first_ * kChunk;) {
      const LogEntry* e = at(ref);
      found_.push_back(e);
      ref = e->before;
    }
    while (!found_.empty()) {
      visit(*found_.back());
      found_.pop_back();
    }
  }

  bool over(const LogEntry& e, int64_t watermark) const {
    return add_times(e.time, wait_) < watermark;
  }

  // Lets chunks go as far as the watermark allows. keep(entry): one that is not over leaves this
  // log; last(key): the key has no entry here any more.
  template <class Keep, class Last>
  void release(int64_t watermark, Keep keep, Last last) {
    while (!chunks_.empty() && mostly_over(chunks_.front(), watermark)) {
      drop_front(watermark, keep, last);
    }
  }
  template <class Keep, class Last>
  void release_all(Keep keep, Last last) {
    while (!chunks_.empty()) drop_front(kNoTime, keep, last);
  }
  size_t byte_size() const { return chunks_.size() * kChunk; }

 private:
  static constexpr uint32_t kSampled = kChunk / 16;
  static constexpr uint32_t kAhead = 8;

  struct Chunk {
    std::unique_ptr<char[]> bytes;
    uint32_t used = 0, sampled = 0;
    int64_t latest = kNoTime;
    int64_t samples[17] = {};
  };

  const LogEntry* at(uint64_t ref) const {
    return reinterpret_cast<const LogEntry*>(chunks_[ref / kChunk - first_].bytes.get() +
                                             ref % kChunk);
  }
  void add_chunk() {
    Chunk c;
    if (spare_.empty()) {
      c.bytes = std::make_unique_for_overwrite<char[]>(kChunk);
    } else {
      c.bytes = std::move(spare_.back());
      spare_.pop_back();
    }
    chunks_.push_back(std::move(c));
  }
  // A few records of the future shall not hold up all that came after them.
  bool mostly_over(const Chunk& c, int64_t watermark) const {
    if (add_times(c.latest, wait_) < watermark) return true;
    if (chunks_.size() == 1) return false;
    uint32_t there = 0;
    for (uint32_t i = 0; i < c.sampled; ++i) there += add_times(c.samples[i], wait_) >= watermark;
    return there <= c.sampled / 16;
  }
  template <class Keep, class Last>
  void drop_front(int64_t watermark, Keep keep, Last last) {
    Chunk c = std::move(chunks_.front());
    uint64_t ref = first_ * kChunk;
    char* from = c.bytes.get();
    for (uint32_t at = 0, next = 0, ahead = 0; at < c.used; at = next) {
      auto* e = reinterpret_cast<LogEntry*>(from + at);
      next = at + uint32_t((e->size + 7) / 8 * 8);
      // Entries have about one size: the key of one some entries on.
      ahead = std::max(ahead, next);
      for (uint32_t n = 0; n < 2 && ahead < c.used && ahead < at + kAhead * e->size; ++n) {
        const auto* f = reinterpret_cast<const LogEntry*>(from + ahead);
        __builtin_prefetch(&f->key->newest, 1);
        ahead += uint32_t((f->size + 7) / 8 * 8);
      }
      if (!over(*e, watermark)) keep(*e);
      if (e->key->newest == ref + at) {
        e->key->newest = 0;
        last(e->key);
      }
    }
    chunks_.pop_front();
    ++first_;
    if (spare_.size() < 64) spare_.push_back(std::move(c.bytes));
  }

  const int64_t wait_;
  std::deque<Chunk> chunks_;
  uint64_t first_ = 1;  // the number of the first chunk; no entry is at 0
  std::vector<std::unique_ptr<char[]>> spare_;
  std::vector<const LogEntry*> found_;
};

}  // namespace plait
