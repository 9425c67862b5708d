// FindScheduled: asks a scheduler, which sees all stages; sweeps when its answer gives no work.
//
// Looking at all stages costs time in proportion to their number, once for each slice; with
// hundreds of stages FindListed is the better choice.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plait/scheduling/finder.hpp"
#include "plait/scheduling/outside_scheduler.hpp"
#include "plait/workers/python_turn.hpp"

namespace plait {

class FindScheduled final : public Finder {
 public:
  // `all`: every stage of the job, by index; those of other crews are seen, not scheduled.
  FindScheduled(std::vector<Stage*> stages, const std::vector<std::unique_ptr<Stage>>& all,
                const SchedulerOptions& options, std::string name,
                std::unique_ptr<Scheduler> scheduler, std::unique_ptr<PythonScheduler> python)
      : Finder(std::move(stages), options),
        all_(all),
        name_(std::move(name)),
        scheduler_(std::move(scheduler)),
        python_(std::move(python)),
        closely_(python_ || scheduler_->looks_closely()),
        mine_(all.size()),
        window_start_(now_ns()) {
    for (const Stage* stage : stages_) mine_[stage->index] = true;
  }

  int64_t find(Worker& worker) override {
    thread_local std::vector<StageView> views;
    const int picked = pick(views, worker);
    const int64_t n = picked >= 0 ? run_stage(*all_[size_t(picked)], worker) : 0;
    return n ? n : sweep(worker);
  }

 private:
  static constexpr int64_t kWindowNs = 10'000'000;

  int pick(std::vector<StageView>& views, Worker& worker) {
    const int64_t now = now_ns();
    int64_t start = window_start_.load(std::memory_order_relaxed);
    if (now - start > kWindowNs &&
        window_start_.compare_exchange_strong(start, now, std::memory_order_relaxed)) {
      for (auto& s : all_) s->stats.window_ns.store(0, std::memory_order_relaxed);
    }
    view(views, worker.shared);
    if (python_) return ask(views, worker);
    return checked(scheduler_->pick(views, options_), worker);
  }

  // Only if there is something to choose: an idle worker must not keep the interpreter busy.
  int ask(const std::vector<StageView>& views, Worker& worker) {
    if (std::none_of(views.begin(), views.end(), [](auto& v) { return v.schedulable; })) return -1;
    PythonTurn turn(worker, true);
    if (!turn || worker.leaves()) return -1;
    Answer answer = python_->ask(views);
    if (!answer.failed) return checked(answer.stage, worker);
    worker.shared.fail(scheduler_failure(std::move(answer.message), answer.handle));
    return -1;
  }
  int checked(int64_t picked, Worker& worker) {
    if (picked >= -1 && picked < int64_t(all_.size())) {
      return picked >= 0 && mine_[size_t(picked)] ? int(picked) : -1;
    }
    worker.shared.fail(scheduler_failure(
        "scheduler " + name_ + ": picked stage " + std::to_string(picked) +
            "; it must pick one of 0 to " + std::to_string(all_.size() - 1) + ", or -1 for none",
        -1));
    return -1;
  }

  void view(std::vector<StageView>& views, const Shared& shared) const {
    views.assign(all_.size(), StageView());
    const bool python_busy = shared.python_busy.load(std::memory_order_relaxed);
    for (size_t i = 0; i < all_.size(); ++i) {
      const Stage& stage = *all_[i];
      const StageStats& s = stage.stats;
      StageView& v = views[i];
      v.workers = s.workers.load(std::memory_order_relaxed);
      v.source = stage.before().empty();
      v.python = stage.needs_python();
      v.schedulable = mine_[i] && uint32_t(v.workers) < stage.degree() &&
                      !(v.python && python_busy) && stage.runnable();
      v.waiting = double(s.waiting_records.load(std::memory_order_relaxed));
      if (v.source) v.waiting = 1024;  // there is always more at a source
      const double in = double(s.records_in.load(std::memory_order_relaxed));
      const double out = double(s.records_out.load(std::memory_order_relaxed));
      v.cost_ns = s.cost_ns();
      v.selectivity = in > 0 && out > 0 ? out / in : 1;
      double before = 0;
      for (const Stage* b : stage.before()) before += views[b->index].total_selectivity;
      v.total_selectivity = (v.source ? 1 : before) * v.selectivity;
      v.window_ns = double(s.window_ns.load(std::memory_order_relaxed));
      if (closely_) {
        v.running_ns = double(s.running_ns.load(std::memory_order_relaxed));
        v.last_run_ns = s.last_run_ns.load(std::memory_order_relaxed);
        v.front_ns = stage.front_ns();
        v.room_output = double(stage.room_behind());
      }
      for (const Stage* b : stage.before()) views[b->index].waiting_output += v.waiting;
    }
  }

  const std::vector<std::unique_ptr<Stage>>& all_;
  const std::string name_;
  const std::unique_ptr<Scheduler> scheduler_;
  const std::unique_ptr<PythonScheduler> python_;
  const bool closely_;
  std::vector<bool> mine_;
  std::atomic<int64_t> window_start_;
};

}  // namespace plait
