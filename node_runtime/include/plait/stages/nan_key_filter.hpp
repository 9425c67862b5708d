// NanKeyFilter: in front of keyed state, takes out rows whose key cannot be one. Any worker, on its
// own batch.
#pragma once

#include <utility>
#include <vector>

#include "plait/stages/row_operators.hpp"

namespace plait {

// Rows whose key cannot be one (NaN) leave by the operator's policy; all other rows stay. It sees
// the rows as they came to the operator, so that a failed record is shown as it was, and counts
// them in.
class NanKeyFilter final : public Operator {
 public:
  NanKeyFilter(uint32_t op, OnError on_error, std::vector<uint32_t> float_keys)
      : Operator(op, on_error), float_keys_(std::move(float_keys)) {}
  void run(Batch& batch, Worker& worker) override {
    Counts::add(counts(worker).in, batch.length);
    if (float_keys_.empty()) return;
    worker.failures.clear();
    for (int64_t row = 0; row < batch.length; ++row) {
      if (nan_key(batch, row)) worker.failures.push_back({uint32_t(row), "NaN cannot be a key"});
    }
    if (worker.failures.empty()) return;
    const Batch input = batch;
    settle(batch, input, worker.failures, worker);
  }

 private:
  bool nan_key(const Batch& batch, int64_t row) const {
    for (uint32_t k : float_keys_) {
      const Column& c = batch.columns[k];
      if (c.valid(row) && c.f64()[row] != c.f64()[row]) return true;
    }
    return false;
  }

  const std::vector<uint32_t> float_keys_;
};

}  // namespace plait
