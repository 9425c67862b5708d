// SourceClock: when a source is worth asking again.
//
// Its rows are due at a time; where something may be due by the clock it gives a sign of life now
// and then (a beat); and while it waits for other sources or nodes, whose news wake it, it only
// looks now and then. Threads: the holder of the source's flag writes; any may read, and what it
// reads is a hint: relaxed.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>

#include "plait/workers/shared.hpp"

namespace plait {

class SourceClock {
 public:
  int64_t beat_ns = 0;  // how often it beats; 0: it does not

  // Its rows are not due for so long.
  void rows_in(int64_t ns) { due_.store(now_ns() + ns, std::memory_order_relaxed); }
  void beat_in(int64_t ns) { beat_.store(now_ns() + ns, std::memory_order_relaxed); }
  int64_t rows_ns() const { return due_.load(std::memory_order_relaxed); }
  bool beats() const { return beat_ns && now_ns() >= beat_.load(std::memory_order_relaxed); }
  // When rows are due, or a beat.
  int64_t due_ns() const {
    return beat_ns ? std::min(rows_ns(), beat_.load(std::memory_order_relaxed)) : rows_ns();
  }
  // When it is to be asked, if nothing else happens.
  int64_t next_ns() const { return std::max(due_ns(), look_.load(std::memory_order_relaxed)); }

  // It waits for other sources. They make it ready, so looking again is seldom of use; the longer
  // it waits, the more seldom.
  void look_later() {
    const int64_t at = now_ns() + std::exchange(gap_ns_, std::min(2 * gap_ns_, kMostLookNs));
    const int64_t beat = beat_.load(std::memory_order_relaxed);
    look_.store(beat_ns ? std::min(at, beat) : at, std::memory_order_relaxed);
  }
  void moved() { gap_ns_ = kLookNs; }

  // It waits for news of its epochs, of which it knows these.
  void wait_for_news(uint64_t known) {
    news_.store(known, std::memory_order_relaxed);
    waits_.store(true, std::memory_order_relaxed);
    look_.store(now_ns() + kMostLookNs, std::memory_order_relaxed);
  }
  void go_on() {
    if (!waits_.load(std::memory_order_relaxed)) return;
    waits_.store(false, std::memory_order_relaxed);
    look_.store(0, std::memory_order_relaxed);
  }
  // Whether these are others than those it knows, if it waits for some.
  bool new_to_it(uint64_t news) const {
    return waits_.load(std::memory_order_relaxed) && news != news_.load(std::memory_order_relaxed);
  }

 private:
  static constexpr int64_t kLookNs = 1'000'000, kMostLookNs = 50'000'000;

  std::atomic<int64_t> due_{0}, beat_{0};
  std::atomic<int64_t> look_{0};  // not due_: that would make rows that are there come late
  int64_t gap_ns_ = kLookNs;
  std::atomic<bool> waits_{false};
  std::atomic<uint64_t> news_{0};
};

}  // namespace plait
