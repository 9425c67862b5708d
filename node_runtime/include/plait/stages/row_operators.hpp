// The operators that run fused inside a stage, each on a whole batch, in place.
//
// An operator that cannot take a row says so; `settle` then applies the operator's policy: the rows
// before the first failed one go on and a failure rides behind them (fail), or the row leaves the
// batch and is counted (skip), or it rides along as a letter (dead_letter). Counts are added once
// per batch. Any worker may run any operator on its own batch; operators keep no state.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plait/columns/counts.hpp"
#include "plait/columns/failure.hpp"
#include "plait/columns/select.hpp"
#include "plait/kernels/run.hpp"
#include "plait/keyed/aggregates.hpp"
#include "plait/workers/worker.hpp"

namespace plait {

inline Letter make_letter(uint32_t op, const Batch& input, RowFailure& failure);

// What becomes of rows that an operator in the graph could not take.
class RowErrors {
 public:
  RowErrors(uint32_t number, OnError on_error) : number_(number), on_error_(on_error) {}
  // Takes the failed rows (ascending, of `input`) out of `batch`, which has a row for each row of
  // `input` still.
  void settle(Batch& batch, const Batch& input, std::vector<RowFailure>& failures,
              Worker& worker) const;
  // Notes a failed row without touching the batch.
  void note(Batch& batch, const Batch& input, RowFailure& failure, Worker& worker) const;
  OnError on_error() const { return on_error_; }

 private:
  Counts& counts(Worker& worker, const Batch& batch) const {
    return worker.shared.counts.of(number_, batch.epoch);
  }

  uint32_t number_;
  OnError on_error_;
};

class Operator {
 public:
  Operator(uint32_t number, OnError on_error) : number_(number), errors_(number, on_error) {}
  virtual ~Operator() = default;
  virtual void run(Batch& batch, Worker& worker) = 0;
  // Of the operator in the graph.
  uint32_t number() const { return number_; }
  OnError on_error() const { return errors_.on_error(); }

 protected:
  void settle(Batch& batch, const Batch& input, std::vector<RowFailure>& failures, Worker& worker) {
    errors_.settle(batch, input, failures, worker);
  }
  void note(Batch& batch, const Batch& input, RowFailure& failure, Worker& worker) {
    errors_.note(batch, input, failure, worker);
  }
  Counts& counts(Worker& worker, const Batch& batch) const {
    return worker.shared.counts.of(number_, batch.epoch);
  }

 private:
  const uint32_t number_;
  const RowErrors errors_;
};

inline Letter make_letter(uint32_t op, const Batch& input, RowFailure& failure) {
  Letter letter;
  letter.op = op;
  letter.source = input.source;
  letter.epoch = input.epoch;
  letter.row = input.row_number(failure.row);
  letter.half = input.half(failure.row);
  if (input.times) letter.time = input.times[failure.row];
  if (input.subs) letter.sub = input.subs[failure.row];
  letter.kind = failure.kind;
  letter.message = std::move(failure.message);
  letter.handle = failure.handle;
  letter.code = failure.code;
  letter.record.length = failure.record || !input.columns.empty();
  if (failure.record) {
    letter.record.columns = failure.record->columns;
    return letter;
  }
  for (const auto& c : input.columns) letter.record.columns.push_back(take(c, &failure.row, 1));
  return letter;
}

inline void RowErrors::note(Batch& batch, const Batch& input, RowFailure& failure,
                            Worker& worker) const {
  if (on_error_ == OnError::Skip) {
    Counts::add(counts(worker, batch).skipped, 1);
  } else if (on_error_ == OnError::DeadLetter) {
    Counts::add(counts(worker, batch).dead_lettered, 1);
    if (!batch.letters) batch.letters = std::make_shared<std::vector<Letter>>();
    batch.letters->push_back(make_letter(number_, input, failure));
  } else {
    batch.failure = std::make_shared<Failure>(Failure{make_letter(number_, input, failure), false});
  }
}

inline Column empty_column(Type type) {
  static const int32_t zero[2] = {0, 0};
  static const uint8_t nothing[8] = {};
  Column c;
  c.type = type;
  c.data = nothing;
  if (is_varlen(type)) c.offsets = zero;
  return c;
}

// Keeps the first `count` rows.
inline void truncate(Batch& batch, int64_t count) {
  if (count == 0) batch.bits = TagBits();  // of nothing they need not become a list
  batch.spread_tags();
  for (auto& c : batch.columns) c = c.slice(0, count);
  batch.length = count;
}

inline void RowErrors::settle(Batch& batch, const Batch& input, std::vector<RowFailure>& failures,
                              Worker& worker) const {
  if (failures.empty()) return;
  if (on_error_ == OnError::Fail) {
    note(batch, input, failures.front(), worker);
    truncate(batch, failures.front().row);
  } else {
    std::vector<uint8_t> keep(size_t(batch.length) + 64, 1);
    for (auto& failure : failures) {
      keep[failure.row] = 0;
      note(batch, input, failure, worker);
    }
    filter_batch(batch, keep.data());
  }
  failures.clear();
}

// The kernels' error rows as failures, ascending and each row once.
inline void describe(ErrorRows& errors, std::vector<RowFailure>& failures) {
  failures.clear();
  std::stable_sort(errors.rows.begin(), errors.rows.end(),
                   [](const ErrorRow& a, const ErrorRow& b) { return a.row < b.row; });
  for (const auto& e : errors.rows) {
    if (!failures.empty() && failures.back().row == uint32_t(e.row)) continue;
    failures.push_back({uint32_t(e.row), e.detail, -1, int32_t(e.code)});
  }
  errors.rows.clear();
}

class FilterOperator final : public Operator {
 public:
  FilterOperator(uint32_t op, OnError on_error, std::shared_ptr<const Program> predicate)
      : Operator(op, on_error), predicate_(std::move(predicate)) {}

  void run(Batch& batch, Worker& worker) override {
    Counts& c = counts(worker, batch);
    Counts::add(c.in, batch.length);
    if (batch.length == 0) return;
    worker.mask.resize(size_t(batch.length) + 64);
    worker.errors.rows.clear();
    run_mask(*predicate_, batch, worker.workspace, worker.mask.data(), worker.errors);
    if (!worker.errors.rows.empty()) settle_errors(batch, worker);
    const int64_t before = batch.length;
    filter_batch(batch, worker.mask.data());
    Counts::add(c.filtered, before - batch.length);
    Counts::add(c.out, batch.length);
  }

 private:
  // Rows whose predicate failed leave first; the mask is compacted alongside.
  void settle_errors(Batch& batch, Worker& worker) {
    describe(worker.errors, worker.failures);
    const int64_t before = batch.length;
    std::vector<uint8_t> mask(worker.mask.begin(), worker.mask.begin() + before);
    size_t next = 0, kept = 0;
    const bool stop = on_error() == OnError::Fail;
    const auto& failed = worker.failures;
    for (int64_t i = 0; i < before; ++i) {
      if (next < failed.size() && failed[next].row == uint32_t(i)) {
        ++next;
        if (stop) break;
        continue;
      }
      worker.mask[kept++] = mask[size_t(i)];
    }
    const Batch input = batch;
    settle(batch, input, worker.failures, worker);
  }

  std::shared_ptr<const Program> predicate_;
};

class ProjectOperator final : public Operator {
 public:
  // Each output column is a program, or (program null) the input column `from`.
  struct Item {
    std::shared_ptr<const Program> program;
    uint32_t from = 0;
  };
  ProjectOperator(uint32_t op, OnError on_error, std::vector<Item> items, bool hidden)
      : Operator(op, on_error), items_(std::move(items)), hidden_(hidden) {}

  void run(Batch& batch, Worker& worker) override {
    Counts& c = counts(worker, batch);
    if (!hidden_) Counts::add(c.in, batch.length);
    std::vector<Column> columns(items_.size());
    worker.errors.rows.clear();
    for (size_t i = 0; i < items_.size(); ++i) {
      if (items_[i].program) {
        plait::run(*items_[i].program, batch, worker.workspace, columns[i], worker.errors);
      } else {
        columns[i] = batch.columns[items_[i].from];
      }
    }
    if (worker.errors.rows.empty()) {
      batch.columns = std::move(columns);
    } else {
      const Batch input = batch;
      batch.columns = std::move(columns);
      describe(worker.errors, worker.failures);
      settle(batch, input, worker.failures, worker);
    }
    if (!hidden_) Counts::add(c.out, batch.length);
  }

 private:
  std::vector<Item> items_;
  const bool hidden_;  // made by the planner for the operator behind it, which counts
};

using Operators = std::vector<std::unique_ptr<Operator>>;

// Runs `step`; if it throws, the batch goes on without rows and with the failure, so its serial is
// published all the same.
template <class Step>
void guarded(Batch& batch, uint32_t op, Step&& step) {
  try {
    step();
  } catch (const std::exception& error) {
    batch.failure = std::make_shared<Failure>(runtime_failure(op, error));
    batch.failure->broken = true;
    if (dynamic_cast<const SumOverflow*>(&error)) {
      batch.failure->letter.kind = FailureKind::Sum;
      batch.failure->letter.message = error.what();
    }
    batch.failure->letter.source = batch.source;
    batch.failure->letter.epoch = batch.epoch;
    batch.columns.clear();
    batch.length = 0;
  }
}

inline bool broken(const Batch& batch) { return batch.failure && batch.failure->broken; }

// A batch whose operators failed in the runtime itself has no columns any more and is passed over.
inline void run_all(const Operators& operators, Batch& batch, Worker& worker) {
  for (const auto& op : operators) {
    if (broken(batch)) return;
    guarded(batch, op->number(), [&] { op->run(batch, worker); });
  }
}

}  // namespace plait
