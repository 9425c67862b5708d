// KeyedStage: running aggregates by key: one result for every row, in row order.
//
// LaneStage has the protocol. On several nodes a lane stays at a new layout until the bins it
// brings have come (lane_moves.hpp).
#pragma once

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "plait/keyed/keyed_state.hpp"
#include "plait/moves/lane_moves.hpp"
#include "plait/stages/lane_stage.hpp"
#include "plait/stages/nan_key_filter.hpp"

namespace plait {

class KeyedStage final : public LaneStage, public MovingState {
 public:
  KeyedStage(std::string name, const StageLimits& limits, uint32_t op,
             std::shared_ptr<const KeyedPlan> plan, uint32_t lanes, QueueKind kind,
             unsigned workers, Operators before, Operators after, StateErrors errors = {})
      : LaneStage(std::move(name), limits, op, lanes, kind, workers, std::move(before),
                  std::move(after)),
        plan_(std::move(plan)),
        errors_(std::move(errors)),
        lane_(new KeyedLane[lanes]) {
    for (uint32_t l = 0; l < lanes; ++l) lane_[l].state = std::make_unique<KeyedState>(*plan_, l);
  }

  KeyedState& state(uint32_t lane) { return *lane_[lane].state; }
  const KeyedPlan& plan() const { return *plan_; }
  // On several nodes: where bins go and come from. Before the start, and only with
  // QueueKind::Lanes.
  void moves(StateMoves& moves) {
    for (uint32_t l = 0; l < lanes_; ++l) {
      lane_[l].moves = std::make_unique<LaneMoves>(*plan_, op_, l, *lane_[l].state, moves);
    }
    moves.add_state(*this);
  }
  // As the lanes last said; on several nodes.
  int64_t state_bytes() const {
    int64_t n = 0;
    for (uint32_t l = 0; l < lanes_; ++l) n += lane_[l].moves ? lane_[l].moves->bytes() : 0;
    return n;
  }
  uint32_t state_op() const override { return op_; }
  uint64_t keys_of_a_bin() const override {
    uint64_t most = 0;
    for (uint32_t l = 0; l < lanes_; ++l) most = std::max(most, lane_[l].moves->keys());
    return most;
  }
  void expect(const std::vector<uint32_t>& bins, uint64_t keys) override {
    if (plan_->key_types.empty()) return;
    for (uint32_t l = 0; l < lanes_; ++l) lane_[l].moves->expect(bins, keys);
  }
  bool ready() const override {
    return std::all_of(lane_.get(), lane_.get() + lanes_,
                       [](const KeyedLane& lane) { return lane.moves->ready(); });
  }

 protected:
  void cut(Slot& s) override { split_by_lane(*plan_, s.batch, s.split); }
  bool passes(Batch& batch, uint32_t lane) override {
    return !lane_[lane].moves || lane_[lane].moves->pass(batch);
  }
  void run_part(Slot& s, uint32_t lane) override {
    lane_[lane].state->process(s.batch, s.split, lane);
    if (lane_[lane].moves && s.serial % kSayEvery == 0) lane_[lane].moves->say_size();
  }
  void put_together(Slot& s, Worker& worker) override {
    Batch out;
    merge_lanes(*plan_, s.batch, s.split, out);
    std::vector<RowFailure> failed;
    for (Part& part : s.split.parts) {
      std::move(part.failed.begin(), part.failed.end(), std::back_inserter(failed));
    }
    if (failed.empty()) [[likely]] {
      s.batch.columns = std::move(out.columns);
    } else {
      std::sort(failed.begin(), failed.end(),
                [](const RowFailure& a, const RowFailure& b) { return a.row < b.row; });
      const Batch input = errors_.records(s.batch);
      s.batch.columns = std::move(out.columns);
      RowErrors(op_, errors_.on_error).settle(s.batch, input, failed, worker);
    }
    Counts::add(worker.shared.counts.of(op_, s.batch.epoch).out, s.batch.length);
  }

  bool begin_save(Control& c, uint32_t lane) override {
    KeyedLane& l = lane_[lane];
    const bool all = c.since == 0 || c.since != l.marked;
    if (!all && lane == 0) c.give_changes(op_);
    l.state->begin_save(all);
    l.marked = c.number;
    return true;
  }
  bool save_lane(Control& c, uint32_t lane, int64_t until_ns) override {
    KeyedState& state = *lane_[lane].state;
    const bool all = state.save_some([until_ns] { return now_ns() >= until_ns; });
    for (SavedBin& saved : state.take_saved()) {
      Control::LateBin late{op_, saved.bin, nullptr};
      if (saved.writer) {
        late.seal = [plan = plan_, writer = std::shared_ptr<BinWriter>(std::move(saved.writer))] {
          Bytes bytes = writer->finish();
          return std::pair(std::move(bytes.bytes), bytes.size);
        };
      }
      c.collect_late(std::move(late));
    }
    return all;
  }
  void control(Control& c, uint32_t lane) override {
    KeyedState& state = *lane_[lane].state;
    if (c.kind == Control::Kind::Layout) return;  // see LaneMoves
    if (c.kind == Control::Kind::Put) {
      for (const auto& bin : c.put) {
        if (bin.op != op_ || !owns(lane, bin.bin)) continue;
        std::string why = state.put_bin(bytes_of(bin), bin.bytes.size());
        if (!why.empty()) c.refuse(std::move(why));
      }
    } else if (c.kind == Control::Kind::Take) {
      if (c.op != op_) return;
      for (uint32_t bin : c.bins) {
        if (owns(lane, bin)) collect(c, bin, state.take_bin(bin));
      }
    } else {
      const uint32_t bins = 1u << (plan_->bin_bits - plan_->lane_bits);
      for (uint32_t bin = lane * bins; bin < (lane + 1) * bins; ++bin) {
        if (!state.empty(bin)) collect(c, bin, state.copy_bin(bin));
      }
    }
  }

 private:
  struct KeyedLane {
    std::unique_ptr<KeyedState> state;
    std::unique_ptr<LaneMoves> moves;  // null: this is the only node
    uint64_t marked = 0;               // the number of the last mark
  };
  bool owns(uint32_t lane, uint32_t bin) const {
    return bin >> (plan_->bin_bits - plan_->lane_bits) == lane;
  }

  static constexpr uint64_t kSayEvery = 16;
  const std::shared_ptr<const KeyedPlan> plan_;
  const StateErrors errors_;
  std::unique_ptr<KeyedLane[]> lane_;
};

}  // namespace plait
