// CallOperator: runs a function outside the engine (Python) on a batch, and gives its rows their
// places in the order.
//
// The function says which input row each output row came from and which rows failed; the operator
// applies the policy, as the native operators do. Any worker may run it on its own batch; the stage
// sees to it that Python runs on one at a time. A stage whose batches are worked on elsewhere
// (deferred_stage.hpp) has no function here: it calls begin and, when the outcome is there, finish.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "plait/stages/row_operators.hpp"

namespace plait {

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
  std::vector<CallOutcome> rest;     // of the operators behind this one on the same trip
};

class CallOperator final : public Operator {
 public:
  using Function = void (*)(void* context, const Batch& input, CallOutcome& outcome);
  CallOperator(uint32_t op, OnError on_error, Function function, void* context,
               std::vector<Type> types)
      : Operator(op, on_error), function_(function), context_(context), types_(std::move(types)) {}

  void run(Batch& batch, Worker& worker) override {
    if (!begin(batch, worker)) return;
    CallOutcome o;
    function_(context_, batch, o);
    finish(batch, o, worker);
  }
  // Counts the rows. False: there are none, so the function is not asked and the batch is done.
  bool begin(Batch& batch, Worker& worker) {
    Counts::add(counts(worker, batch).in, batch.length);
    batch.spread_tags();
    if (batch.length == 0) clear(batch);
    return batch.length != 0;
  }
  // Puts what the function said in place of the rows.
  void finish(Batch& batch, CallOutcome& o, Worker& worker) {
    if (o.fatal) return stop(batch, o);
    const Batch input = batch;
    batch.columns = std::move(o.out.columns);
    batch.length = o.out.length;
    if (o.whole) {
      whole(batch, input, o, worker);
    } else {
      rows(batch, input, o, worker);
    }
    Counts::add(counts(worker, batch).out, batch.length);
  }
  // The columns of an output without rows.
  void empty_out(Batch& batch) { clear(batch); }
  // Lets the rows go: nobody will see them.
  void drop(Batch& batch) {
    batch.length = 0;
    batch.tags = nullptr;
    batch.subs = nullptr;
    clear(batch);
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
    letter.op = number();
    letter.source = batch.source;
    letter.epoch = batch.epoch;
    letter.row = -1;
    letter.kind = fatal_kind(o.failures.front());
    letter.message = std::move(o.failures.front().message);
    letter.handle = o.failures.front().handle;
    batch.failure = std::make_shared<Failure>(Failure{std::move(letter), false});
    drop(batch);
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
    Counts::add(counts(worker, batch).made, made);
    Counts::add(counts(worker, batch).filtered, taken - failed - used);
  }

  void whole(Batch& batch, const Batch& input, CallOutcome& o, Worker& worker) {
    if (o.batch_failed) {
      if (on_error() == OnError::Fail) {
        note(batch, input, o.failures.front(), worker);
      } else {
        for (int64_t i = 0; i < input.length; ++i) {
          RowFailure one = size_t(i) < o.failures.size() ? o.failures[size_t(i)] : o.failures[0];
          one.row = uint32_t(i);
          note(batch, input, one, worker);
        }
      }
      batch.tags = nullptr;
      batch.subs = nullptr;
      clear(batch);
      return;
    }
    if (batch.length != input.length) {
      std::vector<uint32_t> origin(size_t(batch.length));
      for (int64_t i = 0; i < batch.length; ++i)
        origin[size_t(i)] = uint32_t(std::min(i, input.length - 1));
      retag(batch, input, origin.data());
    }
    Counts::add(counts(worker, batch).made, std::max<int64_t>(0, batch.length - input.length));
    Counts::add(counts(worker, batch).filtered, std::max<int64_t>(0, input.length - batch.length));
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
    if (origin) take_subs(batch, origin, batch.length);
  }

  Function function_;
  void* context_;
  std::vector<Type> types_;  // of the output
};

}  // namespace plait
