// WorkerLevels: how many workers take part; the others are suspended.
//
// Each worker has its own flag, on its own cache line, and looks at it between two runs of a stage:
// what it holds there (a lane, a batch) it has given back. A suspended worker sleeps until its flag
// is taken back or the run is over, and costs nothing meanwhile. Worker 0 is never suspended: it
// serves the links to other nodes to the end.
//
// Threads: `set` and `wake` any; `suspended` and `rest` the worker itself; `active` any, and it is
// what really is: a worker that a function does not return to counts until it has come back.
// Progress: `set` takes a lock that sleepers hold for a moment. Paper: PLDI 2017, sections 4.1.2
// and 4.2.3.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "plait/core/cache_line.hpp"

namespace plait {

class WorkerLevels {
 public:
  explicit WorkerLevels(unsigned workers)
      : workers_(workers), flags_(std::make_unique<Flag[]>(workers)), active_(workers) {}

  void set(unsigned level) {
    level = std::clamp(level, 1u, workers_);
    std::lock_guard<std::mutex> hold(lock_);
    for (unsigned w = 0; w < workers_; ++w) {
      // Pairs with the acquire in suspended.
      flags_[w].suspended.store(w >= level, std::memory_order_release);
    }
    resumed_.notify_all();
  }
  // Sleepers ask again whether they must leave.
  void wake() {
    std::lock_guard<std::mutex> hold(lock_);
    resumed_.notify_all();
  }

  bool suspended(unsigned worker) const {
    return flags_[worker].suspended.load(std::memory_order_acquire);
  }
  // Sleeps until the worker is resumed or `leaves()`.
  template <class Leaves>
  void rest(unsigned worker, Leaves&& leaves) {
    std::unique_lock<std::mutex> hold(lock_);
    active_.fetch_sub(1, std::memory_order_relaxed);  // a count, read by no one who acts on more
    resumed_.wait(hold, [&] { return !suspended(worker) || leaves(); });
    active_.fetch_add(1, std::memory_order_relaxed);
  }
  unsigned active() const { return active_.load(std::memory_order_relaxed); }

 private:
  struct alignas(kCacheLine) Flag {
    std::atomic<bool> suspended{false};
  };

  const unsigned workers_;
  const std::unique_ptr<Flag[]> flags_;
  std::atomic<unsigned> active_;
  std::mutex lock_;
  std::condition_variable resumed_;
};

}  // namespace plait
