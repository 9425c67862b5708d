// What the stages of an engine are made from: one structure for each kind, filled field by field.
//
// Plain values and what a stage will own; a spec is used up by the Builder. Functions with a
// context are called by the workers, as the header of their stage says.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plait/exchange/route_stage.hpp"
#include "plait/pool/pool.hpp"
#include "plait/pool/pool_lanes.hpp"
#include "plait/shedding/shed_operator.hpp"
#include "plait/stages/call_operator.hpp"
#include "plait/stages/event_time_operator.hpp"
#include "plait/stages/lane_stage.hpp"
#include "plait/stages/nan_key_filter.hpp"
#include "plait/stages/parallel_stage.hpp"
#include "plait/stages/process_stage.hpp"
#include "plait/stages/python_state_stage.hpp"
#include "plait/stages/row_operators.hpp"
#include "plait/stages/sink_stage.hpp"
#include "plait/stages/timed_stage.hpp"

namespace plait {

// What every stage has.
struct StageSpec {
  std::string name{};
  Threading threading = Threading::Dynamic;
  uint32_t region = 0;  // stages of one manual region share a thread
  bool ordered = true;  // its batches leave in the order in which they came
};

// Operators that follow each other on every batch.
struct ParallelStageSpec {
  StageSpec stage{};
  Operators operators{};
  bool python = false;  // they call Python
};

// One operator whose batches are worked on outside; at most `in_flight` of them at a time. The
// stage's ring has room for as many, whatever the limits say.
struct DeferredStageSpec {
  StageSpec stage{};
  uint32_t op = 0;
  OnError on_error = OnError::Fail;
  std::vector<Type> types{};  // of the output
  std::shared_ptr<Outside> outside{};
  uint32_t in_flight = 1;
};

// Functions that make one trip to the pool of worker processes. `calls`: all of them CallOperator.
struct PoolStageSpec {
  StageSpec stage{};
  Operators calls{};
  std::shared_ptr<PoolOutside> outside{};
};

// A running aggregate.
struct KeyedStageSpec {
  StageSpec stage{};
  uint32_t op = 0;
  std::shared_ptr<KeyedPlan> plan{};
  QueueKind queue = QueueKind::Lanes;
  StateErrors errors{};
  Operators before{}, after{};
};

// An event-time operator.
struct TimedStageSpec {
  StageSpec stage{};
  uint32_t op = 0;
  std::shared_ptr<TimedPlan> plan{};
  QueueKind queue = QueueKind::Lanes;
  StateErrors errors{};
  Operators before{}, after{};
};

// State that Python code holds, and how a control item meets it.
struct PythonState {
  PythonStateStage::ControlFunction control = nullptr;
  PythonStateStage::ControlFunction hand_over = nullptr;  // gives all bins away, with lanes
  void* context = nullptr;
  bool keyless = false;                // it is one bin
  std::shared_ptr<PoolLanes> lanes{};  // where it may go; null: it stays here
  std::shared_ptr<KeyedPlan> keys{};   // with lanes: only what it says of keys and bins counts
};

// A fold or a state machine.
struct StateStageSpec {
  StageSpec stage{};
  std::unique_ptr<CallOperator> call{};
  PythonState state{};
};

// A process with timers, or an operator with its own loop.
struct ProcessStageSpec {
  StageSpec stage{};
  uint32_t op = 0;
  OnError on_error = OnError::Fail;
  ProcessOperator::Function function = nullptr;  // with the context of the state
  std::vector<Type> types{};                     // of the output
  std::shared_ptr<TimedPlan> plan{};             // only what it says of time and order counts
  PythonState state{};
  bool pinned = false;  // its own loop: it stays where it is, and hears when sources end
};

// The sending side of an exchange; `operators` run before the rows go to their nodes.
struct RouteStageSpec {
  StageSpec stage{};
  uint32_t channel = 0;
  Routing routing{};
  Operators operators{};
};

// The receiving side; `unique`, `tags` and `index`: see GatherStage.
struct GatherStageSpec {
  StageSpec stage{};
  uint32_t channel = 0;
  uint32_t op = 0;
  std::vector<uint32_t> sources{};
  bool unique = false, tags = true, index = false;
};

// `carries`: by input, the sources that reach it.
struct UnionStageSpec {
  StageSpec stage{};
  uint32_t op = 0;
  std::vector<std::vector<uint32_t>> carries{};
  int sub_bits = -1;
};

// `keep`: rows stay in memory; `write`: rows go to the function; neither: rows are let go.
struct SinkStageSpec {
  StageSpec stage{};
  uint32_t op = 0;
  SinkStage::Write write = nullptr;
  SinkStage::NoteMark note_mark = nullptr;
  void* context = nullptr;
  bool keep = false;
  int64_t limit = -1;         // rows after which the run ends; -1: none
  bool marks_itself = false;  // it commits between marks, too; `last_source`: that reaches it
  uint32_t last_source = 0;
  uint64_t delivered_before = 0;  // what is before this epoch it has delivered
};

struct SourceStageSpec {
  StageSpec stage{};
  uint32_t op = 0;
  uint32_t source = 0;  // its number among the sources
  std::vector<Type> types{};
  int64_t epoch_records = 4096;
  int64_t limit = -1;  // rows after which it ends; -1: none
  OnError on_error = OnError::Fail;
};

// Numbered records: `total` of them (-1: no end) from number `first` on.
struct RateSpec {
  double per_s = 0;
  int64_t total = -1, start_us = 0, first = 0;
  bool paced = true;  // no record comes before its time
};

inline void add_filter(Operators& to, uint32_t op, OnError on_error,
                       std::shared_ptr<Program> predicate) {
  to.push_back(std::make_unique<FilterOperator>(op, on_error, std::move(predicate)));
}
inline void add_project(Operators& to, uint32_t op, OnError on_error,
                        std::vector<ProjectOperator::Item> items, bool hidden) {
  to.push_back(std::make_unique<ProjectOperator>(op, on_error, std::move(items), hidden));
}
// Names the event time; see EventTimeOperator.
inline void add_event_time(Operators& to, uint32_t op, OnError on_error, ProjectOperator::Item time,
                           uint32_t origin, bool read) {
  to.push_back(std::make_unique<EventTimeOperator>(op, on_error, std::move(time), origin, read));
}
// Before a keyed operator: counts its rows, and takes out those with a NaN in these key columns.
inline void add_nan_filter(Operators& to, uint32_t op, OnError on_error,
                           std::vector<uint32_t> float_keys, std::vector<uint32_t> times) {
  to.push_back(
      std::make_unique<NanKeyFilter>(op, on_error, std::move(float_keys), std::move(times)));
}
// Drops the rows that are in none of the samples.
using ShedSample = ShedOperator::Sample;
inline void add_shed(Operators& to, uint32_t op, uint64_t seed, std::vector<ShedSample> samples,
                     bool ratio) {
  to.push_back(std::make_unique<ShedOperator>(op, seed, std::move(samples), ratio));
}
inline void add_call(Operators& to, uint32_t op, OnError on_error, CallOperator::Function function,
                     void* context, std::vector<Type> types) {
  to.push_back(std::make_unique<CallOperator>(op, on_error, function, context, std::move(types)));
}
inline void set_call(StateStageSpec& of, uint32_t op, OnError on_error,
                     CallOperator::Function function, void* context, std::vector<Type> types) {
  of.call = std::make_unique<CallOperator>(op, on_error, function, context, std::move(types));
}

template <class... Op>
Operators operators_of(std::unique_ptr<Op>... ops) {
  Operators all;
  (all.push_back(std::move(ops)), ...);
  return all;
}

}  // namespace plait
