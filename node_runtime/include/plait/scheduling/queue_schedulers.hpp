// The schedulers of C-Stream (section 3.2.6), and all schedulers by name.
//
// Draws come from one counter that all workers share, hashed with the seed: the same sequence in
// every run, though which worker gets which draw is chance.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "plait/scheduling/schedulers.hpp"

namespace plait {

class Draws {
 public:
  // A number below `below`, which is not 0.
  uint64_t next(uint64_t seed, uint64_t below) const {
    uint64_t x = seed + 0x9e3779b97f4a7c15 * (1 + at_.fetch_add(1, std::memory_order_relaxed));
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return (x ^ (x >> 31)) % below;
  }

 private:
  mutable std::atomic<uint64_t> at_{0};
};

// Any stage that has work.
class RandomStage final : public Scheduler {
 public:
  int pick(const std::vector<StageView>& stages, const SchedulerOptions& options) const override {
    const auto ready = [](const StageView& s) { return s.schedulable; };
    const auto count = uint64_t(std::count_if(stages.begin(), stages.end(), ready));
    if (count == 0) return -1;
    uint64_t skip = draws_.next(options.seed, count);
    for (size_t i = 0;; ++i) {
      if (stages[i].schedulable && skip-- == 0) return int(i);
    }
  }

 private:
  Draws draws_;
};

// A source that is ready; else the longest worklist, of equals any.
class MaxQueueLength final : public Scheduler {
 public:
  int pick(const std::vector<StageView>& stages, const SchedulerOptions& options) const override {
    int best = -1;
    uint64_t equals = 0;
    for (size_t i = 0; i < stages.size(); ++i) {
      const StageView& s = stages[i];
      if (!s.schedulable) continue;
      if (best < 0 || above(s, stages[size_t(best)])) {
        equals = 1;
        best = int(i);
      } else if (!above(stages[size_t(best)], s) && draws_.next(options.seed, ++equals) == 0) {
        best = int(i);
      }
    }
    return best;
  }

 private:
  static bool above(const StageView& a, const StageView& b) {
    return a.source != b.source ? a.source : !a.source && a.waiting > b.waiting;
  }
  Draws draws_;
};

// The stage whose front record came in first; a source counts by its last run.
class MinLatency final : public Scheduler {
 public:
  int pick(const std::vector<StageView>& stages, const SchedulerOptions&) const override {
    return pick_most(stages, [](const StageView& s) { return -double(s.front_ns); });
  }
};

class LeastRecentlyRun final : public Scheduler {
 public:
  int pick(const std::vector<StageView>& stages, const SchedulerOptions&) const override {
    return pick_most(stages, [](const StageView& s) { return -double(s.last_run_ns); });
  }
};

// The stage that could run longest: until its worklist is empty or one behind it is full.
class MaxRunningTime final : public Scheduler {
 public:
  int pick(const std::vector<StageView>& stages, const SchedulerOptions&) const override {
    return pick_most(stages, [](const StageView& s) {
      const double write = s.room_output / s.selectivity;
      return s.cost_ns * (s.source ? write : std::min(s.waiting, write));
    });
  }
};

// Null: no scheduler of this name.
inline std::unique_ptr<Scheduler> make_scheduler(const std::string& name) {
  if (name == "qst") return std::make_unique<QueueSizeThrottling>();
  if (name == "lp") return std::make_unique<LastInPipeline>();
  if (name == "et") return std::make_unique<EstimatedTime>();
  if (name == "ct") return std::make_unique<CurrentThroughput>();
  if (name == "random") return std::make_unique<RandomStage>();
  if (name == "max_queue") return std::make_unique<MaxQueueLength>();
  if (name == "min_latency") return std::make_unique<MinLatency>();
  if (name == "least_recent") return std::make_unique<LeastRecentlyRun>();
  if (name == "max_running") return std::make_unique<MaxRunningTime>();
  return nullptr;
}

}  // namespace plait
