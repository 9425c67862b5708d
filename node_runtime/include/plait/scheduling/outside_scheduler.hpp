// Schedulers from outside the engine: through the C interface (scheduler_abi.h), and in Python.
//
// A native one is asked like the engine's own. A Python one is asked only by a worker that holds
// Python's turn, hence by one at a time and never while a Python operator runs: the others sweep
// meanwhile, so that native work never waits for it. An answer that does not name a stage ends the
// run.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "plait/scheduler_abi.h"
#include "plait/scheduling/schedulers.hpp"
#include "plait/workers/shared.hpp"

namespace plait {

// The same facts in the form that is promised to the outside.
inline void describe(const std::vector<StageView>& stages, int64_t now,
                     std::vector<plait_stage>& out) {
  out.resize(stages.size());
  for (size_t i = 0; i < stages.size(); ++i) {
    const StageView& s = stages[i];
    const auto since = [now](int64_t then) { return then ? double(now - then) : 0.0; };
    out[i] = {};
    out[i].ready = s.schedulable;
    out[i].source = s.source;
    out[i].python = s.python;
    out[i].workers = s.workers;
    out[i].waiting = s.waiting;
    out[i].waiting_output = s.waiting_output;
    out[i].room_output = s.room_output;
    out[i].cost_ns = s.cost_ns;
    out[i].selectivity = s.selectivity;
    out[i].selectivity_all = s.total_selectivity;
    out[i].running_ns = s.running_ns;
    out[i].idle_ns = since(s.last_run_ns);
    out[i].age_ns = s.source ? 0 : since(s.front_ns);
  }
}

class NativeScheduler final : public Scheduler {
 public:
  explicit NativeScheduler(const plait_scheduler& scheduler) : scheduler_(scheduler) {}
  int pick(const std::vector<StageView>& stages, const SchedulerOptions& options) const override {
    thread_local std::vector<plait_stage> given;
    describe(stages, now_ns(), given);
    const int64_t answer =
        scheduler_.pick(scheduler_.context, given.data(), given.size(), options.slice_ns);
    // Anything but an int does not name a stage either.
    return int(std::clamp<int64_t>(answer, INT32_MIN, INT32_MAX));
  }

 private:
  const plait_scheduler scheduler_;
};

// What a scheduler in Python answers: a stage, -1, or why it cannot.
struct Answer {
  int64_t stage = -1;
  bool failed = false;
  std::string message;
  int64_t handle = -1;
};

class PythonScheduler {
 public:
  using Ask = void (*)(void* context, const plait_stage* stages, size_t count, Answer& answer);
  PythonScheduler(Ask ask, void* context) : ask_(ask), context_(context) {}
  // By the holder of Python's turn only.
  Answer ask(const std::vector<StageView>& stages) {
    describe(stages, now_ns(), given_);
    Answer answer;
    ask_(context_, given_.data(), given_.size(), answer);
    return answer;
  }

 private:
  const Ask ask_;
  void* const context_;
  std::vector<plait_stage> given_;
};

// No operator is to blame.
inline constexpr uint32_t kSchedulerOp = UINT32_MAX;

inline Failure scheduler_failure(std::string message, int64_t handle) {
  Failure failure;
  failure.letter.op = kSchedulerOp;
  failure.letter.row = -1;
  failure.letter.kind = FailureKind::Scheduler;
  failure.letter.message = std::move(message);
  failure.letter.handle = handle;
  return failure;
}

}  // namespace plait
