// ParallelStage: stateless operators, fused.
//
// Any number of workers run it, each on its own batch; the ring and the reorder buffer of Stage
// keep the order. Full and empty: as Stage.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

#include "plait/stages/row_operators.hpp"
#include "plait/stages/stage_impl.hpp"
#include "plait/workers/python_turn.hpp"
#include "plait/workers/worker.hpp"

namespace plait {

class ParallelStage final : public Stage {
 public:
  ParallelStage(std::string name, const StageLimits& limits, Operators operators)
      : Stage(std::move(name), limits), operators_(std::move(operators)) {}

  int64_t run(Worker& worker, int64_t records) override {
    PythonTurn turn(worker, python);
    if (!turn) return 0;
    int64_t done = 0;
    while (done < records) {
      Slot* s = try_claim(limits_.batches);
      if (!s) break;
      done += s->records + 1;
      stats.records_in.fetch_add(s->records, std::memory_order_relaxed);
      if (!s->batch.control && !s->batch.end && !worker.leaves()) {
        run_all(operators_, s->batch, worker);
      }
      finish(*s, worker);
      if (worker.slice_over()) break;
    }
    return done;
  }

 private:
  const Operators operators_;
};

}  // namespace plait
