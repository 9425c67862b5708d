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

#include "plait/events.hpp"
#include "plait/kernels_run.hpp"
#include "plait/select.hpp"
#include "plait/worker.hpp"

namespace plait {

class Operator {
 public:
  Operator(uint32_t node, OnError on_error) : node_(node), on_error_(on_error) {}
  virtual ~Operator() = default;
  virtual void run(Batch& batch, Worker& worker) = 0;
  uint32_t node() const { return node_; }
  OnError on_error() const { return on_error_; }

 protected:
  // Takes the failed rows (ascending, of `input`) out of `batch`, which has a row for each row of
  // `input` still.
  void settle(Batch& batch, const Batch& input, std::vector<RowFailure>& failures, Worker& worker);
  // Notes a failed row without touching the batch.
  void note(Batch& batch, const Batch& input, RowFailure& failure, Worker& worker);
  Counts& counts(Worker& worker) const { return worker.shared.counts[node_]; }

 private:
  const uint32_t node_;
  const OnError on_error_;
};

inline Letter make_letter(uint32_t node, const Batch& input, RowFailure& failure) {
  Letter letter;
  letter.node = node;
  letter.source = input.source;
  letter.epoch = input.epoch;
  letter.row = input.row_number(failure.row);
  letter.message = std::move(failure.message);
  letter.handle = failure.handle;
  letter.code = failure.code;
  letter.record.length = 1;
  for (const auto& c : input.columns) letter.record.columns.push_back(take(c, &failure.row, 1));
  return letter;
}

inline void Operator::note(Batch& batch, const Batch& input, RowFailure& failure, Worker& worker) {
  if (on_error_ == OnError::Skip) {
    Counts::add(counts(worker).skipped, 1);
  } else if (on_error_ == OnError::DeadLetter) {
    Counts::add(counts(worker).dead_lettered, 1);
    if (!batch.letters) batch.letters = std::make_shared<std::vector<Letter>>();
    batch.letters->push_back(make_letter(node_, input, failure));
  } else {
    batch.failure = std::make_shared<Failure>(Failure{make_letter(node_, input, failure), false});
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
  for (auto& c : batch.columns) c = c.slice(0, count);
  batch.length = count;
}

inline void Operator::settle(Batch& batch, const Batch& input, std::vector<RowFailure>& failures,
                             Worker& worker) {
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
  FilterOperator(uint32_t node, OnError on_error, std::shared_ptr<const Program> predicate)
      : Operator(node, on_error), predicate_(std::move(predicate)) {}

  void run(Batch& batch, Worker& worker) override {
    Counts& c = counts(worker);
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
  ProjectOperator(uint32_t node, OnError on_error, std::vector<Item> items, bool hidden)
      : Operator(node, on_error), items_(std::move(items)), hidden_(hidden) {}

  void run(Batch& batch, Worker& worker) override {
    Counts& c = counts(worker);
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

// What a function outside the engine (Python) says of a batch: its output rows, and the rows that
// failed.
struct CallOutcome {
  Batch out;                         // columns and length only
  bool one_to_one = false;           // output row i came from input row i
  bool whole = false;                // a batch function: rows have no single origin
  std::vector<uint32_t> origin;      // else: the input row of each output row, ascending
  std::vector<RowFailure> failures;  // ascending; with the policy fail only the first counts
  bool batch_failed = false;         // a batch function failed: every row shares failures[0]
  bool fatal = false;                // failures[0] ends the run, whatever the policy
};

class CallOperator final : public Operator {
 public:
  using Function = void (*)(void* context, const Batch& input, CallOutcome& outcome);
  CallOperator(uint32_t node, OnError on_error, Function function, void* context,
               std::vector<Type> types)
      : Operator(node, on_error),
        function_(function),
        context_(context),
        types_(std::move(types)) {}

  void run(Batch& batch, Worker& worker) override {
    Counts& c = counts(worker);
    Counts::add(c.in, batch.length);
    if (batch.length == 0) return clear(batch);
    CallOutcome o;
    function_(context_, batch, o);
    if (o.fatal) return stop(batch, o);
    const Batch input = batch;
    batch.columns = std::move(o.out.columns);
    batch.length = o.out.length;
    if (o.whole) {
      whole(batch, input, o, worker);
    } else {
      rows(batch, input, o, worker);
    }
    Counts::add(c.out, batch.length);
  }

 private:
  // No rows: the interpreter is not asked.
  void clear(Batch& batch) {
    batch.columns.clear();
    for (Type type : types_) batch.columns.push_back(empty_column(type));
  }

  // Not a matter of one record: none of the batch goes on, and no record is named.
  void stop(Batch& batch, CallOutcome& o) {
    Letter letter;
    letter.node = node();
    letter.source = batch.source;
    letter.epoch = batch.epoch;
    letter.row = -1;
    letter.message = std::move(o.failures.front().message);
    letter.handle = o.failures.front().handle;
    batch.failure = std::make_shared<Failure>(Failure{std::move(letter), false});
    batch.length = 0;
    batch.tags = nullptr;
    clear(batch);
  }

  void rows(Batch& batch, const Batch& input, CallOutcome& o, Worker& worker) {
    int64_t failed = 0, made = 0, used = 0;
    for (auto& failure : o.failures) {
      note(batch, input, failure, worker);
      ++failed;
      if (on_error() == OnError::Fail) break;
    }
    int64_t taken = input.length;
    if (on_error() == OnError::Fail && failed) taken = o.failures.front().row + 1;
    if (o.one_to_one) {
      if (batch.length != input.length) retag(batch, input, nullptr);
      used = batch.length;
    } else {
      retag(batch, input, o.origin.data());
      for (size_t i = 0; i < o.origin.size(); ++i) used += i == 0 || o.origin[i] != o.origin[i - 1];
      made = batch.length - used;
    }
    Counts::add(counts(worker).made, made);
    Counts::add(counts(worker).filtered, taken - failed - used);
  }

  void whole(Batch& batch, const Batch& input, CallOutcome& o, Worker& worker) {
    if (o.batch_failed) {
      if (on_error() == OnError::Fail) {
        note(batch, input, o.failures.front(), worker);
      } else {
        for (int64_t i = 0; i < input.length; ++i) {
          RowFailure one = o.failures.front();
          one.row = uint32_t(i);
          note(batch, input, one, worker);
        }
      }
      batch.tags = nullptr;
      return;
    }
    if (batch.length != input.length) {
      std::vector<uint32_t> origin(size_t(batch.length));
      for (int64_t i = 0; i < batch.length; ++i)
        origin[size_t(i)] = uint32_t(std::min(i, input.length - 1));
      retag(batch, input, origin.data());
    }
    Counts::add(counts(worker).made, std::max<int64_t>(0, batch.length - input.length));
    Counts::add(counts(worker).filtered, std::max<int64_t>(0, input.length - batch.length));
  }

  // The order tags of the output rows. Null origin: the first rows of the input.
  static void retag(Batch& batch, const Batch& input, const uint32_t* origin) {
    BufferRef buffer = BufferRef::make(4 * batch.length);
    auto* tags = buffer.as<uint32_t>();
    for (int64_t i = 0; i < batch.length; ++i) {
      const uint32_t row = origin ? origin[i] : uint32_t(i);
      tags[i] = input.tags ? input.tags[row] : row;
    }
    batch.tags = tags;
    batch.tags_owner = std::move(buffer);
  }

  Function function_;
  void* context_;
  std::vector<Type> types_;  // of the output
};

}  // namespace plait
