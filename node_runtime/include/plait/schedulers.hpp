// Schedulers: which stage should this worker turn to, and for how many records?
//
// A scheduler reads a view of every stage (estimates, refreshed for each question) and answers with
// a stage or with none. It holds no lock and changes nothing but its own estimates; a wrong answer
// costs time, never correctness. Workers fall back to a sweep over all stages when the answer gives
// no work. A new scheduler is a class with `pick`, and a line in `make_scheduler`. Paper: section
// 6, equations 1 to 3.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace plait {

// What a scheduler may know of a stage. Stages are in pipeline order, sources first.
struct StageView {
  bool schedulable = false;  // has work, has room behind it, takes one more worker, and Python's
                             // turn is free if it needs it
  bool source = false;
  double waiting = 0;            // I_i: records in its worklist
  double waiting_output = 0;     // records in the worklists behind it
  double cost_ns = 1;            // c_i: worker time per record
  double selectivity = 1;        // s_i
  double total_selectivity = 1;  // cs_i: since the source
  double window_ns = 0;          // T_i^w: worker time in the current window
  int workers = 0;               // w_i
};

struct SchedulerOptions {
  double slice_ns = 200e3;      // s: how long a worker stays with a stage
  double capacity = 64 * 1024;  // C of equation 1
};

class Scheduler {
 public:
  virtual ~Scheduler() = default;
  // The index of a schedulable stage, or -1.
  virtual int pick(const std::vector<StageView>& stages, const SchedulerOptions& options) const = 0;
};

// Queue-size throttling: the earliest stage whose output queue is below its threshold (equation 1).
class QueueSizeThrottling final : public Scheduler {
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
class LastInPipeline final : public Scheduler {
 public:
  int pick(const std::vector<StageView>& stages, const SchedulerOptions&) const override {
    for (size_t i = stages.size(); i-- > 0;) {
      if (stages[i].schedulable) return int(i);
    }
    return -1;
  }
};

// Estimated time: the stage whose worklist would take longest with one more worker (equation 2).
class EstimatedTime final : public Scheduler {
 public:
  int pick(const std::vector<StageView>& stages, const SchedulerOptions&) const override {
    int best = -1;
    double most = -1;
    for (size_t i = 0; i < stages.size(); ++i) {
      if (!stages[i].schedulable) continue;
      const double time = stages[i].waiting * stages[i].cost_ns / (stages[i].workers + 1);
      if (time > most) {
        most = time;
        best = int(i);
      }
    }
    return best;
  }
};

// Current throughput: the stage with the lowest normalised throughput in the current window
// (equation 3). Of equals the latest, so that work in the pipeline goes before new work.
class CurrentThroughput final : public Scheduler {
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

inline std::unique_ptr<Scheduler> make_scheduler(const std::string& name) {
  if (name == "qst") return std::make_unique<QueueSizeThrottling>();
  if (name == "lp") return std::make_unique<LastInPipeline>();
  if (name == "et") return std::make_unique<EstimatedTime>();
  if (name == "ct") return std::make_unique<CurrentThroughput>();
  return nullptr;
}

}  // namespace plait
