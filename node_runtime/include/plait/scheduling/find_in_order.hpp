// FindInOrder: one thread runs its stages in pipeline order: a batch of each source goes all the
// way before the next is read.
//
// This is the manual model, in which the thread that reads a batch runs everything after it, and
// with a single stage the dedicated one. Latency is least: nothing waits in a worklist but what
// another crew holds up. Paper: the threading models of IBM Streams, section 2.2.
#pragma once

#include <cstdint>

#include "plait/scheduling/finder.hpp"

namespace plait {

class FindInOrder final : public Finder {
 public:
  using Finder::Finder;

  int64_t find(Worker& worker) override {
    int64_t n = 0;
    for (Stage* stage : stages_) {
      if (worker.leaves()) break;
      const bool source = stage->before().empty();
      if (stage->releasable() && stage->can_send()) n += stage->try_release(worker);
      // A batch at a time where batches begin; all there is where they go on.
      if (stage->runnable()) n += run_stage(*stage, worker, source ? 1 : INT64_MAX);
    }
    return n;
  }
};

}  // namespace plait
