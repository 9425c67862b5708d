// Schedulers: which stage should this worker turn to?
//
// A scheduler reads a view of every stage (estimates, refreshed for each question) and answers with
// a stage or with none. It holds no lock and changes nothing but its own estimates; a wrong answer
// costs time, never correctness. Workers fall back to a sweep over all stages when the answer gives
// no work. Here are the four of the paper on ordered streams (section 6, equations 1 to 3);
// queue_schedulers.hpp has those of C-Stream, outside_scheduler.hpp those from outside, and
// find_listed.hpp the free list, which looks at no views at all.
#pragma once

#include <cstdint>
#include <vector>

namespace plait {

// What a scheduler may know of a stage. Stages are in pipeline order, sources first.
struct StageView {
  bool schedulable = false;  // has work, has room behind it, takes one more worker, and Python's
                             // turn is free if it needs it
  bool source = false;
  bool python = false;           // needs the interpreter
  double waiting = 0;            // I_i: records in its worklist
  double waiting_output = 0;     // records in the worklists behind it
  double room_output = 0;        // records that the fullest worklist behind it still takes
  double cost_ns = 1;            // c_i: worker time per record
  double selectivity = 1;        // s_i
  double total_selectivity = 1;  // cs_i: since the source
  double window_ns = 0;          // T_i^w: worker time in the current window
  double running_ns = 0;         // worker time since the start
  int64_t last_run_ns = 0;       // when a worker last turned to it; 0: never
  int64_t front_ns = 0;          // when the record in front came in; a source: its last run
  int workers = 0;               // w_i
};

struct SchedulerOptions {
  double slice_ns = 200e3;      // s: how long a worker stays with a stage
  double capacity = 64 * 1024;  // C of equation 1
  uint64_t seed = 0;            // of what is drawn
};

class Scheduler {
 public:
  virtual ~Scheduler() = default;
  // The index of a schedulable stage, or -1. Any worker at any time.
  virtual int pick(const std::vector<StageView>& stages, const SchedulerOptions& options) const = 0;
  // Whether it looks at what the four below do without: room, runs, and ages.
  virtual bool looks_closely() const { return true; }
};

class PlainScheduler : public Scheduler {
 public:
  bool looks_closely() const final { return false; }
};

// Queue-size throttling: the earliest stage whose output queue is below its threshold (equation 1).
class QueueSizeThrottling final : public PlainScheduler {
 public:
  int pick(const std::vector<StageView>& stages, const SchedulerOptions& options) const override {
    double sum = 0;
    for (const auto& s : stages) sum += s.total_selectivity;
    int last = -1;
    for (size_t i = 0; i < stages.size(); ++i) {
      if (!stages[i].schedulable) continue;
      const double threshold = options.capacity * stages[i].total_selectivity / sum;
      if (stages[i].waiting_output < threshold) return int(i);
      last = int(i);
    }
    return last;  // all are over their threshold: the latest brings the queues down
  }
};

// Last in pipeline: the latest stage that has work.
class LastInPipeline final : public PlainScheduler {
 public:
  int pick(const std::vector<StageView>& stages, const SchedulerOptions&) const override {
    for (size_t i = stages.size(); i-- > 0;) {
      if (stages[i].schedulable) return int(i);
    }
    return -1;
  }
};

// The schedulable stage of the highest score; of equals the earliest.
template <class Score>
int pick_most(const std::vector<StageView>& stages, Score&& score) {
  int best = -1;
  double most = 0;
  for (size_t i = 0; i < stages.size(); ++i) {
    if (!stages[i].schedulable) continue;
    const double found = score(stages[i]);
    if (best < 0 || found > most) {
      most = found;
      best = int(i);
    }
  }
  return best;
}

// Estimated time: the stage whose worklist would take longest with one more worker (equation 2).
class EstimatedTime final : public PlainScheduler {
 public:
  int pick(const std::vector<StageView>& stages, const SchedulerOptions&) const override {
    return pick_most(stages,
                     [](const StageView& s) { return s.waiting * s.cost_ns / (s.workers + 1); });
  }
};

// Current throughput: the stage with the lowest normalised throughput in the current window
// (equation 3). Of equals the latest, so that work in the pipeline goes before new work.
class CurrentThroughput final : public PlainScheduler {
 public:
  int pick(const std::vector<StageView>& stages, const SchedulerOptions& options) const override {
    int best = -1;
    double least = 0;
    for (size_t i = 0; i < stages.size(); ++i) {
      if (!stages[i].schedulable) continue;
      const double n = (stages[i].window_ns + stages[i].workers * options.slice_ns) /
                       (stages[i].cost_ns * stages[i].total_selectivity);
      if (best < 0 || n <= least) {
        least = n;
        best = int(i);
      }
    }
    return best;
  }
};

}  // namespace plait
