// Bell: where the threads of a crew sleep when they have nothing to do, until it is rung.
//
// Who has made work (a batch, room, a turn) rings; who finds nothing lies down (`Nap`), looks once
// more, and then sleeps. If `exact`, either the ringer sees the sleeper or the sleeper's last look
// sees the work: both sides have a full fence between their write and their read. A crew that looks
// again every few milliseconds anyway does without the ringer's fence, which with small batches was
// a part of its time. Threads: anyone may call anything.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "plait/core/atomics.hpp"
#include "plait/core/cache_line.hpp"
#include "plait/workers/network.hpp"

namespace plait {

class Bell {
 public:
  Network* network = nullptr;  // a sleeper may be waiting for the links instead
  bool exact = true;           // until the start

  void ring() {
    if (exact) full_fence();  // pairs with the increment in Nap
    if (sleepers_.load(std::memory_order_relaxed) == 0) return;
    std::lock_guard<std::mutex> hold(lock_);
    ++signals_;
    sleep_.notify_one();
    if (network) network->wake();
  }
  void ring_all() {
    std::lock_guard<std::mutex> hold(lock_);
    ++signals_;
    sleep_.notify_all();
    if (network) network->wake();
  }

  // From here on ringers see this thread; look for work once more before `sleep`.
  class Nap {
   public:
    explicit Nap(Bell& bell) : bell_(bell) {
      std::lock_guard<std::mutex> hold(bell_.lock_);
      seen_ = bell_.signals_;
      bell_.sleepers_.fetch_add(1, std::memory_order_seq_cst);  // pairs with the fence in ring
    }
    ~Nap() { bell_.sleepers_.fetch_sub(1, std::memory_order_relaxed); }
    Nap(const Nap&) = delete;

    // Until the bell has rung since the nap began or `left` holds; false: so long has passed.
    template <class Left>
    bool sleep(int64_t most_ns, Left&& left) {
      std::unique_lock<std::mutex> hold(bell_.lock_);
      return bell_.sleep_.wait_for(hold, std::chrono::nanoseconds(most_ns),
                                   [&] { return bell_.signals_ != seen_ || left(); });
    }
    // Whether the bell has rung since the nap began.
    bool rung() const {
      std::lock_guard<std::mutex> hold(bell_.lock_);
      return bell_.signals_ != seen_;
    }

   private:
    Bell& bell_;
    uint64_t seen_;
  };

 private:
  std::mutex lock_;
  std::condition_variable sleep_;
  uint64_t signals_ = 0;  // under lock_: a sleeper leaves when it changes
  alignas(kCacheLine) std::atomic<uint32_t> sleepers_{0};
};

}  // namespace plait
