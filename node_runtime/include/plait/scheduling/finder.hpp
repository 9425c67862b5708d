// Finder: how a worker of a crew finds something to do. One for the whole crew; any of its workers
// may call anything at any time.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "plait/scheduling/schedulers.hpp"
#include "plait/stages/stage_impl.hpp"

namespace plait {

class Finder {
 public:
  Finder(std::vector<Stage*> stages, const SchedulerOptions& options)
      : stages_(std::move(stages)),
        options_(options),
        slice_ticks_(uint64_t(options.slice_ns * ticks_per_ns())) {}
  virtual ~Finder() = default;

  // Works for a slice and says how many records moved; 0: nothing was found.
  virtual int64_t find(Worker& worker) = 0;

  // Works on the latest stage that has something to do, whatever a scheduler would say: nobody
  // sleeps before this has found nothing. `worker.barred`: there was something, but it needs Python
  // while another has its turn.
  int64_t sweep(Worker& worker) {
    int64_t n = 0;
    worker.barred = false;
    const bool busy = worker.shared.python_busy.load(std::memory_order_relaxed);
    for (size_t i = stages_.size(); i-- > 0 && n == 0;) {
      Stage& stage = *stages_[i];
      if (stage.releasable() && stage.can_send()) n += stage.try_release(worker);
      if (n != 0 || !stage.runnable()) continue;
      if (busy && stage.needs_python()) {
        worker.barred = true;
      } else {
        n += run_stage(stage, worker);
      }
    }
    return n;
  }

 protected:
  // Stays with a stage for a slice: as many records as that should take, and in any case no batch
  // begins behind its end.
  int64_t run_stage(Stage& stage, Worker& worker) {
    return run_stage(stage, worker, int64_t(options_.slice_ns / stage.stats.cost_ns()) + 1);
  }
  int64_t run_stage(Stage& stage, Worker& worker, int64_t records) {
    StageStats& s = stage.stats;
    if (uint32_t(s.workers.fetch_add(1, std::memory_order_relaxed)) >= stage.limited_to()) {
      s.workers.fetch_sub(1, std::memory_order_relaxed);
      return 0;
    }
    const int64_t start = now_ns();
    s.last_run_ns.store(start, std::memory_order_relaxed);
    worker.slice_end = ticks() + slice_ticks_;
    const bool waits = stage.needs_python();
    const int64_t used = waits && s.cpu.next() ? thread_cpu_ns() : -1;
    const int64_t n = stage.run(worker, records);
    const int64_t spent = now_ns() - start;
    s.workers.fetch_sub(1, std::memory_order_relaxed);
    if (n <= 0) return n;
    s.spent(spent, n);
    if (used >= 0) {
      const int64_t exact = thread_cpu_ns() - used;
      s.cpu.sample(n, exact);
      worker.cpu.add_exact(s.cpu, exact);
    } else {
      worker.cpu.add(s.cpu, waits ? s.cpu.guess(n, spent) : spent);
    }
    if (waits) s.cpu.is_long.store(spent >= CpuStats::kLongNs, std::memory_order_relaxed);
    return n;
  }

  const std::vector<Stage*> stages_;  // of the crew, in pipeline order
  const SchedulerOptions options_;
  const uint64_t slice_ticks_;
};

}  // namespace plait
