// PagePopulator: has memory made present by the kernel before a lane writes to it.
//
// A fresh page in the middle of a batch costs more than the batch. The thread is started when there
// is something to do for the first time, runs at lower priority and takes one piece (2 MiB at most)
// at a time; pieces may go (be unmapped) at any time, the kernel then refuses them. Any thread may
// add.
#pragma once

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "plait/core/zeroed_region.hpp"

namespace plait {

class PagePopulator {
 public:
  using Piece = std::pair<void*, size_t>;

  ~PagePopulator() {
    {
      std::lock_guard<std::mutex> hold(lock_);
      over_ = true;
    }
    more_.notify_one();
    if (thread_.joinable()) thread_.join();
  }
  void add(const std::vector<Piece>& pieces) {
    if (pieces.empty()) return;
    {
      std::lock_guard<std::mutex> hold(lock_);
      waiting_.insert(waiting_.end(), pieces.begin(), pieces.end());
      if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
    }
    more_.notify_one();
  }
  // All that was added is done.
  bool idle() {
    std::lock_guard<std::mutex> hold(lock_);
    return waiting_.empty() && !busy_;
  }

 private:
  void work() {
    // The nice value of a thread is its own on Linux; if it cannot be set the work is done as well.
    (void)::setpriority(PRIO_PROCESS, id_t(::syscall(SYS_gettid)), 5);
    std::unique_lock<std::mutex> hold(lock_);
    while (!over_) {
      more_.wait(hold, [this] { return over_ || !waiting_.empty(); });
      while (!over_ && !waiting_.empty()) {
        const Piece piece = waiting_.front();
        waiting_.pop_front();
        busy_ = true;
        hold.unlock();
        (void)ZeroedRegion::populate(piece.first, piece.second);
        hold.lock();
        busy_ = false;
      }
    }
  }

  std::mutex lock_;
  std::condition_variable more_;
  std::deque<Piece> waiting_;
  bool busy_ = false, over_ = false;
  std::thread thread_;
};

}  // namespace plait
