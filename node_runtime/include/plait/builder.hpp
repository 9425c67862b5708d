// Builder: puts an Engine together from plain calls, so that the binding holds no C++ ownership of
// its own.
#pragma once

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plait/call_operator.hpp"
#include "plait/engine.hpp"

namespace plait {

// Rows numbered from 0 with a timestamp each, at a given rate.
class RateOrigin final : public Origin {
 public:
  RateOrigin(double rate_per_s, int64_t total, int64_t start_us, int64_t first, bool paced)
      : rate_(rate_per_s),
        total_(total),
        start_us_(start_us),
        next_(first),
        first_(first),
        paced_(paced) {}

  void poll(int64_t max_rows, Polled& out) override {
    int64_t n = max_rows;
    if (total_ >= 0) n = std::min(n, total_ - next_);
    if (n <= 0) return;  // End
    if (paced_) {
      const int64_t now = now_ns();
      if (begin_ == 0) begin_ = now;
      const int64_t due = int64_t(double(now - begin_) * 1e-9 * rate_) - (next_ - first_);
      if (due <= 0) {
        out.kind = Polled::Kind::Wait;
        const int64_t at = begin_ + int64_t(double(next_ - first_ + 1) * 1e9 / rate_);
        out.wait_ns = std::max<int64_t>(1000, at - now);
        return;
      }
      n = std::min(n, due);
      out.due_ns = begin_ + int64_t(double(next_ - first_ + 1) * 1e9 / rate_);
    }
    out.kind = Polled::Kind::Rows;
    out.batch.length = n;
    out.batch.columns.resize(2);
    for (int c = 0; c < 2; ++c) {
      Column& column = out.batch.columns[size_t(c)];
      column.type = c == 0 ? Type::Int64 : Type::Timestamp;
      column.length = n;
      column.data_owner = BufferRef::make(8 * n);
      auto* values = column.data_owner.as<int64_t>();
      for (int64_t i = 0; i < n; ++i) {
        values[i] = c == 0 ? next_ + i : start_us_ + offset_us(next_ + i);
      }
      column.data = column.data_owner.data();
    }
    next_ += n;
  }

 private:
  int64_t offset_us(int64_t i) const {
    // Exact for whole rates: whole seconds first, so that nothing overflows or rounds.
    if (rate_ == std::floor(rate_) && rate_ < double(int64_t(1) << 40)) {
      const auto rate = int64_t(rate_);
      return i / rate * 1'000'000 + i % rate * 1'000'000 / rate;
    }
    return int64_t(std::floor(double(i) * (1e6 / rate_)));
  }

  const double rate_;
  const int64_t total_, start_us_;
  int64_t next_, first_, begin_ = 0;
  const bool paced_;
};

// A source outside the engine (Python): asked through a function.
class OutsideOrigin final : public Origin {
 public:
  using Poll = void (*)(void* context, int64_t max_rows, Polled& out);
  using Position = int64_t (*)(void* context);
  OutsideOrigin(Poll poll, Position position, void* context)
      : poll_(poll), position_(position), context_(context) {}
  void poll(int64_t max_rows, Polled& out) override { poll_(context_, max_rows, out); }
  int64_t position() override { return position_(context_); }
  bool python() const override { return true; }

 private:
  const Poll poll_;
  const Position position_;
  void* const context_;
};

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
        std::make_unique<KeyGuard>(node, OnError(on_error), std::move(float_keys)));
  }
  // What was added so far runs before the keyed state; the rest behind it.
  void keyed(uint32_t node, std::shared_ptr<KeyedPlan> plan) {
    keyed_node_ = node;
    plan_ = std::move(plan);
    before_ = std::move(operators_);
    operators_ = Operators();
  }

  uint32_t parallel_stage(const std::string& name, bool python) {
    auto& s = engine_.add(std::make_unique<ParallelStage>(name, limits, std::move(operators_)));
    s.python = python;
    return done(s);
  }
  uint32_t keyed_stage(const std::string& name, uint32_t lanes, int queue, unsigned workers) {
    return done(engine_.add(std::make_unique<KeyedStage>(
        name, limits, keyed_node_, std::move(plan_), lanes, QueueKind(queue), workers,
        std::move(before_), std::move(operators_))));
  }
  uint32_t state_stage(const std::string& name, OutsideStateStage::ControlFunction control,
                       void* context) {
    auto& s = engine_.add(std::make_unique<OutsideStateStage>(
        name, limits, std::move(operators_.front()), control, context));
    s.python = true;
    return done(s);
  }
  uint32_t union_stage(const std::string& name, uint32_t node,
                       std::vector<std::vector<uint32_t>> carries) {
    return done(engine_.add(std::make_unique<MergeStage>(name, limits, node, std::move(carries))));
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
  void connect(uint32_t from, uint32_t to, uint32_t input) {
    engine_.stages()[from]->connect(*engine_.stages()[to], input);
  }
  void last_node(uint32_t stage, uint32_t node) { engine_.stages()[stage]->last_node = node; }

 private:
  uint32_t add_source(const std::string& name, uint32_t node, uint32_t source,
                      const std::vector<Type>& types, std::unique_ptr<Origin> origin) {
    return done(
        engine_.add(std::make_unique<SourceStage>(name, limits, node, source, engine_.epochs,
                                                  std::move(origin), types, epoch_records, limit)));
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
};

// Rows a sink kept, one batch after the other.
inline const std::vector<Batch>& kept_of(const Engine& engine, uint32_t stage) {
  return static_cast<const SinkStage&>(*engine.stages()[stage]).kept;
}

}  // namespace plait
