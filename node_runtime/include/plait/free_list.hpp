// FreeList: the stages that hold something, the least recently served first.
//
// A stage is in the list at most once (`Stage::listed`). Who pushes into it adds it; who takes it
// clears the mark before looking inside, and adds it again, at the back, if anything is left. The
// mark is only changed by read-modify-writes, so they form one chain: a push that finds the mark
// set is seen by whoever clears it. Hence a stage that holds something is in the list, or in the
// hands of a worker that will add it. Threads: anyone may call anything. Progress: no lock; adding
// waits for a worker that rests inside the very cell it needs. Paper: freePorts of
// IBM Streams 4.2, Fig. 2 to 5.
#pragma once

#include <bit>
#include <cstddef>
#include <thread>

#include "plait/mpmc_ring.hpp"
#include "plait/stage.hpp"

namespace plait {

class FreeList {
 public:
  explicit FreeList(size_t stages) : ring_(std::bit_ceil(2 * stages + 2)) {}

  void add(Stage& stage) {
    // Release pairs with the acquire in take: what was pushed before.
    if (stage.listed.exchange(true, std::memory_order_acq_rel)) return;
    while (!ring_.try_push(&stage)) std::this_thread::yield();
  }
  // The stage that was served longest ago, or null.
  Stage* take() {
    Stage* stage = nullptr;
    if (!ring_.try_pop(stage)) return nullptr;
    stage->listed.exchange(false, std::memory_order_acq_rel);  // pairs with add
    return stage;
  }
  size_t size() const { return ring_.size_approx(); }

 private:
  MpmcRing<Stage*> ring_;
};

}  // namespace plait
