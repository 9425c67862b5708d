// LaneWork: what a stage with its state in the pool asks the lanes about a batch, and how it puts
// their answers together. RowsWork and UnitsWork are the two kinds.
//
// Rows of different lanes are worked on at the same time, so where one of them ends the run the
// others may have gone on: what they made behind it is let go, as if it had never been. `ask` is
// called by one worker at a time, batch by batch in order; `settle` by any, on its own batch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plait/pool/lane_split.hpp"
#include "plait/pool/pool_lanes.hpp"
#include "plait/stages/call_operator.hpp"
#include "plait/stages/process_stage.hpp"

namespace plait {

// What is known of a batch while the lanes work on it.
struct Asked {
  LaneRowLists lists;
  std::vector<std::shared_ptr<LaneMessage>> messages;  // by lane; null: it is not asked
  std::vector<std::vector<uint32_t>> bins;             // by lane: those that its rows may change
  ProcessOperator::Begun begun;                        // of a unit
  std::string head;                                    // of a control item: in front of its bins

  uint32_t count() const {
    return uint32_t(std::count_if(messages.begin(), messages.end(), [](auto& m) { return !!m; }));
  }
};

class LaneWork {
 public:
  LaneWork(std::shared_ptr<PoolLanes> lanes, std::shared_ptr<const KeyedPlan> plan)
      : lanes_(std::move(lanes)), plan_(std::move(plan)) {}
  virtual ~LaneWork() = default;
  // Counts the rows, and says what to ask. False: nothing, and the batch is as it has to be.
  virtual bool ask(Batch& batch, Worker& worker, Asked& asked) = 0;
  virtual void settle(Batch& batch, std::vector<LaneAnswer>& answers, Asked& asked,
                      Worker& worker) = 0;
  virtual void drop(Batch& batch) = 0;

  uint32_t lane_of(uint32_t bin) const {
    return plan_->key_types.empty() ? 0 : lane_of_bin(bin, lanes_->lanes(), plan_->bin_bits);
  }

 protected:
  void split(const Batch& batch, Asked& asked) const {
    asked.messages.assign(lanes_->lanes(), nullptr);
    asked.bins.assign(lanes_->lanes(), {});
    if (batch.length == 0) {
      asked.lists.rows.resize(lanes_->lanes());
      return;
    }
    asked.lists = rows_by_lane(*plan_, batch, lanes_->lanes(), [&](uint32_t lane, uint32_t bin) {
      asked.bins[lane].push_back(bin);
    });
  }
  std::shared_ptr<LaneMessage> message(const Batch& batch, const Asked& asked, uint32_t lane,
                                       LaneDo what) const {
    auto m = std::make_shared<LaneMessage>();
    m->what = what;
    m->length = asked.lists.count(lane, batch.length);
    m->columns = columns_of_lane(batch, asked.lists, lane);
    return m;
  }
  // No lane has answered: nothing comes back from there any more.
  static const LaneAnswer* fatal_of(const std::vector<LaneAnswer>& answers) {
    for (const auto& a : answers) {
      if (a.outcome.fatal) return &a;
    }
    return nullptr;
  }
  // The lane that stopped first, and where; `at(lane)` is where it did. -1: none has.
  template <class At>
  static std::pair<Emitter::Order, int> first_stop(const std::vector<LaneAnswer>& answers,
                                                   At&& at) {
    std::pair<Emitter::Order, int> first{{}, -1};
    for (uint32_t lane = 0; lane < answers.size(); ++lane) {
      if (!answers[lane].told.stopped) continue;
      const Emitter::Order here = at(lane);
      if (first.second < 0 || here < first.first) first = {here, int(lane)};
    }
    return first;
  }
  // The rows of all lanes that failed, ascending.
  static std::vector<RowFailure> failures_of(std::vector<LaneAnswer>& answers, const Asked& asked) {
    std::vector<RowFailure> all;
    for (uint32_t lane = 0; lane < answers.size(); ++lane) {
      LaneAnswer& a = answers[lane];
      const int64_t dead = a.died.empty() ? 0 : asked.messages[lane]->length;
      for (int64_t i = 0; i < dead; ++i) {
        all.push_back({asked.lists.row(lane, uint32_t(i)), a.died});
      }
      for (auto& failure : a.outcome.failures) {
        failure.row = asked.lists.row(lane, failure.row);
        all.push_back(std::move(failure));
      }
    }
    std::sort(all.begin(), all.end(), [](auto& a, auto& b) { return a.row < b.row; });
    return all;
  }
  static std::vector<const std::vector<Column>*> made_by(const std::vector<LaneAnswer>& answers) {
    std::vector<const std::vector<Column>*> made;
    for (const auto& a : answers) made.push_back(&a.outcome.out.columns);
    return made;
  }

  const std::shared_ptr<PoolLanes> lanes_;
  const std::shared_ptr<const KeyedPlan> plan_;
};

}  // namespace plait
