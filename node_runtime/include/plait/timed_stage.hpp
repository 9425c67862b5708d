// TimedStage: an operator that knows time, by key, on all workers, in order.
//
// As in KeyedStage (lanes) a worker claims the next unit, runs the operators before the state and
// splits its rows by lane; each lane's parts run in serial order by one worker at a time; the
// worker that finishes a unit's last lane puts what all lanes made of it in order, runs the
// operators behind, and publishes the unit. A row that is made at once keeps the tag of the row it
// came from; what is due by time comes behind all rows of the unit: its tag is the number of rows
// the source had. On several nodes the rows go on with their order (times, subs), and where they
// meet they are put in order. Nobody waits.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "plait/key_guard.hpp"
#include "plait/keyed_state.hpp"
#include "plait/merge_parts.hpp"
#include "plait/stages.hpp"
#include "plait/timed_lane.hpp"

namespace plait {

// What all lanes of a timed operator share.
struct TimedPlan {
  TimedSpec spec;
  KeyedPlan keys;  // for hashing and splitting: no aggregates
  std::shared_ptr<const std::vector<TimedSource>> sources;
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

class TimedStage final : public Stage {
 public:
  using MakeLane = std::unique_ptr<LaneOperator> (*)(const TimedSpec&, unsigned lane);

  TimedStage(std::string name, const StageLimits& limits, uint32_t node,
             std::shared_ptr<const TimedPlan> plan, MakeLane make, unsigned workers,
             Operators before, Operators after)
      : Stage(std::move(name), limits),
        node_(node),
        plan_(std::move(plan)),
        lanes_(plan_->keys.lanes()),
        in_flight_(std::min<uint64_t>(limits.batches, 4 * uint64_t(workers) + 4)),
        before_ops_(std::move(before)),
        after_ops_(std::move(after)),
        lane_(new Lane[lanes_]),
        units_(new Unit[limits.batches]) {
    const bool keyless = plan_->spec.key_columns.empty();
    const uint32_t bins = 1u << (plan_->spec.bin_bits - plan_->spec.lane_bits);
    for (uint32_t l = 0; l < lanes_; ++l) {
      lane_[l].it = std::make_unique<TimedLane>(node, l * bins, bins, keyless, make(plan_->spec, l),
                                                UnitTime(plan_->sources));
    }
    for (uint32_t u = 0; u < limits.batches; ++u) {
      for (uint32_t l = 0; l < lanes_; ++l) units_[u].made.emplace_back(plan_->spec.out_types);
    }
  }

  // On several nodes: where bins go and come from. Before the start.
  void moves(StateMoves& moves) { moves_ = &moves; }
  int64_t state_bytes() const { return bytes_.load(std::memory_order_relaxed); }

  bool runnable() const override {
    return claimed() < pushed() || claimed() > lane_low() || released() < claimed();
  }
  int64_t run(Worker& worker, int64_t records) override {
    int64_t done = 0;
    while (done < records) {
      int64_t n = drain_own(worker);
      if (n == 0) n = take_batch(worker);
      if (n == 0) n = drain_others(worker);
      if (n == 0) break;
      done += n;
    }
    return done;
  }
  void control_now(Control& c) override {
    for (uint32_t l = 0; l < lanes_; ++l) {
      for (const auto& bin : c.put) {  // all lanes know how far time was
        if (bin.node == node_) (void)lane_[l].it->time.adopt(bytes_of(bin), bin.bytes.size());
      }
      control(c, l);
    }
  }

 private:
  struct alignas(kCacheLine) Lane {
    std::atomic<bool> busy{false};
    std::atomic<uint64_t> next{0};  // the serial whose part runs next
    std::unique_ptr<TimedLane> it;
  };
  // What the lanes make of one unit, beside its slot.
  struct Unit {
    BufferRef order;  // of its rows; several nodes only
    std::vector<Emitter> made;
  };

  Unit& unit(const Slot& s) { return units_[s.serial & (limits_.batches - 1)]; }
  static const uint8_t* bytes_of(const Control::Bin& bin) {
    return reinterpret_cast<const uint8_t*>(bin.bytes.data());
  }
  static bool holds_rows(const Batch& b) { return !b.control && !b.end && !broken(b); }
  uint64_t lane_low() const {
    uint64_t low = UINT64_MAX;
    for (uint32_t l = 0; l < lanes_; ++l) {
      low = std::min(low, lane_[l].next.load(std::memory_order_relaxed));
    }
    return low;
  }

  int64_t take_batch(Worker& worker) {
    Slot* s = try_claim(in_flight_);
    if (!s) return 0;
    Batch& batch = s->batch;
    stats.records_in.fetch_add(s->records, std::memory_order_relaxed);
    if (!batch.control && !batch.end) {
      run_all(before_ops_, batch, worker);
      if (holds_rows(batch)) {
        guarded(batch, node_, [&] {
          split(plan_->keys, batch, s->split);
          if (plan_->nodes) unit(*s).order = order_of(batch, plan_->sub_bits);
        });
      }
    }
    const int64_t records = s->records;  // once it is published the slot may be used again
    s->left.store(lanes_, std::memory_order_relaxed);  // published by the release below
    s->split_serial.store(s->serial + 1, std::memory_order_release);  // pairs with drain
    return records + 1;
  }

  int64_t drain_own(Worker& worker) {
    int64_t done = 0;
    for (uint32_t l = worker.id % lanes_; l < lanes_; l += worker.workers) done += drain(l, worker);
    return done;
  }
  int64_t drain_others(Worker& worker) {
    for (uint32_t i = 1; i <= lanes_; ++i) {
      if (const int64_t n = drain((worker.id + i) % lanes_, worker)) return n;
    }
    return 0;
  }
  bool part_ready(uint64_t next) {
    // Acquire pairs with the release in take_batch: the batch and its split.
    return slot(next).split_serial.load(std::memory_order_acquire) == next + 1;
  }

  int64_t drain(uint32_t number, Worker& worker) {
    Lane& lane = lane_[number];
    if (!part_ready(lane.next.load(std::memory_order_relaxed))) return 0;
    // Acquire pairs with the release below: the lane's state as its last holder left it.
    if (lane.busy.exchange(true, std::memory_order_acquire)) return 0;
    const uint64_t next = lane.next.load(std::memory_order_relaxed);
    Slot& s = slot(next);
    if (!part_ready(next) || !passes(s.batch, number)) {
      lane.busy.store(false, std::memory_order_release);
      return 0;
    }
    const int64_t records = s.records;
    run_lane(s, number);
    lane.next.store(next + 1, std::memory_order_relaxed);
    lane.busy.store(false, std::memory_order_release);
    count_down(s, worker);
    return records / int64_t(lanes_) + 1;
  }
  bool passes(const Batch& batch, uint32_t lane) {
    const bool layout = batch.control && batch.control->kind == Control::Kind::Layout;
    return !layout || !moves_ || lane_[lane].it->pass(*batch.control, *moves_);
  }

  void run_lane(Slot& s, uint32_t number) {
    TimedLane& lane = *lane_[number].it;
    const Batch& batch = s.batch;
    if (batch.control) return control(*batch.control, number);
    if (!holds_rows(batch)) return;
    Unit& u = unit(s);
    Emitter& out = u.made[number];
    try {
      const int64_t before = lane.time.watermarks.now();
      const Part& part = s.split.parts[number];
      if (part.n) {
        const uint32_t* order = plan_->nodes ? u.order.as<uint32_t>() : nullptr;
        lane.op->process(
            {batch, part.row, part.n, part.hash, lane.time.place(batch), order, before}, out);
      }
      if (batch.failure) return;  // what comes behind it is not delivered
      lane.time.watermarks.note(batch);
      const int64_t after = lane.time.watermarks.now();
      if (after > before || (part.n && lane.op->wants_end())) lane.op->advance(before, after, out);
    } catch (const std::exception& error) {
      broken_.store(true, std::memory_order_relaxed);  // read behind the countdown's acquire
    }
    if (number == 0 && s.serial % kSayEvery == 0) {  // lanes are about alike
      bytes_.store(lane.op->byte_size() * lanes_, std::memory_order_relaxed);
    }
  }

  void count_down(Slot& s, Worker& worker) {
    // acq_rel: the last lane sees the results of all the others.
    if (s.left.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    Batch& batch = s.batch;
    if (holds_rows(batch)) {
      guarded(batch, node_, [&] {
        if (broken_.load(std::memory_order_relaxed)) throw std::bad_alloc();
        put_in_order(batch, unit(s), worker);
      });
      run_all(after_ops_, batch, worker);
    }
    finish(s, worker);
  }

  void put_in_order(Batch& batch, Unit& u, Worker& worker) {
    Counts& counts = worker.shared.counts[node_];
    const int64_t in = batch.length;
    int64_t late = 0, left_out = 0;
    std::vector<TimedRow> rows;
    std::vector<size_t> starts{0};
    for (const Emitter& e : u.made) {
      for (const auto& order : e.orders) rows.push_back({order, uint32_t(rows.size())});
      if (rows.size() > starts.back()) sort_run(rows, starts);
      late += e.late;
      left_out += e.left_out;
    }
    merge_runs(rows, starts);
    const bool nodes = plan_->nodes;
    set_tags(batch, nodes && in ? u.order.as<uint32_t>() : nullptr, rows, nodes);
    batch.columns = columns_of(u, rows);
    batch.length = int64_t(rows.size());
    for (Emitter& e : u.made) {
      if (e.length() || e.late || e.left_out) e.clear();
    }
    u.order = BufferRef();
    Counts::add(counts.late, late);
    Counts::add(counts.filtered, left_out);
    Counts::add(counts.absorbed, in - late - left_out);
    Counts::add(counts.made, batch.length);
    Counts::add(counts.out, batch.length);
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

  static std::vector<Column> columns_of(const Unit& u, const std::vector<TimedRow>& rows) {
    const auto n = int64_t(rows.size());
    bool as_made = true;
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
      Column whole = parts.size() == 1 ? made[0] : concat_columns(parts, n);
      out.push_back(as_made ? std::move(whole) : take(whole, order.as<uint32_t>(), n));
    }
    return out;
  }

  void control(Control& c, uint32_t number) {
    TimedLane& lane = *lane_[number].it;
    if (c.kind == Control::Kind::Layout) return;  // see passes
    if (c.kind == Control::Kind::Put) {
      for (const auto& bin : c.put) {
        if (bin.node != node_ || !lane.owns(bin.bin)) continue;
        std::string why = lane.put(bin.bin, bytes_of(bin), bin.bytes.size());
        if (!why.empty()) c.refuse(std::move(why));
      }
      return;
    }
    std::vector<uint32_t> bins;
    if (c.kind == Control::Kind::Take) {
      if (c.node != node_) return;
      std::copy_if(c.bins.begin(), c.bins.end(), std::back_inserter(bins),
                   [&](uint32_t bin) { return lane.owns(bin); });
    } else {
      bins = lane.filled();
      if (bins.empty() && number == 0) bins.push_back(0);  // how far time is must be somewhere
    }
    // A run that begins with a snapshot counts its units from here on.
    const uint64_t before = lane.time.units_until(c.kind == Control::Kind::Take ? 0 : c.epoch);
    std::vector<Bytes> states = lane.copy(bins, before);
    for (size_t i = 0; i < bins.size(); ++i) {
      const auto* data = reinterpret_cast<const char*>(states[i].data());
      c.collect({node_, bins[i], std::string(data, size_t(states[i].size))});
    }
    if (c.kind == Control::Kind::Take) lane.op->drop_bins(bins);
  }

  static constexpr uint64_t kSayEvery = 64;
  const uint32_t node_;
  const std::shared_ptr<const TimedPlan> plan_;
  const uint32_t lanes_;
  const uint64_t in_flight_;
  const Operators before_ops_, after_ops_;
  std::atomic<bool> broken_{false};  // a lane ran out of memory: its state is not to be trusted
  std::atomic<int64_t> bytes_{0};
  std::unique_ptr<Lane[]> lane_;
  std::unique_ptr<Unit[]> units_;
  StateMoves* moves_ = nullptr;
};

}  // namespace plait
