// KeyedStage: state by key, on all workers, in order.
//
// A worker claims the next batch, runs the operators before the state, and splits its rows by lane;
// each lane's parts are run in serial order by one worker at a time; the worker that finishes a
// batch's last lane puts the results back in row order, runs the operators behind the state, and
// publishes the batch to the reorder buffer. How parts reach workers is a choice:
//   lanes        a flag a batch and a try-lock a lane: no queue at all (the default, the fastest
//   measured) hybrid       the paper's Fig. 7: split batches pass a reorder buffer (Fig. 4), then
//   master queue and lane queues partitioned  section 4.2: lane queues only, each worker serves its
//   own lanes first shared       section 4.1: one queue, taking a part locks its lane
// Control items are split like batches without rows: every lane meets them between the same two
// batches. Nobody waits; a preempted worker that holds a lane delays that lane until it runs again.
// On several nodes (Megaphone's S) a lane gives away the bins that a new layout takes from this
// node when it meets the layout, and stays there until the bins it brings have come.
#pragma once

#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "plait/hybrid_queue.hpp"
#include "plait/keyed_state.hpp"
#include "plait/partitioned_queue.hpp"
#include "plait/shared_queue.hpp"
#include "plait/stages.hpp"
#include "plait/state_moves.hpp"

namespace plait {

enum class QueueKind : uint8_t { Lanes, Hybrid, Partitioned, Shared };

// Rows whose key cannot be one (NaN) leave by the operator's policy; all other rows stay. It sees
// the rows as they came to the operator, so that a failed record is shown as it was, and counts
// them in.
class KeyGuard final : public Operator {
 public:
  KeyGuard(uint32_t node, OnError on_error, std::vector<uint32_t> float_keys)
      : Operator(node, on_error), float_keys_(std::move(float_keys)) {}
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

class KeyedStage final : public Stage, public MovingState {
 public:
  KeyedStage(std::string name, const StageLimits& limits, uint32_t node,
             std::shared_ptr<const KeyedPlan> plan, uint32_t lanes, QueueKind kind,
             unsigned workers, Operators before, Operators after)
      : Stage(std::move(name), limits),
        node_(node),
        plan_(std::move(plan)),
        lanes_(lanes),
        in_flight_(std::min<uint64_t>(limits.batches, 4 * uint64_t(workers) + 4)),
        before_ops_(std::move(before)),
        after_ops_(std::move(after)),
        lane_(new Lane[lanes]) {
    for (uint32_t l = 0; l < lanes; ++l) lane_[l].state = std::make_unique<KeyedState>(*plan_, l);
    if (kind == QueueKind::Hybrid) {
      hybrid_ = std::make_unique<HybridQueue<Slot>>(lanes, limits.batches);
    } else if (kind == QueueKind::Partitioned) {
      partitioned_ = std::make_unique<PartitionedQueue<Slot>>(lanes, limits.batches, workers);
    } else if (kind == QueueKind::Shared) {
      shared_ = std::make_unique<SharedQueue<Slot>>(lanes, limits.batches);
    }
    if (kind != QueueKind::Lanes) {
      // Twice the ring: a worker may rest between queueing a batch and counting it as sent, while
      // the others finish that batch and its slot comes round again.
      splits_ = std::make_unique<ReorderBuffer<Slot>>(2 * size_t(limits.batches));
    }
  }

  bool runnable() const override {
    return claimed() < pushed() || claimed() > lane_low() || released() < claimed();
  }

  int64_t run(Worker& worker, int64_t records) override {
    int64_t done = 0;
    while (done < records) {
      int64_t n = splits_ ? consume(worker) : drain_own(worker);
      if (n == 0) n = take_batch(worker);
      if (n == 0) n = splits_ ? enqueue_again(worker) : drain_others(worker);
      if (n == 0) break;
      done += n;
    }
    return done;
  }

  void control_now(Control& c) override {
    for (uint32_t l = 0; l < lanes_; ++l) control(c, l);
  }
  KeyedState& state(uint32_t lane) { return *lane_[lane].state; }
  uint32_t lanes() const { return lanes_; }
  uint32_t node() const { return node_; }
  const KeyedPlan& plan() const { return *plan_; }
  // As the lanes last said.
  int64_t state_bytes() const {
    int64_t n = 0;
    for (uint32_t l = 0; l < lanes_; ++l) n += lane_[l].bytes.load(std::memory_order_relaxed);
    return n;
  }
  // On several nodes: where bins go and come from. Before the start, and only with
  // QueueKind::Lanes.
  void moves(StateMoves& moves) {
    moves_ = &moves;
    moves.add_state(*this);
  }
  uint32_t state_node() const override { return node_; }
  uint64_t keys_of_a_bin() const override {
    uint64_t most = 0;
    for (uint32_t l = 0; l < lanes_; ++l) {
      most = std::max(most, lane_[l].keys.load(std::memory_order_relaxed));
    }
    return most;
  }
  void expect(const std::vector<uint32_t>& bins, uint64_t keys) override {
    if (plan_->key_types.empty()) return;
    std::lock_guard<std::mutex> hold(expecting_);
    for (uint32_t bin : bins) {
      Lane& lane = lane_[bin >> (plan_->bin_bits - plan_->lane_bits)];
      lane.coming.push_back(bin);
      lane.keys_coming = keys;
      lane.expects.store(true, std::memory_order_release);  // pairs with make_ready
    }
  }

 private:
  struct alignas(kCacheLine) Lane {
    std::atomic<bool> busy{false};
    std::atomic<uint64_t> next{0};  // the serial whose part runs next
    std::unique_ptr<KeyedState> state;
    Control* moving = nullptr;  // the layout that is being passed
    std::vector<uint32_t> missing;
    std::atomic<int64_t> bytes{0};  // of its state, said now and then ...
    std::atomic<uint64_t> keys{0};  // ... and the keys that nearly every bin stays below
    std::atomic<bool> expects{false};
    std::vector<uint32_t> coming;  // under expecting_
    uint64_t keys_coming = 0;
  };

  uint64_t lane_low() const {
    uint64_t low = UINT64_MAX;
    for (uint32_t l = 0; l < lanes_; ++l) {
      low = std::min(low, lane_[l].next.load(std::memory_order_relaxed));
    }
    return splits_ ? 0 : low;
  }

  int64_t take_batch(Worker& worker) {
    Slot* s = try_claim(in_flight_);
    if (!s) return 0;
    Batch& batch = s->batch;
    stats.records_in.fetch_add(s->records, std::memory_order_relaxed);
    if (!batch.control && !batch.end) {
      run_all(before_ops_, batch, worker);
      if (holds_rows(batch)) guarded(batch, node_, [&] { split(*plan_, batch, s->split); });
    }
    const int64_t records = s->records;  // once it is published the slot may be used again
    s->queued = 0;
    s->left.store(lanes_, std::memory_order_relaxed);  // published by the release below
    if (!splits_) {
      s->split_serial.store(s->serial + 1, std::memory_order_release);  // pairs with drain
    } else {
      (void)splits_->send(s->serial, s, [&](Slot* ready) { return enqueue(ready); });
    }
    return records + 1;
  }

  // Fig. 7's addInput, for every lane's part; under the flag of splits_. The queues hold a whole
  // ring of batches, but a consumer that rests inside the master queue keeps an entry: then the
  // batch waits for the next call.
  bool enqueue(Slot* s) {
    for (uint32_t l = s->queued; l < lanes_; ++l) {
      const bool fits = hybrid_        ? hybrid_->try_add(l, s)
                        : partitioned_ ? partitioned_->try_add(l, s)
                                       : shared_->try_add(l, s);
      if (!fits) {
        s->queued = l;
        return false;
      }
    }
    return true;  // and the slot is not ours any more
  }

  int64_t enqueue_again(Worker& worker) {
    if (!splits_->ready()) return 0;
    splits_->send_pending([&](Slot* ready) { return enqueue(ready); });
    return consume(worker);
  }

  int64_t consume(Worker& worker) {
    int64_t rows = 0;
    auto operate = [&](size_t lane, Slot* s) {
      rows += s->records + 1;
      run_part(*s, uint32_t(lane), worker);
    };
    if (hybrid_) {
      hybrid_->consume(worker.id, operate, 1);
    } else if (partitioned_) {
      partitioned_->consume(worker.id, operate, 1);
    } else {
      shared_->consume(worker.id, operate, 1);
    }
    return rows;
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
    if (!part_ready(next)) {
      lane.busy.store(false, std::memory_order_release);
      return 0;
    }
    Slot& s = slot(next);
    const int64_t records = s.records;
    if (moves_ && !moved(s.batch, number)) {
      lane.busy.store(false, std::memory_order_release);
      return 0;
    }
    run_lane(s, number);
    if (moves_ && next % kSayEvery == 0) say_size(lane, number);
    lane.next.store(next + 1, std::memory_order_relaxed);
    lane.busy.store(false, std::memory_order_release);
    count_down(s, worker);
    return records / int64_t(lanes_) + 1;
  }

  void run_part(Slot& s, uint32_t number, Worker& worker) {
    run_lane(s, number);
    count_down(s, worker);
  }

  void run_lane(Slot& s, uint32_t number) {
    if (s.batch.control) {
      control(*s.batch.control, number);
    } else if (holds_rows(s.batch)) {
      try {
        lane_[number].state->process(s.batch, s.split, number);
      } catch (const std::exception& error) {
        broken_.store(true, std::memory_order_relaxed);  // read behind the countdown's acquire
      }
    }
  }

  void count_down(Slot& s, Worker& worker) {
    // acq_rel: the last lane sees the results of all the others.
    if (s.left.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    Batch& batch = s.batch;
    if (holds_rows(batch)) {
      guarded(batch, node_, [&] {
        if (broken_.load(std::memory_order_relaxed)) throw std::bad_alloc();
        Batch out;
        merge(*plan_, batch, s.split, out);
        batch.columns = std::move(out.columns);
        Counts::add(worker.shared.counts[node_].out, batch.length);
      });
      run_all(after_ops_, batch, worker);
    }
    finish(s, worker);
  }
  // Not a marker, and not a batch that the runtime itself failed on.
  static bool holds_rows(const Batch& b) { return !b.control && !b.end && !broken(b); }

  bool owns(uint32_t lane, uint32_t bin) const {
    return bin >> (plan_->bin_bits - plan_->lane_bits) == lane;
  }

  void say_size(Lane& lane, uint32_t number) const {
    const uint32_t bins = 1u << (plan_->bin_bits - plan_->lane_bits);
    uint64_t keys = 0, filled = 0;
    for (uint32_t bin = number * bins; bin < (number + 1) * bins; ++bin) {
      const uint64_t here = lane.state->bin_keys(bin);
      keys += here;
      filled += here > 0;
    }
    lane.bytes.store(int64_t(keys * plan_->words * 8), std::memory_order_relaxed);
    // Keys fall into bins by chance: three deviations above the mean, few bins have more.
    const double mean = filled ? double(keys) / double(filled) : 0;
    lane.keys.store(uint64_t(mean + 3 * std::sqrt(mean)), std::memory_order_relaxed);
  }
  // Takes in what came ahead, and passes a layout: false as long as a bin it brings is missing.
  bool moved(const Batch& batch, uint32_t number) {
    Lane& lane = lane_[number];
    // Acquire pairs with the release in expect.
    if (lane.expects.load(std::memory_order_acquire)) make_ready(lane);
    const uint32_t bins = 1u << (plan_->bin_bits - plan_->lane_bits);
    uint32_t bin = 0;
    MovedBin copy;
    if (moves_->take_copy(node_, number * bins, (number + 1) * bins, bin, copy)) {
      put_copy(*lane.state, bin, copy);
    }
    if (!batch.control || batch.control->kind != Control::Kind::Layout) return true;
    Control& c = *batch.control;
    if (lane.moving != &c) {
      lane.moving = &c;
      lane.missing.clear();
      give(c, number);
    }
    std::erase_if(lane.missing, [&](uint32_t b) { return install(c, *lane.state, b); });
    if (!lane.missing.empty()) return false;
    copy_ahead(c, number);
    say_size(lane, number);
    lane.moving = nullptr;
    return true;
  }
  void make_ready(Lane& lane) {
    std::vector<uint32_t> coming;
    uint64_t keys = 0;
    {
      std::lock_guard<std::mutex> hold(expecting_);
      lane.expects.store(false, std::memory_order_relaxed);
      coming.swap(lane.coming);
      keys = lane.keys_coming * coming.size();
    }
    lane.state->prepare(coming, keys);
    moves_->populate(lane.state->untouched());
  }
  // Ships what goes and notes what comes.
  void give(const Control& c, uint32_t number) {
    Lane& lane = lane_[number];
    const auto& before = c.before->owners;
    const auto& after = c.layout->owners;
    const uint32_t here = moves_->here();
    const bool keyless = plan_->key_types.empty();
    const uint32_t bins = 1u << (plan_->bin_bits - plan_->lane_bits);
    const uint32_t single = singleton_bin(node_, after.size());
    for (uint32_t k = 0; k < (keyless ? 1 : bins); ++k) {
      const uint32_t bin = keyless ? 0 : number * bins + k;
      const uint32_t at = keyless ? single : bin;
      if (before[at] == after[at]) continue;
      if (before[at] == here) {
        const bool copied = lane.state->tracked(bin) && c.before->copied(bin, after[at]);
        Bytes bytes = copied ? lane.state->take_difference(bin) : lane.state->take_bin(bin);
        ship(after[at], bin, c.epoch, copied ? MoveKind::Difference : MoveKind::Whole,
             std::move(bytes));
      } else if (after[at] == here) {
        lane.missing.push_back(bin);
      }
    }
    if (keyless) return;
    for (auto one : c.before->copies) {  // a copy that came to nothing
      if (!owns(number, one.first) || !lane.state->tracked(one.first)) continue;
      if (!c.layout->copied(one.first, one.second)) lane.state->untrack(one.first);
    }
  }
  // Copies what will go soon. Not before all that comes is in: a copy that is made without that has
  // no keys, and could reach the old owner before it has given the bin away.
  void copy_ahead(const Control& c, uint32_t number) {
    Lane& lane = lane_[number];
    const uint32_t here = moves_->here();
    if (plan_->key_types.empty()) return;
    for (auto [bin, to] : c.layout->copies) {
      if (!owns(number, bin) || c.layout->owners[bin] != here || to == here ||
          lane.state->tracked(bin)) {
        continue;  // not ours, or on its way since an earlier layout
      }
      lane.state->track(bin);
      ship(to, bin, c.epoch, MoveKind::Copy, lane.state->copy_bin(bin));
    }
  }
  void ship(uint32_t to, uint32_t bin, uint64_t epoch, MoveKind kind, Bytes bytes) {
    const uint8_t* data = bytes.bytes.data();
    moves_->ship(to, node_, bin, {epoch, kind, std::move(bytes.bytes), data, bytes.size});
  }
  bool install(Control& c, KeyedState& state, uint32_t bin) {
    MovedBin m;
    while (moves_->take(node_, bin, c.epoch, m)) {
      if (m.kind == MoveKind::Copy) {
        put_copy(state, bin, m);
        continue;
      }
      if (m.kind == MoveKind::Whole) state.discard_bin(bin);  // a copy that came to nothing
      std::string why = m.kind == MoveKind::Whole ? state.put_bin(m.data, size_t(m.size))
                                                  : state.apply_difference(m.data, size_t(m.size));
      if (!why.empty()) c.refuse("bin " + std::to_string(bin) + ": " + why);
      moves_->installed(m.size);
      return true;
    }
    return false;
  }
  void put_copy(KeyedState& state, uint32_t bin, const MovedBin& m) {
    state.discard_bin(bin);                       // an older copy
    (void)state.put_bin(m.data, size_t(m.size));  // if it is damaged, its difference is refused
    moves_->moved_bytes.fetch_add(m.size, std::memory_order_relaxed);
  }

  void control(Control& c, uint32_t lane) {
    KeyedState& state = *lane_[lane].state;
    auto collect = [&](uint32_t bin, const Bytes& bytes) {
      c.collect(
          {node_, bin,
           std::string(reinterpret_cast<const char*>(bytes.bytes.data()), size_t(bytes.size))});
    };
    if (c.kind == Control::Kind::Layout) return;  // see moved
    if (c.kind == Control::Kind::Put) {
      for (const auto& bin : c.put) {
        if (bin.node != node_ || !owns(lane, bin.bin)) continue;
        const auto* bytes = reinterpret_cast<const uint8_t*>(bin.bytes.data());
        std::string why = state.put_bin(bytes, bin.bytes.size());
        if (!why.empty()) c.refuse(std::move(why));
      }
    } else if (c.kind == Control::Kind::Take) {
      if (c.node != node_) return;
      for (uint32_t bin : c.bins) {
        if (owns(lane, bin)) collect(bin, state.take_bin(bin));
      }
    } else {
      const uint32_t bins = 1u << (plan_->bin_bits - plan_->lane_bits);
      for (uint32_t bin = lane * bins; bin < (lane + 1) * bins; ++bin) {
        if (!state.empty(bin)) collect(bin, state.copy_bin(bin));
      }
    }
  }

  static constexpr uint64_t kSayEvery = 16;
  const uint32_t node_;
  const std::shared_ptr<const KeyedPlan> plan_;
  const uint32_t lanes_;
  const uint64_t in_flight_;
  const Operators before_ops_, after_ops_;
  StateMoves* moves_ = nullptr;
  std::mutex expecting_;
  std::atomic<bool> broken_{false};  // a lane ran out of memory: its state is not to be trusted
  std::unique_ptr<Lane[]> lane_;
  std::unique_ptr<ReorderBuffer<Slot>> splits_;
  std::unique_ptr<HybridQueue<Slot>> hybrid_;
  std::unique_ptr<PartitionedQueue<Slot>> partitioned_;
  std::unique_ptr<SharedQueue<Slot>> shared_;
};

}  // namespace plait
