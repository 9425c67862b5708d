// What a worker process says of a batch, as a block of shared memory.
//
// The outcome of every operator of the chain, in their order, each with its failures; then the
// columns of the rows that came out, of which those that came in unchanged are only named. A
// failure behind the first operator carries its record, because nothing else has that. The reader
// makes of it what CallOperator expects, and gives what was raised, as bytes, to `Keep`.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plait/columns/flat_block.hpp"
#include "plait/stages/call_operator.hpp"

namespace plait {

// One operator's part of an outcome, as its worker process has it.
struct PoolStep {
  CallOutcome outcome;              // `out` has columns in the last step only
  std::vector<std::string> raised;  // by failure: the exception as bytes, or nothing
  Batch records;                    // by failure: the record, if `has_records`
  bool has_records = false;
};

struct StepHead {
  int64_t rows = 0;
  bool one_to_one = false, whole = false, batch_failed = false, fatal = false, has_records = false;
};

inline void flat_step(FlatWriter& out, const PoolStep& step) {
  const CallOutcome& o = step.outcome;
  out.put(StepHead{o.out.length, o.one_to_one, o.whole, o.batch_failed, o.fatal, step.has_records});
  out.put(int64_t(o.origin.size()));
  out.bytes(o.origin.data(), int64_t(4 * o.origin.size()));
  out.put(int64_t(o.failures.size()));
  for (size_t i = 0; i < o.failures.size(); ++i) {
    out.put(o.failures[i].row);
    out.text(o.failures[i].message);
    out.text(i < step.raised.size() ? step.raised[i] : std::string());
  }
  if (step.has_records) flat_columns(out, step.records.columns);
}

// `given`: the columns of the batch that came in.
inline void flat_outcome(FlatWriter& out, const std::vector<PoolStep>& steps,
                         const std::vector<Column>& given) {
  out.put(int64_t(steps.size()));
  for (const auto& step : steps) flat_step(out, step);
  flat_columns(out, steps.back().outcome.out.columns, &given);
}

using Keep = std::function<int64_t(const std::string& raised)>;

inline CallOutcome read_step(FlatReader& in, const BufferRef& owner, const Keep& keep) {
  CallOutcome o;
  const auto head = in.get<StepHead>();
  o.out.length = head.rows;
  o.one_to_one = head.one_to_one;
  o.whole = head.whole;
  o.batch_failed = head.batch_failed;
  o.fatal = head.fatal;
  o.origin.resize(size_t(in.count(4)));
  if (!o.origin.empty()) {
    const int64_t size = int64_t(4 * o.origin.size());
    std::memcpy(o.origin.data(), in.bytes(size), size_t(size));
  }
  const int64_t failures = in.count(16);
  for (int64_t i = 0; i < failures; ++i) {
    RowFailure failure;
    failure.row = in.get<uint32_t>();
    failure.message = in.text();
    const std::string raised = in.text();
    if (!raised.empty()) failure.handle = keep(raised);
    o.failures.push_back(std::move(failure));
  }
  if (head.has_records) {
    const auto columns = read_columns(in, owner);
    for (int64_t i = 0; i < failures; ++i) {
      auto record = std::make_shared<Batch>();
      record->length = 1;
      for (const auto& c : columns) record->columns.push_back(c.slice(i, 1));
      o.failures[size_t(i)].record = std::move(record);
    }
  }
  return o;
}

// The block at `owner`, which it keeps alive. Throws if it is not whole.
inline CallOutcome read_outcome(FlatReader& in, const BufferRef& owner,
                                const std::vector<Column>& given, const Keep& keep) {
  const int64_t steps = in.count(sizeof(StepHead));
  if (steps < 1) throw std::runtime_error("an outcome of no operator");
  CallOutcome first = read_step(in, owner, keep);
  for (int64_t i = 1; i < steps; ++i) first.rest.push_back(read_step(in, owner, keep));
  auto columns = read_columns(in, owner, &given);
  (first.rest.empty() ? first : first.rest.back()).out.columns = std::move(columns);
  return first;
}

}  // namespace plait
