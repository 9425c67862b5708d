// Engine: the stages of one job on this machine, and the worker threads that run them.
//
// Each worker asks the scheduler for a stage, runs it for a time slice, and asks again; when the
// answer gives no work it sweeps over all stages, and when that gives none either it spins briefly,
// yields, then parks until someone hands a batch on or a source is due. Stages are added before
// start; control, stop and abort may be called from any thread while it runs; results are read
// after join.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "plait/gather_stage.hpp"
#include "plait/keyed_stage.hpp"
#include "plait/merge_stage.hpp"
#include "plait/route_stage.hpp"
#include "plait/schedulers.hpp"
#include "plait/sources.hpp"

namespace plait {

class Engine {
 public:
  Engine(size_t nodes, size_t sources, unsigned workers, const std::string& scheduler,
         double slice_ns)
      : shared(nodes), epochs(sources), scheduler_(make_scheduler(scheduler)) {
    options_.slice_ns = slice_ns;
    for (unsigned w = 0; w < workers; ++w) {
      workers_.push_back(std::make_unique<Worker>(w, workers, shared));
    }
  }
  ~Engine() {
    abort();
    join();
  }

  template <class S>
  S& add(std::unique_ptr<S> stage) {
    S& ref = *stage;
    ref.index = uint32_t(stages_.size());
    if constexpr (std::is_same_v<S, SourceStage>) {
      sources_.push_back(&ref);
      ref.stopping = &shared.stopping;
    }
    if constexpr (std::is_same_v<S, SinkStage>) shared.sinks_open.fetch_add(1);
    stages_.push_back(std::move(stage));
    return ref;
  }

  // Runs a control item on all state before the start.
  void control_now(Control& control) {
    for (auto& stage : stages_) stage->control_now(control);
  }
  void start() {
    running_.store(unsigned(workers_.size()),
                   std::memory_order_relaxed);  // published by the threads' start
    window_start_.store(now_ns(), std::memory_order_relaxed);
    for (auto& worker : workers_) {
      threads_.emplace_back([this, w = worker.get()] {
        work(*w);
        // Release pairs with the acquire in left.
        if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) shared.wake_all();
      });
    }
  }
  // Waits at most so long until every worker has left; join then returns at once.
  bool left(int64_t timeout_ns) {
    std::unique_lock<std::mutex> hold(shared.sleep_lock);
    auto gone = [this] { return running_.load(std::memory_order_acquire) == 0; };
    shared.finished.wait_for(hold, std::chrono::nanoseconds(timeout_ns), gone);
    return gone();
  }
  // Gives up on workers that a function outside the engine does not return to. The engine must then
  // live as long as the process.
  void abandon() {
    for (auto& t : threads_) t.detach();
    threads_.clear();
  }
  void join() {
    for (auto& t : threads_) {
      if (t.joinable()) t.join();
    }
  }
  // Sources end at their next epoch; what was read is delivered.
  void stop() {
    shared.stopping.store(true, std::memory_order_release);
    shared.wake_all();
  }
  // Everything ends now; what is in flight is dropped.
  void abort() {
    shared.aborting.store(true, std::memory_order_release);
    shared.wake_all();
  }
  bool finished() const { return shared.aborting.load(std::memory_order_acquire); }
  bool wait(int64_t timeout_ns) {
    std::unique_lock<std::mutex> hold(shared.sleep_lock);
    shared.finished.wait_for(hold, std::chrono::nanoseconds(timeout_ns),
                             [this] { return finished(); });
    return finished();
  }

  bool schedule(std::shared_ptr<Control> control) {
    if (!epochs.schedule(std::move(control))) return false;
    shared.wake_all();
    return true;
  }
  // Waits until the item has reached every sink, or the run has ended.
  bool wait_control(Control& control, int64_t timeout_ns) {
    std::unique_lock<std::mutex> hold(shared.sleep_lock);
    auto arrived = [&] { return control.arrived.load(std::memory_order_acquire) >= sinks_total; };
    shared.finished.wait_for(hold, std::chrono::nanoseconds(timeout_ns),
                             [&] { return arrived() || finished(); });
    return arrived();
  }

  int64_t read() const {
    int64_t n = 0;
    for (const auto* s : sources_) n += s->read();
    return n;
  }
  void latency(Histogram& into) const {
    for (const auto& w : workers_) into.merge(w->latency);
  }
  const std::vector<std::unique_ptr<Stage>>& stages() const { return stages_; }
  const std::vector<SourceStage*>& sources() const { return sources_; }

  Shared shared;
  Epochs epochs;
  uint32_t sinks_total = 0;

 private:
  static constexpr int64_t kWindowNs = 10'000'000;
  static constexpr int kSpins = 64, kYields = 256;
  static constexpr int64_t kPollNs = 20'000, kLingerNs = 2'000'000;

  // What stages do not catch themselves (memory ran out between batches) ends the run, not the
  // process.
  void work(Worker& worker) {
    name_thread(worker.name.c_str());
    try {
      loop(worker);
      // The other nodes may still need what this one has sent.
      while (shared.network && worker.id == 0 && !shared.network->closed()) {
        shared.network->poll(kLingerNs);
      }
    } catch (const std::exception& error) {
      shared.fail(runtime_failure(0, error));
    }
  }

  void loop(Worker& worker) {
    std::vector<StageView> views;
    int idle = 0;
    int64_t polled = 0;
    while (!finished()) {
      if (shared.network && (idle || now_ns() - polled > kPollNs)) {
        if (shared.network->poll(0)) idle = 0;
        polled = now_ns();
      }
      const int picked = pick(views);
      int64_t n = picked >= 0 ? run_stage(*stages_[size_t(picked)], worker) : 0;
      if (n == 0) n = sweep(worker);
      if (n != 0) {
        idle = 0;
      } else if (++idle < kSpins) {
        cpu_relax();
      } else if (idle < kSpins + kYields || soon()) {
        std::this_thread::yield();
      } else {
        park(worker);
      }
    }
  }

  int pick(std::vector<StageView>& views) {
    const int64_t now = now_ns();
    int64_t start = window_start_.load(std::memory_order_relaxed);
    if (now - start > kWindowNs &&
        window_start_.compare_exchange_strong(start, now, std::memory_order_relaxed)) {
      for (auto& s : stages_) s->stats.window_ns.store(0, std::memory_order_relaxed);
    }
    view(views);
    return scheduler_->pick(views, options_);
  }

  void view(std::vector<StageView>& views) {
    views.assign(stages_.size(), StageView());
    const bool python_busy = shared.python_busy.load(std::memory_order_relaxed);
    for (size_t i = 0; i < stages_.size(); ++i) {
      Stage& stage = *stages_[i];
      StageStats& s = stage.stats;
      StageView& v = views[i];
      v.workers = s.workers.load(std::memory_order_relaxed);
      v.source = stage.before().empty();
      v.schedulable = uint32_t(v.workers) < stage.max_workers() && !(stage.python && python_busy) &&
                      stage.runnable();
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
      for (const Stage* b : stage.before()) views[b->index].waiting_output += v.waiting;
    }
  }

  int64_t run_stage(Stage& stage, Worker& worker) {
    StageStats& s = stage.stats;
    const double cost = s.cost_ns();
    const auto records = int64_t(options_.slice_ns / cost) + 1;
    s.workers.fetch_add(1, std::memory_order_relaxed);
    const int64_t start = now_ns();
    const int64_t n = stage.run(worker, records);
    const int64_t spent = now_ns() - start;
    s.workers.fetch_sub(1, std::memory_order_relaxed);
    if (n > 0) s.spent(spent, n);
    return n;
  }

  int64_t sweep(Worker& worker) {
    int64_t n = 0;
    for (size_t i = stages_.size(); i-- > 0 && n == 0;) {
      Stage& stage = *stages_[i];
      if (stage.releasable() && stage.can_send()) n += stage.try_release(worker);
      if (n == 0 && stage.runnable()) n += run_stage(stage, worker);
    }
    return n;
  }

  // Whether a source wants to be asked again sooner than parking would be worth.
  bool soon() const { return next_due() - now_ns() < 100'000; }
  int64_t next_due() const {
    int64_t due = INT64_MAX;
    for (const auto* s : sources_) {
      const int64_t d = s->due_ns();
      if (d > 0) due = std::min(due, d);
    }
    return due;
  }

  void park(Worker& worker) {
    std::unique_lock<std::mutex> hold(shared.sleep_lock);
    const uint64_t seen = shared.signals;
    // seq_cst pairs with the load in wake: either the waker sees us or the sweep below sees its
    // batch.
    shared.sleepers.fetch_add(1, std::memory_order_seq_cst);
    hold.unlock();
    if (sweep(worker) == 0) {
      const int64_t due = next_due();
      const int64_t most =
          due == INT64_MAX ? 2'000'000 : std::clamp<int64_t>(due - now_ns(), 0, 50'000'000);
      if (shared.network && !polling_.exchange(true, std::memory_order_acquire)) {
        shared.network->poll(most);  // one worker waits for the links, the others for it
        polling_.store(false, std::memory_order_release);  // pairs with the exchange
        shared.sleepers.fetch_sub(1, std::memory_order_seq_cst);
        return;
      }
      hold.lock();
      shared.sleep.wait_for(hold, std::chrono::nanoseconds(most),
                            [&] { return shared.signals != seen || finished(); });
      hold.unlock();
    }
    shared.sleepers.fetch_sub(1, std::memory_order_seq_cst);
  }

  std::unique_ptr<Scheduler> scheduler_;
  SchedulerOptions options_;
  std::vector<std::unique_ptr<Stage>> stages_;
  std::vector<SourceStage*> sources_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::thread> threads_;
  std::atomic<int64_t> window_start_{0};
  std::atomic<unsigned> running_{0};  // workers that have not left
  std::atomic<bool> polling_{false};  // a worker waits for the links
};

}  // namespace plait
