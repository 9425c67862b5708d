// ShedOperator: lets through the rows that are in one of its samples; the others are shed and
// counted.
//
// It is the first operator of its stage, so what is shed costs nothing behind it. How much is kept
// depends on the plan of the batch's epoch alone (Keeps), and whether a row is kept on that and the
// row, so every node, any number of workers and a run that repeats this one shed the same rows. As
// long as nothing is to be shed it is one comparison a batch. Any worker, on its own batch.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "plait/columns/keeps.hpp"
#include "plait/keyed/split_by_lane.hpp"
#include "plait/shedding/sample_hash.hpp"
#include "plait/stages/row_operators.hpp"

namespace plait {

class ShedOperator final : public Operator {
 public:
  struct Sample {
    std::shared_ptr<const KeyedPlan> keys;  // only what it says of keys counts; null: by row
    std::vector<uint32_t> queries;
  };
  // `ratio`: the share that is kept is added to the rows as one more column.
  ShedOperator(uint32_t op, uint64_t seed, std::vector<Sample> samples, bool ratio)
      : Operator(op, OnError::Fail), seed_(seed), samples_(std::move(samples)), ratio_(ratio) {}

  void run(Batch& batch, Worker& worker) override {
    Counts& c = counts(worker, batch);
    const int64_t before = batch.length;
    Counts::add(c.in, before);
    uint64_t below = kKeepAll;
    if (worker.shared.keeps.any()) {
      if (const Keeps::Ref plan = worker.shared.keeps.at(batch.epoch)) {
        below = most(*plan);
        if (before && below != kKeepAll) shed(batch, *plan, worker);
      }
    }
    if (ratio_) add_ratio(batch, below);
    Counts::add(c.shed, before - batch.length);
    Counts::add(c.out, batch.length);
  }

 private:
  // What the greediest sample wants.
  uint64_t most(const KeepPlan& plan) const {
    uint64_t most = 0;
    for (const Sample& sample : samples_) most = std::max(most, plan.most(sample.queries));
    return most;
  }
  static void add_ratio(Batch& batch, uint64_t below) {
    const double ratio = below == kKeepAll ? 1.0 : std::ldexp(double(below), -64);
    Column c;
    c.type = Type::Float64;
    c.length = batch.length;
    c.data_owner = BufferRef::make(8 * batch.length);
    std::fill_n(c.data_owner.as<double>(), batch.length, ratio);
    c.data = c.data_owner.data();
    batch.columns.push_back(std::move(c));
  }
  void shed(Batch& batch, const KeepPlan& plan, Worker& worker) const {
    batch.spread_tags();
    worker.mask.assign(size_t(batch.length) + 64, 0);
    for (const Sample& sample : samples_) {
      const uint64_t below = plan.most(sample.queries);
      if (below == 0) continue;
      if (sample.keys) {
        mark_keys(batch, *sample.keys, below, worker.mask.data());
      } else {
        dispatch<LoopSampleRows>(rows_seed(seed_, batch.source), batch.first_row, batch.tags,
                                 int(batch.halves), batch.length, below, worker.mask.data());
      }
    }
    filter_batch(batch, worker.mask.data());
  }
  void mark_keys(const Batch& batch, const KeyedPlan& keys, uint64_t below, uint8_t* mask) const {
    SplitBatch split;
    BufferRef hashes = BufferRef::make(8 * batch.length);
    split_detail::hash_rows(keys, batch, split, hashes.as<uint64_t>());
    dispatch<LoopSampleKeys>(keys_seed(seed_), hashes.as<uint64_t>(), batch.length, below, mask);
    for (size_t k = 0; k < keys.key_types.size(); ++k) {
      if (keys.key_types[k] == Type::Float64) keep_nans(batch, keys.key_columns[k], mask);
    }
  }
  // A NaN is no key: the row fails at the operator that has the key, whatever is shed.
  static void keep_nans(const Batch& batch, int column, uint8_t* mask) {
    const Column& c = batch.columns[size_t(column)];
    for (int64_t i = 0; i < batch.length; ++i) {
      mask[i] |= uint8_t(c.f64()[i] != c.f64()[i] && c.valid(i));
    }
  }

  const uint64_t seed_;
  const std::vector<Sample> samples_;
  const bool ratio_;
};

}  // namespace plait
