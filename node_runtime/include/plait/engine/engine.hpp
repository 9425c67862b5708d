// Engine: the stages of one job on this machine, and the threads that run them.
//
// Stages are added before the start and then divided among crews (crew.hpp) by their threading
// model: all dynamic stages make one crew of so many workers, each dedicated stage has a thread of
// its own, and each manual region has one. Control, stop and abort may be called from any thread
// while it runs; results are read after join.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "plait/exchange/gather_stage.hpp"
#include "plait/exchange/route_stage.hpp"
#include "plait/scheduling/crew.hpp"
#include "plait/scheduling/find_in_order.hpp"
#include "plait/scheduling/find_listed.hpp"
#include "plait/scheduling/find_scheduled.hpp"
#include "plait/scheduling/queue_schedulers.hpp"
#include "plait/stages/keyed_stage.hpp"
#include "plait/stages/sink_stage.hpp"
#include "plait/stages/union_stage.hpp"

namespace plait {

class Engine {
 public:
  // `workers`: of the dynamic stages. `scheduler`: theirs, by name; "lru" is the free list.
  Engine(size_t operators, size_t sources, unsigned workers, const std::string& scheduler,
         double slice_ns)
      : shared(operators, workers),
        epochs(sources),
        workers_wanted_(workers),
        scheduler_name_(scheduler) {
    options.slice_ns = slice_ns;
    epochs.counts = &shared.counts;
    epochs.keeps = &shared.keeps;
    if (scheduler != kFreeList) {
      scheduler_ = make_scheduler(scheduler);
      if (!scheduler_) throw std::invalid_argument("no scheduler " + scheduler);
    }
  }
  // In place of the one named: from outside. Before the start.
  void use(const plait_scheduler& scheduler) {
    scheduler_name_ = scheduler.name ? scheduler.name : "native";
    scheduler_ = std::make_unique<NativeScheduler>(scheduler);
  }
  void use(PythonScheduler::Ask ask, void* context) {
    scheduler_name_ = "python";
    python_scheduler_ = std::make_unique<PythonScheduler>(ask, context);
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
      ref.failing = &shared.failing;
    }
    if constexpr (std::is_same_v<S, SinkStage>) shared.sinks_open.fetch_add(1);
    stages_.push_back(std::move(stage));
    return ref;
  }

  // Runs a control item on all state before the start.
  void control_now(Control& control) {
    for (auto& stage : stages_) stage->control_now(control);
  }
  // Before the start: the job goes on with this epoch and with these rows of its sources; `skips`
  // rows of each come again, `slices` is how far the order of time was. False: it was not so far.
  bool start_at(uint64_t epoch, const std::vector<int64_t>& rows, const std::vector<int64_t>& skips,
                const std::vector<int64_t>& slices) {
    epochs.start_at(epoch);
    for (size_t s = 0; s < sources_.size(); ++s) sources_[s]->start_at(rows[s], skips[s]);
    return !slicer || slicer->restore(epoch, slices);
  }
  // Before the start, on several nodes: the epochs of sources that all read begin with these rows.
  void slice_from(uint64_t epoch, const std::vector<int64_t>& rows, int64_t epoch_records) {
    for (size_t s = 0; s < sources_.size(); ++s) {
      sources_[s]->slice_from(epoch, rows[s], epoch_records);
    }
  }
  // Before the start: control items say where the sources can go on.
  void keep_positions() {
    for (SourceStage* source : sources_) source->keep_positions();
  }
  // Before the start, of a job that may have to repeat epochs: whether sources log their cuts here
  // and give units their stamps. Of several nodes one does, so that its log says all.
  void keep_cuts(bool here) {
    for (SourceStage* source : sources_) source->logs = source->stamps_units = here;
  }
  // Before the start: the epochs before `until` have the cuts of before, one script a source.
  void repeat(std::vector<Script> scripts, uint64_t until) {
    std::vector<uint64_t> skips;
    for (size_t s = 0; s < sources_.size(); ++s) {
      for (size_t i = 0; i < scripts[s].cuts.size(); ++i) {
        if (scripts[s].cuts[i].skipped()) skips.push_back(scripts[s].first + i);
      }
    }
    std::sort(skips.begin(), skips.end());
    if (slicer) slicer->repeat(scripts, std::move(skips), until);
    for (size_t s = 0; s < sources_.size(); ++s) sources_[s]->repeat(std::move(scripts[s]));
    epochs.repeat_until(until);
  }
  void start() {
    make_crews();
    running_.store(unsigned(workers_.size()),
                   std::memory_order_relaxed);  // published by the threads' start
    try {
      for (auto& [crew, worker] : workers_) {
        threads_.emplace_back([this, crew = crew, w = worker.get()] {
          work(*crew, *w);
          // Release pairs with the acquire in left.
          if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) shared.wake_all();
        });
      }
    } catch (const std::system_error&) {
      abort();
      throw std::runtime_error(
          "the system gave " + std::to_string(threads_.size()) + " of the " +
          std::to_string(workers_.size()) +
          " threads that the job needs; the dynamic threading model needs one for each worker");
    }
  }
  // Waits at most so long until every worker has left; join then returns at once.
  bool left(int64_t timeout_ns) {
    std::unique_lock<std::mutex> hold(shared.watch_lock);
    auto gone = [this] { return running_.load(std::memory_order_acquire) == 0; };
    shared.watch.wait_for(hold, std::chrono::nanoseconds(timeout_ns), gone);
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
  // Sources end at their next epoch; what was read is delivered. `flush`: as if they were at their
  // end, so that windows close.
  void stop(bool flush = false) {
    epochs.flush(flush);
    shared.stopping.store(true, std::memory_order_release);
    shared.wake_all();
  }
  // Everything ends now; what is in flight is dropped.
  void abort() { shared.end(); }
  bool finished() const { return shared.aborting.load(std::memory_order_acquire); }
  bool wait(int64_t timeout_ns) {
    std::unique_lock<std::mutex> hold(shared.watch_lock);
    shared.watch.wait_for(hold, std::chrono::nanoseconds(timeout_ns),
                          [this] { return finished(); });
    return finished();
  }

  // From now on so many workers take part; at least one does, and at most as many as there are.
  void set_level(unsigned level) {
    shared.levels.set(level);
    shared.wake_all();
  }
  // At most so many workers are in the stage at a time from now on.
  void set_stage_limit(size_t stage, uint32_t workers) {
    stages_.at(stage)->limit.store(std::max(workers, 1u), std::memory_order_relaxed);
    shared.wake_all();
  }

  bool schedule(std::shared_ptr<Control> control) {
    if (!epochs.schedule(std::move(control))) return false;
    shared.wake_all();
    return true;
  }
  // Waits until the item has reached every sink, or the run has ended.
  bool wait_control(Control& control, int64_t timeout_ns) {
    std::unique_lock<std::mutex> hold(shared.watch_lock);
    auto arrived = [&] { return control.arrived.load(std::memory_order_acquire) >= sinks_total; };
    shared.watch.wait_for(hold, std::chrono::nanoseconds(timeout_ns),
                          [&] { return arrived() || finished(); });
    return arrived();
  }

  // Writes what a mark that has arrived left to be written, for at most so long; whether that was
  // all. A thread beside the workers, one at a time.
  bool save(Control& mark, int64_t timeout_ns) {
    const int64_t until = now_ns() + timeout_ns;
    // Acquire pairs with the release of who wrote the last bins.
    while (mark.unsaved.load(std::memory_order_acquire)) {
      for (auto& stage : stages_) stage->save_some();
      if (mark.unsaved.load(std::memory_order_acquire) == 0) break;
      if (now_ns() >= until) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    return true;
  }

  int64_t read() const {
    int64_t n = 0;
    for (const auto* s : sources_) n += s->read();
    return n;
  }
  void latency(Histogram& into) const {
    for (const auto& [crew, worker] : workers_) into.merge(worker->latency);
  }
  // Processor time of its workers outside of stages, in nanoseconds.
  int64_t rest_ns() const {
    int64_t n = 0;
    for (const auto& [crew, worker] : workers_)
      n += worker->cpu.rest.load(std::memory_order_relaxed);
    return n;
  }
  // How often its workers have looked for work, and gone to sleep: few looks for a sleep if there
  // is little to do.
  std::pair<uint64_t, uint64_t> looks_and_sleeps() const {
    uint64_t looks = 0, sleeps = 0;
    for (const auto& [crew, worker] : workers_) {
      looks += worker->looks.load(std::memory_order_relaxed);
      sleeps += worker->sleeps.load(std::memory_order_relaxed);
    }
    return {looks, sleeps};
  }
  const std::vector<std::unique_ptr<Stage>>& stages() const { return stages_; }
  const std::vector<SourceStage*>& sources() const { return sources_; }

  size_t threads() const { return workers_.size(); }
  unsigned workers() const { return workers_wanted_; }  // of the dynamic stages

  Shared shared;
  Epochs epochs;
  std::unique_ptr<TimeSlicer> slicer;  // if the order is that of event time
  uint32_t sinks_total = 0;
  SchedulerOptions options;  // until the start

  static constexpr const char* kFreeList = "lru";

 private:
  void make_crews() {
    std::vector<Stage*> dynamic;
    std::map<uint32_t, std::vector<Stage*>> manual;
    for (auto& stage : stages_) {
      switch (stage->threading) {
        case Threading::Dynamic:
          dynamic.push_back(stage.get());
          break;
        case Threading::Manual:
          manual[stage->region].push_back(stage.get());
          break;
        case Threading::Dedicated:
          add_crew(Threading::Dedicated, {stage.get()});
      }
    }
    for (auto& [number, stages] : manual) add_crew(Threading::Manual, std::move(stages));
    // Somebody must serve the links, even if no stage is dynamic.
    if (!dynamic.empty() || shared.network) add_crew(Threading::Dynamic, std::move(dynamic));
    for (auto& crew : crews_) {
      shared.bells.push_back(&crew->bell);
      if (crews_.size() > 1 && crew->python()) shared.python_bells.push_back(&crew->bell);
      for (SourceStage* source : crew->sources()) {
        for (auto& other : crews_) {
          if (other != crew && !other->sources().empty()) source->peers.push_back(&other->bell);
        }
      }
    }
  }
  void add_crew(Threading model, std::vector<Stage*> stages) {
    crews_.push_back(std::make_unique<Crew>(model, std::move(stages), shared));
    Crew& crew = *crews_.back();
    if (model != Threading::Dynamic) {
      crew.finder = std::make_unique<FindInOrder>(crew.stages(), options);
    } else if (!scheduler_ && !python_scheduler_) {
      crew.finder = std::make_unique<FindListed>(crew.stages(), options);
    } else {
      crew.finder =
          std::make_unique<FindScheduled>(crew.stages(), stages_, options, scheduler_name_,
                                          std::move(scheduler_), std::move(python_scheduler_));
    }
    const bool idle = crew.stages().empty();
    const unsigned count = model == Threading::Dynamic && !idle ? workers_wanted_ : 1;
    for (unsigned w = 0; w < count; ++w) {
      const std::string name = model == Threading::Dynamic ? "plait-w" + std::to_string(w)
                               : model == Threading::Dedicated
                                   ? "plait-d" + std::to_string(crew.stages()[0]->index)
                                   : "plait-m" + std::to_string(crew.stages()[0]->region);
      workers_.emplace_back(&crew, std::make_unique<Worker>(w, count, shared, name));
    }
  }

  // What stages do not catch themselves (memory ran out between batches) ends the run, not the
  // process.
  void work(Crew& crew, Worker& worker) {
    name_thread(worker.name.c_str());
    try {
      crew.work(worker);
      worker.cpu.settle();
    } catch (const std::exception& error) {
      shared.fail(runtime_failure(0, error));
    }
  }

  const unsigned workers_wanted_;
  std::string scheduler_name_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<PythonScheduler> python_scheduler_;
  std::vector<std::unique_ptr<Crew>> crews_;  // outlive the stages, to which others may still bring
  std::vector<std::unique_ptr<Stage>> stages_;
  std::vector<SourceStage*> sources_;
  std::vector<std::pair<Crew*, std::unique_ptr<Worker>>> workers_;
  std::vector<std::thread> threads_;
  std::atomic<unsigned> running_{0};  // workers that have not left
};

}  // namespace plait
