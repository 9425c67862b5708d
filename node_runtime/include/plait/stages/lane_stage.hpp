// LaneStage: state by key, on all workers, in order: what operators with lanes share.
//
// A worker claims the next batch, runs the operators before the state, and splits its rows by lane;
// each lane's parts are run in serial order by one worker at a time; the worker that finishes a
// batch's last lane puts the results together, runs the operators after the state, and publishes
// the batch to the reorder buffer. How parts reach workers is a choice (QueueKind).
//
// Control items are split like batches without rows: every lane meets them between the same two
// batches. No worker waits; a preempted one that holds a lane delays that lane until it runs again.
//
// A lane may write its state for a mark behind it (begin_save, save_some): a slice at a time, by
// whoever holds the lane. A thread beside the workers asks for them; where a worker holds the lane,
// that one writes the slice behind its batch.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "plait/keyed/aggregates.hpp"
#include "plait/queues/hybrid_queue.hpp"
#include "plait/queues/partitioned_queue.hpp"
#include "plait/queues/shared_queue.hpp"
#include "plait/stages/row_operators.hpp"
#include "plait/stages/stage_impl.hpp"

namespace plait {

// What becomes of rows that do not fit a sum: the operator's policy, and which columns of the rows
// that reach the state are the record as it came to the operator. None: the record is not here.
struct StateErrors {
  OnError on_error = OnError::Fail;
  std::vector<int> record{};

  Batch records(const Batch& rows) const {
    Batch input = rows;
    input.columns.clear();
    for (int c : record) input.columns.push_back(rows.columns[size_t(c)]);
    return input;
  }
};

enum class QueueKind : uint8_t {
  // A flag for each batch and a try-lock for each lane, without a queue: the default, the fastest.
  Lanes,
  // Fig. 7 of the paper: split batches pass a reorder buffer (Fig. 4), then the master queue and
  // the lanes' queues.
  Hybrid,
  // Section 4.2: the lanes' queues only; each worker serves its own lanes first.
  Partitioned,
  // Section 4.1: one queue; taking a part locks its lane.
  Shared,
};

class LaneStage : public Stage {
 public:
  LaneStage(std::string name, const StageLimits& limits, uint32_t op, uint32_t lanes,
            QueueKind kind, unsigned workers, Operators before, Operators after)
      : Stage(std::move(name), limits),
        op_(op),
        lanes_(lanes),
        in_flight_(std::min<uint64_t>(limits.batches, 4 * uint64_t(workers) + 4)),
        before_ops_(std::move(before)),
        after_ops_(std::move(after)),
        turns_(new LaneTurn[lanes]) {
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
      if (worker.slice_over()) break;
    }
    return done;
  }
  void control_now(Control& c) override {
    for (uint32_t l = 0; l < lanes_; ++l) control(c, l);
  }
  void save_some() override {
    bool any = false;
    for (uint32_t l = 0; l < lanes_; ++l) {
      LaneTurn& turn = turns_[l];
      if (!turn.saving.load(std::memory_order_relaxed)) continue;
      turn.asked.store(true, std::memory_order_relaxed);
      // Acquire pairs with the release of the last holder: the state as it left it.
      if (turn.busy.exchange(true, std::memory_order_acquire)) continue;
      save_slice(l);
      turn.busy.store(false, std::memory_order_release);
      any = true;
    }
    if (any) came();  // a worker may have found the lane busy
  }
  uint32_t lanes() const { return lanes_; }
  uint32_t op() const { return op_; }

 protected:
  // Cuts the rows of a batch into the lanes' parts. Any worker, each on its own batch.
  virtual void cut(Slot& slot) = 0;
  // Whether the lane can take the next batch now (QueueKind::Lanes only); then its part is run.
  // The holder of the lane calls these two and `control`.
  virtual bool passes(Batch& /*batch*/, uint32_t /*lane*/) { return true; }
  virtual void run_part(Slot& slot, uint32_t lane) = 0;
  virtual void control(Control& control, uint32_t lane) = 0;
  // The lane's bins as they are at a mark are written behind it; false: they are not, and
  // `control` gives them now. Then save_lane goes on with it until over() says so, and says whether
  // that was all; what is complete goes to the mark. The holder of the lane calls them.
  virtual bool begin_save(Control& /*mark*/, uint32_t /*lane*/) { return false; }
  virtual bool save_lane(Control& /*mark*/, uint32_t /*lane*/, int64_t /*until_ns*/) {
    return true;
  }
  // Puts together what all lanes made of a batch that holds rows.
  virtual void put_together(Slot& slot, Worker& worker) = 0;

  static const uint8_t* bytes_of(const Control::Bin& bin) {
    return reinterpret_cast<const uint8_t*>(bin.bytes.data());
  }
  void collect(Control& c, uint32_t bin, const Bytes& bytes) const {
    c.collect(
        {op_, bin, std::string(reinterpret_cast<const char*>(bytes.data()), size_t(bytes.size))});
  }

  const uint32_t op_, lanes_;

 private:
  struct alignas(kCacheLine) LaneTurn {
    std::atomic<bool> busy{false};
    std::atomic<uint64_t> next{0};  // the serial whose part runs next
    std::atomic<bool> saving{false}, asked{false};
    std::shared_ptr<Control> mark;  // that the lane writes its state for
  };

  uint64_t lane_low() const {
    uint64_t low = UINT64_MAX;
    for (uint32_t l = 0; l < lanes_; ++l) {
      low = std::min(low, turns_[l].next.load(std::memory_order_relaxed));
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
      if (holds_rows(batch)) guarded(batch, op_, [&] { cut(*s); });
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
      run_lane(*s, uint32_t(lane));
      count_down(*s, worker);
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

  int64_t drain(uint32_t lane, Worker& worker) {
    LaneTurn& turn = turns_[lane];
    if (!part_ready(turn.next.load(std::memory_order_relaxed))) return 0;
    // Acquire pairs with the release below: the lane's state as its last holder left it.
    if (turn.busy.exchange(true, std::memory_order_acquire)) return 0;
    const uint64_t next = turn.next.load(std::memory_order_relaxed);
    Slot& s = slot(next);
    if (!part_ready(next) || !passes(s.batch, lane)) {
      turn.busy.store(false, std::memory_order_release);
      return 0;
    }
    const int64_t records = s.records;
    run_lane(s, lane);
    turn.next.store(next + 1, std::memory_order_relaxed);
    if (turn.asked.load(std::memory_order_relaxed)) [[unlikely]]
      save_slice(lane);
    turn.busy.store(false, std::memory_order_release);
    count_down(s, worker);
    return records / int64_t(lanes_) + 1;
  }

  void run_lane(Slot& s, uint32_t lane) {
    if (s.batch.control) {
      meet(s.batch.control, lane);
    } else if (holds_rows(s.batch)) {
      try {
        run_part(s, lane);
      } catch (const SumOverflow& error) {
        s.split.parts[lane].overflowed = error.what();  // of this batch: those before it go on
      } catch (const std::exception& error) {
        broken_.store(true, std::memory_order_relaxed);  // read behind the countdown's acquire
      }
    }
  }

  void meet(const std::shared_ptr<Control>& c, uint32_t lane) {
    const int64_t began = c->mark ? now_ns() : 0;
    LaneTurn& turn = turns_[lane];
    if (c->mark && turn.mark) {
      turn.mark->refuse("the next mark came before the state of this one was written");
      end_save(turn);
    }
    if (c->mark && !splits_ && begin_save(*c, lane)) {
      turn.mark = c;
      c->unsaved.fetch_add(1, std::memory_order_relaxed);  // before it arrives anywhere
      turn.saving.store(true, std::memory_order_relaxed);
    } else {
      control(*c, lane);
    }
    if (c->mark) c->held(now_ns() - began);
  }
  void save_slice(uint32_t lane) {
    LaneTurn& turn = turns_[lane];
    turn.asked.store(false, std::memory_order_relaxed);
    if (!turn.mark) return;
    const int64_t began = now_ns();
    const bool all = save_lane(*turn.mark, lane, began + kSaveNs);
    turn.mark->held(now_ns() - began);
    if (all) end_save(turn);
  }
  static void end_save(LaneTurn& turn) {
    turn.saving.store(false, std::memory_order_relaxed);
    turn.mark->unsaved.fetch_sub(1, std::memory_order_release);  // pairs with Engine::save
    turn.mark.reset();
  }

  void count_down(Slot& s, Worker& worker) {
    // acq_rel: the last lane sees the results of all the others.
    if (s.left.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    Batch& batch = s.batch;
    if (holds_rows(batch)) {
      guarded(batch, op_, [&] {
        if (broken_.load(std::memory_order_relaxed)) throw std::bad_alloc();
        for (const Part& part : s.split.parts) {
          if (!part.overflowed.empty()) throw SumOverflow(part.overflowed);
        }
        put_together(s, worker);
      });
      run_all(after_ops_, batch, worker);
    }
    finish(s, worker);
  }
  // Not a marker, and not a batch that the runtime itself failed on.
  static bool holds_rows(const Batch& b) { return !b.control && !b.end && !broken(b); }

  static constexpr int64_t kSaveNs = 300'000;  // of a slice

  const uint64_t in_flight_;
  const Operators before_ops_, after_ops_;
  std::atomic<bool> broken_{false};  // a lane ran out of memory: its state is not to be trusted
  std::unique_ptr<LaneTurn[]> turns_;
  std::unique_ptr<ReorderBuffer<Slot>> splits_;
  std::unique_ptr<HybridQueue<Slot>> hybrid_;
  std::unique_ptr<PartitionedQueue<Slot>> partitioned_;
  std::unique_ptr<SharedQueue<Slot>> shared_;
};

}  // namespace plait
