// CallChain: the operators that a batch meets outside the engine's workers, one after the other.
//
// The batch is counted in before it goes (begin); when its outcome is there, each operator puts its
// part of it in place (finish): the outcome of the first one carries those of the others. The rows
// between two operators have been outside only, so they have places in the order but no columns
// here; a record that failed there comes with its failure. Any worker may call anything on its own
// batch.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "plait/stages/call_operator.hpp"

namespace plait {

class CallChain {
 public:
  CallChain(std::unique_ptr<CallOperator> call) { calls_.push_back(std::move(call)); }
  explicit CallChain(std::vector<std::unique_ptr<CallOperator>> calls) : calls_(std::move(calls)) {}

  uint32_t op() const { return calls_.front()->number(); }
  // Counts the rows. False: there are none, and the batch is done.
  bool begin(Batch& batch, Worker& worker) const {
    if (calls_.front()->begin(batch, worker)) return true;
    for (size_t i = 1; i < calls_.size(); ++i) (void)calls_[i]->begin(batch, worker);
    return false;
  }
  void finish(Batch& batch, CallOutcome& outcome, Worker& worker) const {
    calls_.front()->finish(batch, outcome, worker);
    for (size_t i = 1; i < calls_.size(); ++i) {
      if (!calls_[i]->begin(batch, worker)) continue;
      if (i > outcome.rest.size()) throw std::runtime_error("an outcome is incomplete");
      calls_[i]->finish(batch, outcome.rest[i - 1], worker);
    }
  }
  void drop(Batch& batch) const { calls_.back()->drop(batch); }
  // All of it here, in the calling worker, which holds Python's turn.
  void run(Batch& batch, Worker& worker) const {
    for (const auto& call : calls_) call->run(batch, worker);
  }

 private:
  std::vector<std::unique_ptr<CallOperator>> calls_;
};

}  // namespace plait
