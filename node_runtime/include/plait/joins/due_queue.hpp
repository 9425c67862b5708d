// DueQueue: things that are due when the watermark has reached their time.
//
// A radix heap: a thing lies in the bucket of the highest bit in which its time differs from the
// watermark, and moves to a lower one when the watermark changes that bit, so adding is one append
// and a watermark that rises touches only what is due or nearly so. Things of one time come in the
// order in which they were added. The watermark never falls: buckets are by the last one, so one
// that fell would lose things, and is refused. One thread at a time: the holder of the lane; never
// waits.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "plait/time/timed_spec.hpp"

namespace plait {

template <class T>
class DueQueue {
 public:
  void add(int64_t due, T what) { buckets_[bucket(due)].push_back({due, what}); }

  // Takes out all that is due at `watermark` (times <= it) and calls visit(thing) for each, which
  // must not add. fetch(thing, step) comes some things ahead, with step 0, then 1: a thing in the
  // queue is there until it is visited.
  template <class Visit, class Fetch>
  void take(int64_t watermark, Visit visit, Fetch fetch) {
    if (watermark < last_) {
      throw std::logic_error("a watermark fell from " + std::to_string(last_) + " to " +
                             std::to_string(watermark));
    }
    unsigned k = 0;
    if (watermark > last_) {
      k = unsigned(std::bit_width(uint64_t(watermark) ^ uint64_t(last_)));
      last_ = watermark;
    }
    for (unsigned b = 0; b < k || b == 0; ++b) {
      walk(buckets_[b], watermark, visit, fetch);
      buckets_[b].clear();
    }
    if (k == 0 || buckets_[k].empty()) return;
    moving_.swap(buckets_[k]);
    walk(moving_, watermark, visit, fetch);
    moving_.clear();
  }

  // Forgets the things for which gone(thing).
  template <class Gone>
  void remove(Gone gone) {
    for (auto& b : buckets_) std::erase_if(b, [&](const DueItem& item) { return gone(item.what); });
  }
  void clear() {
    for (auto& b : buckets_) b.clear();
  }
  size_t byte_size() const {
    size_t n = 0;
    for (const auto& b : buckets_) n += b.size() * sizeof(DueItem);
    return n;
  }

 private:
  struct DueItem {
    int64_t due;
    T what;
  };
  static constexpr size_t kAhead = 12;

  // What is due is visited, what is not goes to its bucket.
  template <class Visit, class Fetch>
  void walk(const std::vector<DueItem>& items, int64_t watermark, Visit& visit, Fetch& fetch) {
    const size_t n = items.size();
    for (size_t i = 0; i < n; ++i) {
      if (i + kAhead < n && items[i + kAhead].due <= watermark) fetch(items[i + kAhead].what, 0);
      if (i + kAhead / 2 < n && items[i + kAhead / 2].due <= watermark) {
        fetch(items[i + kAhead / 2].what, 1);
      }
      if (items[i].due <= watermark) {
        visit(items[i].what);
      } else {
        buckets_[bucket(items[i].due)].push_back(items[i]);
      }
    }
  }
  unsigned bucket(int64_t due) const {
    return due <= last_ ? 0 : unsigned(std::bit_width(uint64_t(due) ^ uint64_t(last_)));
  }

  int64_t last_ = kNoTime;
  std::array<std::vector<DueItem>, 65> buckets_;
  std::vector<DueItem> moving_;
};

}  // namespace plait
