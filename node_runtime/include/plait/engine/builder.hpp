// Builder: puts an Engine together, a stage for each spec, so that the binding owns no C++ objects.
//
// One thread, before the start. Each call gives the number of the stage that it added; `connect`
// joins two of them.
#pragma once

#include <algorithm>
#include <bit>
#include <memory>
#include <utility>
#include <vector>

#include "plait/engine/engine.hpp"
#include "plait/engine/stage_specs.hpp"
#include "plait/exchange/cluster.hpp"
#include "plait/joins/make_join_lane.hpp"
#include "plait/pool/pooled_stage.hpp"
#include "plait/pool/rows_work.hpp"
#include "plait/pool/units_work.hpp"
#include "plait/sources/rate_origin.hpp"
#include "plait/stages/deferred_stage.hpp"
#include "plait/windows/make_window_lane.hpp"

namespace plait {

class Builder {
 public:
  // `cluster`: the job runs on several nodes; it outlives the engine.
  explicit Builder(Engine& engine, Cluster* cluster = nullptr)
      : engine_(engine), cluster_(cluster) {
    if (cluster_) cluster_->attach(engine_.epochs, engine_.shared);
  }

  StageLimits limits;  // of all stages

  uint32_t parallel_stage(ParallelStageSpec spec) {
    auto& s = add<ParallelStage>(spec.stage, std::move(spec.operators));
    s.python = spec.python;
    return s.index;
  }
  uint32_t deferred_stage(DeferredStageSpec spec) {
    auto call = std::make_unique<CallOperator>(spec.op, spec.on_error, nullptr, nullptr,
                                               std::move(spec.types));
    StageLimits own = limits_of(spec.stage);
    own.batches = std::max(own.batches, std::bit_ceil(spec.in_flight));
    return place(spec.stage,
                 std::make_unique<DeferredStage>(spec.stage.name, own, std::move(call),
                                                 std::move(spec.outside), spec.in_flight))
        .index;
  }
  uint32_t pool_stage(PoolStageSpec spec) {
    std::vector<std::unique_ptr<CallOperator>> calls;
    for (auto& op : spec.calls) {
      calls.emplace_back(&dynamic_cast<CallOperator&>(*op));
      (void)op.release();
    }
    return add<DeferredStage>(spec.stage, CallChain(std::move(calls)), std::move(spec.outside),
                              limits.batches)
        .index;
  }
  uint32_t keyed_stage(KeyedStageSpec spec) {
    const uint32_t lanes = spec.plan->lanes();
    auto& s = add<KeyedStage>(spec.stage, spec.op, std::move(spec.plan), lanes, spec.queue,
                              engine_.workers(), std::move(spec.before), std::move(spec.after),
                              std::move(spec.errors));
    if (cluster_) s.moves(*cluster_);
    s.keeps_bits = true;
    return s.index;
  }
  uint32_t timed_stage(TimedStageSpec spec) {
    spec.plan->nodes = cluster_ != nullptr;
    engine_.epochs.closes = true;
    const auto kind = spec.plan->spec.kind;
    const bool join = kind == TimedSpec::Kind::Join || kind == TimedSpec::Kind::Span;
    auto& s =
        add<TimedStage>(spec.stage, spec.op, std::move(spec.plan),
                        join ? make_join_lane : make_window_lane, spec.queue, engine_.workers(),
                        std::move(spec.before), std::move(spec.after), std::move(spec.errors));
    if (cluster_) s.moves(*cluster_);
    return s.index;
  }
  uint32_t state_stage(StateStageSpec spec) {
    PythonState& state = spec.state;
    if (state.lanes) {
      auto work = std::make_unique<RowsWork>(*spec.call, state.lanes, std::move(state.keys));
      return movable(
          add_pooled<PythonStateStage>(spec.stage, std::move(spec.call), state, std::move(work)),
          state);
    }
    auto& s = add<PythonStateStage>(spec.stage, std::move(spec.call), state.control, state.context);
    s.python = true;
    return movable(s, state);
  }
  uint32_t process_stage(ProcessStageSpec spec) {
    engine_.epochs.closes = true;
    PythonState& state = spec.state;
    auto op = std::make_unique<ProcessOperator>(
        spec.op, spec.on_error, spec.function, state.context, std::move(spec.types),
        UnitTime(spec.plan->origins), cluster_ != nullptr, spec.plan->sub_bits, spec.pinned);
    if (state.lanes) {
      auto work = std::make_unique<UnitsWork>(*op, state.lanes, std::move(state.keys));
      return movable(add_pooled<ProcessStage>(spec.stage, std::move(op), state, std::move(work)),
                     state);
    }
    auto& s = add<ProcessStage>(spec.stage, std::move(op), state.control, state.context);
    s.python = true;
    return spec.pinned ? s.index : movable(s, state);
  }
  uint32_t route_stage(RouteStageSpec spec) {
    const bool ends =
        spec.routing.kind == Routing::Kind::Home && spec.routing.home != cluster_->here();
    auto& s = add<RouteStage>(spec.stage, spec.channel, std::move(spec.routing),
                              std::move(spec.operators), *cluster_);
    cluster_->add_outlet(spec.channel, s);
    if (ends) {  // no stage of this node comes after it
      ++engine_.sinks_total;
      engine_.shared.sinks_open.fetch_add(1);
    }
    return s.index;
  }
  uint32_t gather_stage(GatherStageSpec spec) {
    auto& s = add<GatherStage>(spec.stage, spec.channel, spec.op, std::move(spec.sources),
                               spec.unique, spec.tags, spec.index, *cluster_);
    cluster_->add_inlet(spec.channel, s);
    return s.index;
  }
  uint32_t union_stage(UnionStageSpec spec) {
    return add<UnionStage>(spec.stage, spec.op, std::move(spec.carries), spec.sub_bits).index;
  }
  uint32_t sink_stage(SinkStageSpec spec) {
    auto& s = add<SinkStage>(spec.stage, spec.op, spec.write, spec.context);
    s.keep = spec.keep;
    s.limit = spec.limit;
    s.note_mark = spec.note_mark;
    s.marks_itself = spec.marks_itself;
    s.last_source = spec.last_source;
    s.delivered_before = spec.delivered_before;
    s.python = spec.write != nullptr;
    ++engine_.sinks_total;
    return s.index;
  }
  // `rate`: records a second of a replay; 0: as fast as they are taken.
  // `first`: the row to begin with.
  uint32_t table_source(const SourceStageSpec& spec, std::vector<Batch> chunks, double rate,
                        int64_t first = 0) {
    return add_source(spec, std::make_unique<TableOrigin>(std::move(chunks), rate, first));
  }
  uint32_t rate_source(const SourceStageSpec& spec, const RateSpec& rate) {
    return add_source(spec, std::make_unique<RateOrigin>(rate.per_s, rate.total, rate.start_us,
                                                         rate.first, rate.paced));
  }
  uint32_t outside_source(const SourceStageSpec& spec, OutsideOrigin::Poll poll,
                          OutsideOrigin::Position position, void* context) {
    return add_source(spec, std::make_unique<OutsideOrigin>(poll, position, context));
  }
  // Several nodes: another node reads this source.
  uint32_t no_source(const SourceStageSpec& spec) {
    return add_source(spec, std::make_unique<NoOrigin>());
  }

  void pace(uint32_t source, double rows) { engine_.sources()[source]->paced_rows = rows; }
  // The source's event time, and how long (ns) without rows it is idle; 0: never.
  void event_time(uint32_t source, int column, int64_t idle_ns) {
    engine_.sources()[source]->time_column = column;
    engine_.sources()[source]->idle_ns = idle_ns;
  }
  // The order is that of event time: of each source, the time that it goes by. All sources are read
  // here, or by all nodes.
  void order_by_time(const std::vector<SliceTime>& times) {
    engine_.slicer = std::make_unique<TimeSlicer>(times.size());
    for (size_t s = 0; s < times.size(); ++s) {
      engine_.sources()[s]->order_by_time(*engine_.slicer, times[s]);
    }
  }
  // Units of all sources carry the wall clock, and come at least this often.
  void beat(int64_t ns) {
    for (auto& source : engine_.sources()) source->clock.beat_ns = ns;
  }
  void connect(uint32_t from, uint32_t to, uint32_t input) {
    engine_.stages()[from]->connect(*engine_.stages()[to], input);
  }
  // The operator whose fan-out behind this stage counts as copied.
  void last_op(uint32_t stage, uint32_t op) { engine_.stages()[stage]->last_op = op; }

 private:
  StageLimits limits_of(const StageSpec& spec) const {
    StageLimits own = limits;
    own.ordered = spec.ordered;
    return own;
  }
  template <class S>
  S& place(const StageSpec& spec, std::unique_ptr<S> stage) {
    stage->threading = spec.threading;
    stage->region = spec.region;
    return engine_.add(std::move(stage));
  }
  template <class S, class... Args>
  S& add(const StageSpec& spec, Args&&... args) {
    return place(spec,
                 std::make_unique<S>(spec.name, limits_of(spec), std::forward<Args>(args)...));
  }
  template <class S, class Op, class Work>
  S& add_pooled(const StageSpec& spec, std::unique_ptr<Op> op, PythonState& state,
                std::unique_ptr<Work> work) {
    return add<PooledStage<S>>(spec, std::move(op), state.control, state.hand_over, state.context,
                               std::move(work), std::move(state.lanes));
  }
  uint32_t add_source(const SourceStageSpec& spec, std::unique_ptr<Origin> origin) {
    auto& s = add<SourceStage>(spec.stage, spec.op, spec.source, engine_.epochs, std::move(origin),
                               spec.types, spec.epoch_records, spec.limit);
    s.on_error = spec.on_error;
    if (cluster_) {
      s.layouts = &cluster_->layouts();
      s.rank = cluster_->here();
      s.start = &cluster_->start();
    }
    return s.index;
  }
  uint32_t movable(PythonStateStage& stage, const PythonState& state) {
    if (cluster_) stage.moves(*cluster_, state.keyless);
    return stage.index;
  }

  Engine& engine_;
  Cluster* const cluster_;
};

// Rows a sink kept since the last mark, one batch after the other; after the run.
inline const std::vector<Batch>& kept_of(const Engine& engine, uint32_t stage) {
  return static_cast<const SinkStage&>(*engine.stages()[stage]).kept;
}
// Those it kept before the last mark, once.
inline int64_t mark_complete(Engine& engine, uint32_t stage) {
  return static_cast<SinkStage&>(*engine.stages()[stage]).mark_complete(engine.shared);
}
inline void want_no_mark(Engine& engine, uint32_t stage) {
  static_cast<SinkStage&>(*engine.stages()[stage]).want_no_mark();
}
inline std::vector<Batch> take_closed(Engine& engine, uint32_t stage) {
  return static_cast<SinkStage&>(*engine.stages()[stage]).take_closed();
}

}  // namespace plait
