// Builder: puts an Engine together from plain calls, so that the binding holds no C++ ownership of
// its own.
#pragma once

#include <algorithm>
#include <bit>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plait/engine/engine.hpp"
#include "plait/exchange/cluster.hpp"
#include "plait/joins/make_join_lane.hpp"
#include "plait/pool/pool.hpp"
#include "plait/pool/pooled_stage.hpp"
#include "plait/sources/rate_origin.hpp"
#include "plait/stages/call_operator.hpp"
#include "plait/stages/deferred_stage.hpp"
#include "plait/stages/parallel_stage.hpp"
#include "plait/stages/process_stage.hpp"
#include "plait/stages/timed_stage.hpp"
#include "plait/windows/make_window_lane.hpp"

namespace plait {

class Builder {
 public:
  explicit Builder(Engine& engine) : engine_(engine) {}

  StageLimits limits;
  int64_t epoch_records = 4096, limit = -1;

  void filter(uint32_t node, int on_error, std::shared_ptr<Program> predicate) {
    operators_.push_back(
        std::make_unique<FilterOperator>(node, OnError(on_error), std::move(predicate)));
  }
  void project(uint32_t node, int on_error, bool hidden) {
    items_.clear();
    project_ = {node, on_error, hidden};
  }
  void item(std::shared_ptr<Program> program, uint32_t from) {
    items_.push_back({std::move(program), from});
  }
  void end_project() {
    operators_.push_back(std::make_unique<ProjectOperator>(
        project_.node, OnError(project_.on_error), items_, project_.hidden));
  }
  void call(uint32_t node, int on_error, CallOperator::Function function, void* context,
            std::vector<Type> types) {
    operators_.push_back(std::make_unique<CallOperator>(node, OnError(on_error), function, context,
                                                        std::move(types)));
  }
  // In front of a keyed operator: counts its rows, and takes out those with a NaN in these key
  // columns.
  void key_guard(uint32_t node, int on_error, std::vector<uint32_t> float_keys) {
    operators_.push_back(
        std::make_unique<NanKeyFilter>(node, OnError(on_error), std::move(float_keys)));
  }
  // What was added so far runs before the keyed state; the rest behind it.
  void keyed(uint32_t node, std::shared_ptr<KeyedPlan> plan) {
    keyed_node_ = node;
    plan_ = std::move(plan);
    before_ = std::move(operators_);
    operators_ = Operators();
  }

  // What was added so far runs before the rows go to their nodes. `sub_bits` and `repeats`: see
  // Routing and UnionStage. Kind Key: by the plan given to keyed; Bin: `node` has one state; Home,
  // Pinned: to that node.
  uint32_t route_stage(const std::string& name, uint32_t channel, int kind, uint32_t node,
                       std::shared_ptr<KeyedPlan> plan, uint32_t home, bool repeats,
                       bool tags = true) {
    Routing routing{Routing::Kind(kind), std::move(plan), node, home, repeats, tags};
    auto& s = engine_.add(std::make_unique<RouteStage>(name, limits, channel, std::move(routing),
                                                       std::move(before_), *cluster));
    before_ = Operators();
    cluster->add_outlet(channel, s);
    if (kind == int(Routing::Kind::Home) && home != cluster->here()) {  // the end of the way here
      ++engine_.sinks_total;
      engine_.shared.sinks_open.fetch_add(1);
    }
    return s.index;
  }
  uint32_t gather_stage(const std::string& name, uint32_t channel, uint32_t node,
                        std::vector<uint32_t> sources, bool unique, bool tags = true,
                        bool index = false) {
    auto& s = engine_.add(std::make_unique<GatherStage>(
        name, limits, channel, node, std::move(sources), unique, tags, index, *cluster));
    cluster->add_inlet(channel, s);
    return s.index;
  }
  // Several nodes: before anything is added.
  void join_cluster(Cluster& joined) {
    cluster = &joined;
    joined.attach(engine_.epochs, engine_.shared);
  }
  Cluster* cluster = nullptr;

  uint32_t parallel_stage(const std::string& name, bool python) {
    auto& s = engine_.add(std::make_unique<ParallelStage>(name, limits, std::move(operators_)));
    s.python = python;
    return done(s);
  }
  // One operator whose batches are worked on outside; at most `in_flight` of them at a time. Its
  // ring has room for so many, whatever the limits say.
  uint32_t deferred_stage(const std::string& name, uint32_t node, int on_error,
                          std::vector<Type> types, std::shared_ptr<Outside> outside,
                          uint32_t in_flight) {
    auto call =
        std::make_unique<CallOperator>(node, OnError(on_error), nullptr, nullptr, std::move(types));
    StageLimits own = limits;
    own.batches = std::max(own.batches, std::bit_ceil(in_flight));
    return done(engine_.add(std::make_unique<DeferredStage>(name, own, std::move(call),
                                                            std::move(outside), in_flight)));
  }
  // The functions that were added so far, in one trip to the pool of worker processes.
  uint32_t pool_stage(const std::string& name, std::shared_ptr<PoolOutside> outside) {
    std::vector<std::unique_ptr<CallOperator>> calls;
    for (auto& one : operators_) {
      calls.emplace_back(&dynamic_cast<CallOperator&>(*one));
      (void)one.release();
    }
    return done(engine_.add(std::make_unique<DeferredStage>(
        name, limits, CallChain(std::move(calls)), std::move(outside), limits.batches)));
  }
  uint32_t keyed_stage(const std::string& name, uint32_t lanes, int queue, unsigned workers) {
    auto& s = engine_.add(std::make_unique<KeyedStage>(name, limits, keyed_node_, std::move(plan_),
                                                       lanes, QueueKind(queue), workers,
                                                       std::move(before_), std::move(operators_)));
    if (cluster) s.moves(*cluster);
    s.keeps_bits = true;
    return done(s);
  }
  // What was added so far runs before the operator that knows time; the rest behind it.
  void timed(uint32_t node, std::shared_ptr<TimedPlan> plan) {
    keyed_node_ = node;
    timed_ = std::move(plan);
    timed_->nodes = cluster != nullptr;
    before_ = std::move(operators_);
    operators_ = Operators();
    engine_.epochs.closes = true;
  }
  uint32_t timed_stage(const std::string& name, int queue, unsigned workers) {
    const auto kind = timed_->spec.kind;
    const bool join = kind == TimedSpec::Kind::Join || kind == TimedSpec::Kind::Span;
    auto& s = engine_.add(std::make_unique<TimedStage>(
        name, limits, keyed_node_, std::move(timed_), join ? make_join_lane : make_window_lane,
        QueueKind(queue), workers, std::move(before_), std::move(operators_)));
    if (cluster) s.moves(*cluster);
    return done(s);
  }
  uint32_t state_stage(const std::string& name, PythonStateStage::ControlFunction control,
                       void* context, bool keyless) {
    auto& s = engine_.add(std::make_unique<PythonStateStage>(
        name, limits, std::move(operators_.front()), control, context));
    s.python = true;
    if (cluster) s.moves(*cluster, keyless);
    return done(s);
  }
  // The same, with the state in worker processes as soon as `lanes` says so. `keys`: of the plan
  // only what it says of keys and bins counts.
  uint32_t pooled_state_stage(const std::string& name, PythonStateStage::ControlFunction control,
                              PythonStateStage::ControlFunction hand_over, void* context,
                              bool keyless, std::shared_ptr<PoolLanes> lanes,
                              std::shared_ptr<KeyedPlan> keys) {
    std::unique_ptr<CallOperator> op(&dynamic_cast<CallOperator&>(*operators_.front()));
    (void)operators_.front().release();
    auto work = std::make_unique<RowsWork>(*op, lanes, std::move(keys));
    auto& s = engine_.add(std::make_unique<PooledStage<PythonStateStage>>(
        name, limits, std::move(op), control, hand_over, context, std::move(work),
        std::move(lanes)));
    if (cluster) s.moves(*cluster, keyless);
    return done(s);
  }
  uint32_t pooled_process_stage(const std::string& name, uint32_t node, int on_error,
                                std::shared_ptr<TimedPlan> plan, ProcessOperator::Function function,
                                PythonStateStage::ControlFunction control,
                                PythonStateStage::ControlFunction hand_over, void* context,
                                std::vector<Type> types, bool keyless,
                                std::shared_ptr<PoolLanes> lanes, std::shared_ptr<KeyedPlan> keys) {
    engine_.epochs.closes = true;
    auto op = std::make_unique<ProcessOperator>(node, OnError(on_error), function, context,
                                                std::move(types), UnitTime(plan->sources),
                                                cluster != nullptr, plan->sub_bits, false);
    auto work = std::make_unique<UnitsWork>(*op, lanes, std::move(keys));
    auto& s = engine_.add(
        std::make_unique<PooledStage<ProcessStage>>(name, limits, std::move(op), control, hand_over,
                                                    context, std::move(work), std::move(lanes)));
    if (cluster) s.moves(*cluster, keyless);
    return done(s);
  }
  // A process with timers; of the plan only what it says of time and order counts. `pinned`: an
  // operator with its own loop, which stays where it is and is told when sources end.
  uint32_t process_stage(const std::string& name, uint32_t node, int on_error,
                         std::shared_ptr<TimedPlan> plan, ProcessOperator::Function function,
                         PythonStateStage::ControlFunction control, void* context,
                         std::vector<Type> types, bool keyless, bool pinned = false) {
    engine_.epochs.closes = true;
    auto op = std::make_unique<ProcessOperator>(node, OnError(on_error), function, context,
                                                std::move(types), UnitTime(plan->sources),
                                                cluster != nullptr, plan->sub_bits, pinned);
    auto& s =
        engine_.add(std::make_unique<ProcessStage>(name, limits, std::move(op), control, context));
    s.python = true;
    if (cluster && !pinned) s.moves(*cluster, keyless);
    return done(s);
  }
  uint32_t union_stage(const std::string& name, uint32_t node,
                       std::vector<std::vector<uint32_t>> carries, int sub_bits = -1) {
    return done(engine_.add(
        std::make_unique<UnionStage>(name, limits, node, std::move(carries), sub_bits)));
  }
  // keep: rows stay in memory; write: rows go to the function; neither: rows are let go.
  uint32_t sink_stage(const std::string& name, uint32_t node, SinkStage::Write write, void* context,
                      bool keep, int64_t most) {
    auto& s = engine_.add(std::make_unique<SinkStage>(name, limits, node, write, context));
    s.keep = keep;
    s.limit = most;
    s.python = write != nullptr;
    ++engine_.sinks_total;
    return done(s);
  }
  uint32_t table_source(const std::string& name, uint32_t node, uint32_t source,
                        std::vector<Batch> chunks, const std::vector<Type>& types, double rate) {
    return add_source(name, node, source, types,
                      std::make_unique<TableOrigin>(std::move(chunks), rate));
  }
  uint32_t rate_source(const std::string& name, uint32_t node, uint32_t source,
                       const std::vector<Type>& types, double rate, int64_t total, int64_t start_us,
                       int64_t first, bool paced) {
    return add_source(name, node, source, types,
                      std::make_unique<RateOrigin>(rate, total, start_us, first, paced));
  }
  uint32_t outside_source(const std::string& name, uint32_t node, uint32_t source,
                          const std::vector<Type>& types, OutsideOrigin::Poll poll,
                          OutsideOrigin::Position position, void* context) {
    return add_source(name, node, source, types,
                      std::make_unique<OutsideOrigin>(poll, position, context));
  }
  // Several nodes: another node reads this source.
  uint32_t no_source(const std::string& name, uint32_t node, uint32_t source,
                     const std::vector<Type>& types) {
    return add_source(name, node, source, types, std::make_unique<NoOrigin>());
  }
  void pace(uint32_t source, double rows) { engine_.sources()[source]->paced_rows = rows; }
  // The source's event time, and how long (ns) without rows it is idle; 0: never.
  void event_time(uint32_t source, int column, int64_t idle_ns) {
    engine_.sources()[source]->time_column = column;
    engine_.sources()[source]->idle_ns = idle_ns;
  }
  // Units of all sources carry the wall clock, and come at least so often.
  void beat(int64_t ns) {
    for (auto& source : engine_.sources()) source->beat_ns = ns;
  }
  void connect(uint32_t from, uint32_t to, uint32_t input) {
    engine_.stages()[from]->connect(*engine_.stages()[to], input);
  }
  void last_node(uint32_t stage, uint32_t node) { engine_.stages()[stage]->last_op = node; }

 private:
  uint32_t add_source(const std::string& name, uint32_t node, uint32_t source,
                      const std::vector<Type>& types, std::unique_ptr<Origin> origin) {
    auto& s =
        engine_.add(std::make_unique<SourceStage>(name, limits, node, source, engine_.epochs,
                                                  std::move(origin), types, epoch_records, limit));
    if (cluster) {
      s.layouts = &cluster->layouts();
      s.rank = cluster->here();
    }
    return done(s);
  }
  uint32_t done(Stage& stage) {
    operators_ = Operators();
    before_ = Operators();
    return stage.index;
  }

  struct ProjectHead {
    uint32_t node = 0;
    int on_error = 0;
    bool hidden = false;
  };
  Engine& engine_;
  Operators operators_, before_;
  std::vector<ProjectOperator::Item> items_;
  ProjectHead project_;
  uint32_t keyed_node_ = 0;
  std::shared_ptr<KeyedPlan> plan_;
  std::shared_ptr<TimedPlan> timed_;
};

// Rows a sink kept, one batch after the other.
inline const std::vector<Batch>& kept_of(const Engine& engine, uint32_t stage) {
  return static_cast<const SinkStage&>(*engine.stages()[stage]).kept;
}

}  // namespace plait
