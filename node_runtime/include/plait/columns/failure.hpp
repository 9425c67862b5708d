// Failures and dead letters: what an operator says of a record it could not take, and what ends a
// job.
//
// Both travel with a batch in the same ordered queues as the records, so FIFO order does the
// coordination: a failure ends the job after the rows before it were delivered.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "plait/columns/batch.hpp"

namespace plait {

enum class OnError : uint8_t { Fail, Skip, DeadLetter };

// What failed: it decides which exception is raised. `FailureKind` of
// plait/results/engine_failures.py has the same numbers, and so have the frames between nodes.
enum class FailureKind : uint8_t {
  Record,     // an operator could not take a record
  Timer,      // a timer, or what an operator did at the end of a source
  Source,     // a source could not be read
  Sink,       // a sink could not be written
  Worker,     // worker processes died on a timer, or on the state itself
  Pool,       // no worker process can be used
  Scheduler,  // one from outside
  Internal,   // the runtime itself, or what a function raised that is no matter of one record
  Sum,        // sums that were added to each other do not fit int64
  Text,       // the texts of a unit take more than a column can hold
};
inline constexpr FailureKind kLastFailureKind = FailureKind::Text;

// A record that failed: where it is in the total order, what it looked like, and what was wrong.
struct Letter {
  uint32_t op = 0;
  uint32_t source = 0;
  uint64_t epoch = 0;
  // -1: no record is to blame. Of what fell due (`half` false) and of a timer: the record at whose
  // mark it did, or the number behind all rows of the unit.
  int64_t row = 0;
  bool half = true;
  // Its order among the records of that row and half, as Batch::times and Batch::subs.
  int64_t time = kNoTime;
  uint64_t sub = 0;
  FailureKind kind = FailureKind::Record;
  std::string message;
  int32_t code = 0;     // a kernel's error number (RowError), `message` being the value; 0: none
  int64_t handle = -1;  // the Python exception's number on the Python side; -1: none
  Batch record;         // one row, the operator's input; none: it is not here
};

struct Failure {
  Letter letter;
  bool broken = false;  // the runtime itself failed: the batch has no columns any more
};

// What an operator says of a row it could not take.
struct RowFailure {
  uint32_t row = 0;
  std::string message;
  int64_t handle = -1;
  int32_t code = 0;
  std::shared_ptr<const Batch> record = nullptr;  // it alone, if the input's columns are not here
  FailureKind kind = FailureKind::Record;
};

// The kind of a failure that ends the run whatever the policy: no record is to blame.
inline FailureKind fatal_kind(const RowFailure& failure) {
  return failure.kind == FailureKind::Record ? FailureKind::Internal : failure.kind;
}

}  // namespace plait
