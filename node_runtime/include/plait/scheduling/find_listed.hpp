// FindListed: takes the stage that was served longest ago from the free list, serves it, and puts
// it at the back: no look at all stages, no shared line but the list's two ends.
//
// Every stage that holds something is in the list (FreeList has why). A stage that many workers may
// share is put back before it is served if there is work for another. When what a stage has
// finished does not fit behind it, the worker does not turn to something else: it runs the stage
// that is full, for a quarter of what waits there, and those on the way (reSchedule of Fig. 6,
// RESCHED_LIMIT). A worker that meets a stage in others' hands leaves it. Paper: the
// scheduler of IBM Streams 4.2, section 4.1.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "plait/queues/free_list.hpp"
#include "plait/scheduling/finder.hpp"

namespace plait {

class FindListed final : public Finder {
 public:
  FindListed(std::vector<Stage*> stages, const SchedulerOptions& options)
      : Finder(std::move(stages), options), list_(stages_.size()) {
    for (Stage* stage : stages_) {
      stage->list = &list_;
      list_.add(*stage);
    }
  }

  // Ends the walk when it has seen as many stages as the list had, like the paper's: others may
  // have added some meanwhile, and will find them.
  int64_t find(Worker& worker) override {
    for (size_t left = list_.size(); left > 0; --left) {
      Stage* stage = list_.take();
      if (!stage) return 0;
      const int64_t n = serve(*stage, worker);
      list_.give_back(*stage, stage->pending());
      if (n) return n;
    }
    return 0;
  }

 private:
  static constexpr int64_t kPart = 4;  // RESCHED_LIMIT: a quarter of the queue

  int64_t serve(Stage& stage, Worker& worker) {
    if (stage.degree() > 1 && stage.runnable()) list_.add(stage);
    int64_t n = takes_worker(stage) ? run_stage(stage, worker) : 0;
    if (held_up(stage)) n += make_way(stage, worker);
    if (stage.releasable() && stage.can_send()) n += stage.try_release(worker);
    return n;
  }

  static bool held_up(const Stage& stage) { return stage.releasable() && !stage.can_send(); }
  static bool takes_worker(const Stage& stage) {
    const auto workers = uint32_t(stage.stats.workers.load(std::memory_order_relaxed));
    return workers < stage.degree() && stage.runnable();
  }

  // Goes down to the stage that holds all the others up, and back, making room on the way.
  int64_t make_way(Stage& stage, Worker& worker) {
    auto& path = worker.path;
    path.clear();
    for (Stage* s = &stage; s && held_up(*s);) {
      s = s->full_output();
      if (!s || s->list != &list_) break;  // room by now, or another crew's
      path.push_back(s);
    }
    int64_t n = 0;
    while (!path.empty()) {
      Stage& full = *path.back();
      path.pop_back();
      if (full.releasable() && full.can_send()) n += full.try_release(worker);
      if (takes_worker(full)) n += run_stage(full, worker, quarter(full));
    }
    return n;
  }
  static int64_t quarter(const Stage& stage) {
    return std::max<int64_t>(1,
                             stage.stats.waiting_records.load(std::memory_order_relaxed) / kPart);
  }

  FreeList list_;
};

}  // namespace plait
