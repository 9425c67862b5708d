// CpuMeter: shares the processor time of a worker's thread out to the stages it has run.
//
// The clock of a thread is a system call (some 350 ns), so it is read once for two
// milliseconds in stages: what the thread has used since is shared out by the time that each stage
// took, and what is left over (looking for work, links) is `rest`. So the sum is exact, whatever
// was preempted; only shares within two milliseconds are estimates. A stage that may wait for the
// interpreter or for the world outside is measured by itself, in each slice that is long and in one
// of kSampled; others take as much for a record as those.
//
// Threads: only the worker's own; the counters may be read by any, relaxed.
#pragma once

#include <time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

namespace plait {

// Processor time of the calling thread.
inline int64_t thread_cpu_ns() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return int64_t(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

// Processor time of a stage, and how much of it a record takes. Written by workers with relaxed
// order: of racing samples one is lost, no more.
struct CpuStats {
  static constexpr uint32_t kSampled = 16;
  static constexpr double kKept = 0.9;           // of older samples, with each new one
  static constexpr int64_t kLongNs = 1'000'000;  // two readings are nothing beside such a slice

  std::atomic<int64_t> cpu_ns{0};  // since the start
  std::atomic<uint32_t> slices{0};
  std::atomic<bool> is_long{false};        // the last slice was
  std::atomic<double> records{0}, cpu{0};  // of the slices that were measured, the newest most

  void add(int64_t ns) { cpu_ns.fetch_add(ns, std::memory_order_relaxed); }
  // Whether this slice is to be measured.
  bool next() {
    return slices.fetch_add(1, std::memory_order_relaxed) % kSampled == 0 ||
           is_long.load(std::memory_order_relaxed);
  }
  void sample(int64_t moved, int64_t used) {
    records.store(kKept * records.load(std::memory_order_relaxed) + double(moved),
                  std::memory_order_relaxed);
    cpu.store(kKept * cpu.load(std::memory_order_relaxed) + double(used),
              std::memory_order_relaxed);
  }
  // What a slice used that was not measured.
  int64_t guess(int64_t moved, int64_t wall) const {
    const double of = records.load(std::memory_order_relaxed);
    if (of <= 0) return wall;
    return std::min(wall, int64_t(cpu.load(std::memory_order_relaxed) / of * double(moved)));
  }
};

class CpuMeter {
 public:
  // The stage took about so much processor time, as far as its worker's time tells.
  void add(CpuStats& stage, int64_t ns) {
    size_t i = 0;
    while (i < count_ && entries_[i].stage != &stage) ++i;
    if (i == count_) entries_[count_++] = {&stage, 0};
    entries_[i].ns += ns;
    total_ += ns;
    if (total_ >= kWindowNs || count_ == kMost) settle();
  }
  // The stage was measured: it took just so much.
  void add_exact(CpuStats& stage, int64_t used) {
    stage.add(used);
    seen_ += used;
  }
  // About to sleep, at `now`: what it used while it found nothing is not to be lost for long.
  void rests(int64_t now) {
    if (now - rested_ < kRestNs) return;
    rested_ = now;
    settle();
  }
  void settle() {
    const int64_t now = thread_cpu_ns(), used = now - seen_;
    seen_ = now;
    const double part = total_ > used ? double(used) / double(total_) : 1.0;
    int64_t left = used;
    for (size_t i = 0; i < count_; ++i) {
      const auto share = int64_t(double(entries_[i].ns) * part);
      entries_[i].stage->add(share);
      left -= share;
    }
    rest.fetch_add(std::max<int64_t>(0, left), std::memory_order_relaxed);
    count_ = 0;
    total_ = 0;
  }

  std::atomic<int64_t> rest{0};  // ns outside of stages

 private:
  static constexpr int64_t kWindowNs = 2'000'000, kRestNs = 50'000'000;
  static constexpr size_t kMost = 8;
  struct Entry {
    CpuStats* stage;
    int64_t ns;
  };
  std::array<Entry, kMost> entries_{};
  size_t count_ = 0;
  int64_t total_ = 0, seen_ = 0, rested_ = 0;
};

}  // namespace plait
