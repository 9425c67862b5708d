// TimedStage: an event-time operator by key: windows, joins.
//
// LaneStage has the protocol; the worker that finishes a unit's last lane puts what all lanes made
// of it in order. A row that is made at once keeps the place of the row it came from; what is due
// by time comes at the mark of the record with which the watermark reached that time. A lane takes
// all its rows of a unit and then lets time go on, so every row says when it was made (its tag). On
// several nodes the rows go on with their order (times, subs), and where they meet they are put in
// order.
#pragma once

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "plait/columns/merge_parts.hpp"
#include "plait/keyed/keyed_state.hpp"
#include "plait/stages/lane_stage.hpp"
#include "plait/stages/nan_key_filter.hpp"
#include "plait/time/timed_lane.hpp"

namespace plait {

// What all lanes of a timed operator share.
struct TimedPlan {
  TimedSpec spec;
  KeyedPlan keys;  // for hashing and splitting: no aggregates
  TimedOrigins origins;
  // On several nodes a row's order among those of its unit is its tag and, below that, so many
  // bits of its sub; kIndexed: the sub alone. One node: its position.
  bool nodes = false;
  int sub_bits = 0;

  // Makes `keys` from the spec: rows of a lane are told by their numbers, never by a mask.
  void hash_by(std::vector<Type> key_types) {
    keys =
        KeyedPlan::make(spec.key_columns, std::move(key_types), {}, spec.bin_bits, spec.lane_bits);
    keys.hot = false;
  }
};

class TimedStage final : public LaneStage {
 public:
  using MakeLane = std::unique_ptr<LaneOperator> (*)(const TimedSpec&, unsigned lane);

  TimedStage(std::string name, const StageLimits& limits, uint32_t op,
             std::shared_ptr<const TimedPlan> plan, MakeLane make, QueueKind kind, unsigned workers,
             Operators before, Operators after, StateErrors errors = {})
      : LaneStage(std::move(name), limits, op, plan->keys.lanes(), kind, workers, std::move(before),
                  std::move(after)),
        plan_(std::move(plan)),
        errors_(std::move(errors)),
        units_(new PendingUnit[limits.batches]) {
    const bool keyless = plan_->spec.key_columns.empty();
    const uint32_t bins = 1u << (plan_->spec.bin_bits - plan_->spec.lane_bits);
    for (uint32_t l = 0; l < lanes_; ++l) {
      lane_.push_back(std::make_unique<TimedLane>(op, l * bins, bins, keyless, make(plan_->spec, l),
                                                  UnitTime(plan_->origins)));
    }
    for (uint32_t u = 0; u < limits.batches; ++u) {
      for (uint32_t l = 0; l < lanes_; ++l) units_[u].made.emplace_back(plan_->spec.out_types);
    }
  }

  // On several nodes: where bins go and come from. Before the start.
  void moves(StateMoves& moves) { moves_ = &moves; }
  // After the run, once: how many results would come if time went on to its end. They are lost. One
  // that cannot be made (a sum that does not fit) would have ended the run: what is behind it does
  // not count.
  int64_t drop_unfinished() {
    int64_t rows = 0;
    for (auto& lane : lane_) {
      Emitter out(plan_->spec.out_types);
      try {
        if (lane->used) lane->op->advance(lane->time.watermarks.now(), kAllTime, out);
      } catch (const std::exception&) {
        return rows + out.length();
      }
      rows += out.length();
    }
    return rows;
  }
  bool runs(uint32_t op) const { return op == op_; }
  int64_t state_bytes() const { return bytes_.load(std::memory_order_relaxed); }

  void control_now(Control& c) override {
    for (uint32_t l = 0; l < lanes_; ++l) {
      for (const auto& bin : c.put) {  // all lanes know how far time was
        if (bin.op == op_) (void)lane_[l]->time.adopt(bytes_of(bin), bin.bytes.size());
      }
      control(c, l);
    }
  }

 protected:
  void cut(Slot& s) override {
    split_by_lane(plan_->keys, s.batch, s.split);
    if (plan_->nodes) unit(s).order = order_of(s.batch, plan_->sub_bits);
  }
  bool passes(Batch& batch, uint32_t lane) override {
    const bool layout = batch.control && batch.control->kind == Control::Kind::Layout;
    return !layout || !moves_ || lane_[lane]->pass(*batch.control, *moves_);
  }

  void run_part(Slot& s, uint32_t number) override {
    TimedLane& lane = *lane_[number];
    const Batch& batch = s.batch;
    PendingUnit& u = unit(s);
    Emitter& out = u.made[number];
    if (number == 0) u.base = lane.time.place(batch);
    const Part& part = s.split.parts[number];
    lane.used = lane.used || part.n;
    const uint32_t* order = plan_->nodes && batch.length ? u.order.as<uint32_t>() : nullptr;
    lane.run(batch, part.row, part.n, part.hash, order, out);
    if (number == 0 && s.serial % kSayEvery == 0) {  // lanes are about alike
      bytes_.store(lane.op->byte_size() * lanes_, std::memory_order_relaxed);
    }
  }

  void put_together(Slot& s, Worker& worker) override {
    Batch& batch = s.batch;
    PendingUnit& u = unit(s);
    Counts& counts = worker.shared.counts.of(op_, batch.epoch);
    const int64_t in = batch.length;
    int64_t late = 0, left_out = 0, failed = 0;
    for (const Emitter& e : u.made) {
      late += e.late;
      left_out += e.left_out;
      failed += int64_t(e.failed.size());
    }
    const Emitter* only = failed ? nullptr : in_order(u);
    std::vector<TimedRow> rows;
    if (!only) rows = sorted(u);
    if (failed) [[unlikely]]
      settle(batch, u, rows, worker);
    const bool nodes = plan_->nodes;
    if (nodes && batch.failure) {
      batch.failure = placed(*batch.failure, batch, u.base, plan_->sub_bits);
    }
    if (only) {
      const auto& orders = only->orders;
      set_tags(batch, only->length(), [&](int64_t i) { return orders[size_t(i)]; }, nodes);
      batch.columns = columns_of(*only);
      batch.length = only->length();
    } else {
      const auto n = int64_t(rows.size());
      set_tags(batch, n, [&](int64_t i) { return rows[size_t(i)].order; }, nodes);
      batch.columns = columns_of(u, rows);
      batch.length = n;
    }
    for (Emitter& e : u.made) {
      if (e.length() || e.late || e.left_out || failed) e.clear();
    }
    u.order = BufferRef();
    Counts::add(counts.late, late);
    Counts::add(counts.filtered, left_out);
    Counts::add(counts.absorbed, in - late - left_out - failed);
    Counts::add(counts.made, batch.length);
    Counts::add(counts.out, batch.length);
  }
  void control(Control& c, uint32_t number) override {
    TimedLane& lane = *lane_[number];
    if (c.kind == Control::Kind::Layout) return;  // see passes
    if (c.kind == Control::Kind::Put) {
      for (const auto& bin : c.put) {
        if (bin.op != op_ || !lane.owns(bin.bin)) continue;
        std::string why = lane.put(bin.bin, bytes_of(bin), bin.bytes.size());
        if (!why.empty()) c.refuse(std::move(why));
      }
      return;
    }
    std::vector<uint32_t> bins;
    if (c.kind == Control::Kind::Take) {
      if (c.op != op_) return;
      std::copy_if(c.bins.begin(), c.bins.end(), std::back_inserter(bins),
                   [&](uint32_t bin) { return lane.owns(bin); });
    } else {
      bins = lane.filled();
      if (bins.empty() && number == 0) bins.push_back(0);  // how far time is must be somewhere
    }
    std::vector<Bytes> states = lane.copy(bins);
    for (size_t i = 0; i < bins.size(); ++i) collect(c, bins[i], states[i]);
    if (c.kind == Control::Kind::Take) lane.op->drop_bins(bins);
  }

 private:
  // What the lanes make of one unit, beside its slot.
  struct PendingUnit {
    BufferRef order;    // of its rows; several nodes only
    uint64_t base = 0;  // the place of its first row
    std::vector<Emitter> made;
  };
  PendingUnit& unit(const Slot& s) { return units_[s.serial & (limits_.batches - 1)]; }

  // Rows of the unit that do not fit a sum, by the operator's policy. If the first of them ends the
  // job, what was made behind it is not given.
  void settle(Batch& batch, PendingUnit& u, std::vector<TimedRow>& rows, Worker& worker) {
    std::vector<RowFailure> failed;
    for (Emitter& e : u.made) {
      std::move(e.failed.begin(), e.failed.end(), std::back_inserter(failed));
    }
    std::sort(failed.begin(), failed.end(),
              [](const RowFailure& a, const RowFailure& b) { return a.row < b.row; });
    const Batch input = errors_.records(batch);
    const RowErrors errors(op_, errors_.on_error);
    if (errors.on_error() != OnError::Fail) {
      for (RowFailure& one : failed) errors.note(batch, input, one, worker);
      return;
    }
    const uint32_t row = failed.front().row;
    errors.note(batch, input, failed.front(), worker);
    const uint64_t place = u.base + (plan_->nodes ? u.order.as<uint32_t>()[row] : row);
    const TimedRow last{{kAtOnce, place, uint32_t(batch.position(row))}, 0};
    rows.erase(std::lower_bound(rows.begin(), rows.end(), last), rows.end());
  }

  // What the one lane made that has rows, if they are in order; null: there is more to do.
  static const Emitter* in_order(const PendingUnit& u) {
    const Emitter* only = &u.made[0];
    for (const Emitter& e : u.made) {
      if (only->length() && e.length() && &e != only) return nullptr;
      if (e.length()) only = &e;
    }
    return std::is_sorted(only->orders.begin(), only->orders.end()) ? only : nullptr;
  }
  static std::vector<TimedRow> sorted(const PendingUnit& u) {
    std::vector<TimedRow> rows;
    std::vector<size_t> starts{0};
    int64_t all = 0;
    for (const Emitter& e : u.made) all += e.length();
    rows.reserve(size_t(all));
    for (const Emitter& e : u.made) {
      for (const auto& order : e.orders) rows.push_back({order, uint32_t(rows.size())});
      if (rows.size() > starts.back()) sort_run(rows, starts);
    }
    merge_runs(rows, starts);
    return rows;
  }
  // The rows from the last start on are those of one lane.
  static void sort_run(std::vector<TimedRow>& rows, std::vector<size_t>& starts) {
    const auto from = rows.begin() + int64_t(starts.back());
    if (!std::is_sorted(from, rows.end())) std::stable_sort(from, rows.end());
    starts.push_back(rows.size());
  }
  static void merge_runs(std::vector<TimedRow>& rows, std::vector<size_t>& starts) {
    while (starts.size() > 2) {  // neighbours in pairs, so that equal ones keep the lanes' order
      std::vector<size_t> left{0};
      for (size_t i = 0; i + 1 < starts.size(); i += 2) {
        const size_t end = starts[std::min(i + 2, starts.size() - 1)];
        std::inplace_merge(rows.begin() + int64_t(starts[i]), rows.begin() + int64_t(starts[i + 1]),
                           rows.begin() + int64_t(end));
        left.push_back(end);
      }
      starts = std::move(left);
    }
  }

  static std::vector<Column> columns_of(const Emitter& made) {
    std::vector<Column> out;
    for (const GrowingColumn& column : made.columns) out.push_back(column.finish());
    return out;
  }
  static std::vector<Column> columns_of(const PendingUnit& u, const std::vector<TimedRow>& rows) {
    const auto n = int64_t(rows.size());
    int64_t all = 0;
    for (const Emitter& e : u.made) all += e.length();
    bool as_made = n == all;
    BufferRef order = BufferRef::make(4 * n);
    for (int64_t i = 0; i < n; ++i) {
      order.as<uint32_t>()[i] = rows[size_t(i)].at;
      as_made = as_made && rows[size_t(i)].at == uint32_t(i);
    }
    std::vector<Column> out;
    for (size_t c = 0; c < u.made[0].columns.size(); ++c) {
      std::vector<Column> made;
      std::vector<const Column*> parts;
      for (const Emitter& e : u.made) {
        if (e.length()) made.push_back(e.columns[c].finish());
      }
      if (made.empty()) made.push_back(u.made[0].columns[c].finish());
      for (const Column& column : made) parts.push_back(&column);
      Column whole = parts.size() == 1 ? made[0] : concat_columns(parts, all);
      out.push_back(as_made ? std::move(whole) : take(whole, order.as<uint32_t>(), n));
    }
    return out;
  }

  static constexpr uint64_t kSayEvery = 64;
  const std::shared_ptr<const TimedPlan> plan_;
  const StateErrors errors_;
  std::atomic<int64_t> bytes_{0};
  std::vector<std::unique_ptr<TimedLane>> lane_;
  std::unique_ptr<PendingUnit[]> units_;
  StateMoves* moves_ = nullptr;
};

}  // namespace plait
