// SerialStage: one worker at a time, in serial order.
//
// The base of the stages with state that is not cut by keys: state in Python, and sinks. Any worker
// may call run; the one that gets the flag claims batches in order, the others leave at once: no
// worker waits. A batch that is not `ready` yet stays where it is, and those after it wait.
#pragma once

#include <atomic>
#include <cstdint>

#include "plait/stages/stage_impl.hpp"
#include "plait/workers/python_turn.hpp"
#include "plait/workers/worker.hpp"

namespace plait {

class SerialStage : public Stage {
 public:
  using Stage::Stage;
  uint32_t max_workers() const override { return 1; }

  int64_t run(Worker& worker, int64_t records) override {
    if (!runnable()) return 0;
    PythonTurn turn(worker, needs_python());
    if (!turn) return 0;
    if (!try_hold()) return 0;
    int64_t done = 0;
    while (done < records) {
      // Only the holder of the flag claims, so the next slot cannot be claimed by another
      // meanwhile.
      if (claimed() >= pushed() || !ready(slot(claimed()).batch)) break;
      Slot* s = try_claim(limits_.batches);
      if (!s) break;
      done += s->records + 1;
      stats.records_in.fetch_add(s->records, std::memory_order_relaxed);
      if (!worker.leaves()) process(s->batch, worker);
      finish(*s, worker);
      if (asked_.load(std::memory_order_relaxed)) [[unlikely]]
        between();
      if (worker.slice_over()) break;
    }
    let_go();
    return done;
  }

 protected:
  virtual void process(Batch& batch, Worker& worker) = 0;
  // Between two batches, by the holder of the flag, when `asked_` is set.
  virtual void between() {}
  // Whether the next batch can be processed now; asked in order.
  virtual bool ready(Batch& /*batch*/) { return true; }

  // The one worker that may claim. Acquire and release pair with each other from holder to holder:
  // the state as the last one left it.
  bool try_hold() { return !busy_.exchange(true, std::memory_order_acquire); }
  void let_go() { busy_.store(false, std::memory_order_release); }

  std::atomic<bool> asked_{false};  // a thread beside the workers wants a turn between two batches

 private:
  std::atomic<bool> busy_{false};
};

}  // namespace plait
