// FreeList: the stages that hold something, the least recently served first.
//
// An item is in the list at most once (its `listed`). Who puts work into it adds it; who takes it
// clears the mark before looking inside, and gives it back, to the end of the list, if anything is
// left. The mark is only changed by read-modify-writes, so they form one chain: work whose giver
// found the mark set is seen by the thread that clears it. Hence an item that holds work is in the
// list, or in the hands of a worker that will give it back. Threads: anyone may call anything.
// Progress: no lock; adding waits for a worker that rests inside the very cell it needs. Empty:
// nothing holds work, or others are at it. Paper: freePorts of IBM Streams 4.2, Fig. 2 to 5.
#pragma once

#include <bit>
#include <cstddef>
#include <thread>

#include "plait/core/atomics.hpp"
#include "plait/queues/mpmc_ring.hpp"

namespace plait {

template <class T, class Policy = RealAtomics>
class FreeListOf {
 public:
  explicit FreeListOf(std::size_t items) : ring_(std::bit_ceil(2 * items + 2)) {}

  void add(T& item) {
    // Release pairs with the acquire in take: the work that came before.
    if (item.listed.exchange(true, Policy::kMark)) return;
    while (!ring_.try_push(&item)) std::this_thread::yield();
  }
  // What was served longest ago, or null; the caller gives it back.
  T* take() {
    T* item = nullptr;
    if (!ring_.try_pop(item)) return nullptr;
    if constexpr (Policy::kUnlistFirst) item->listed.exchange(false, Policy::kMark);
    return item;
  }
  // `holds`: whether it held work when the caller last looked.
  void give_back(T& item, bool holds) {
    if constexpr (!Policy::kUnlistFirst) item.listed.exchange(false, Policy::kMark);
    if (holds) add(item);
  }
  std::size_t size() const { return ring_.size_approx(); }

 private:
  MpmcRing<T*, Policy> ring_;
};

}  // namespace plait
