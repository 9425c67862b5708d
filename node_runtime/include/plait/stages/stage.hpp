// Stage: one or more fused operators with a bounded ring of batches, in order at both ends.
//
// The stage before it pushes batches with consecutive serials (one pusher at a time: the holder of
// that stage's release flag). A worker claims the next serial, works on its slot, and publishes it
// to the reorder buffer; the worker that finds the head published hands it on, in serial order, if
// every stage after it has room. The slot is free again when it was handed on.
//
// Threads: any worker may call run and try_release at any time; push and room only the current
// pusher. Full: `room` is false (slots, records or bytes); the batch stays in the stage before,
// which is how pressure reaches the source. Every serial is published on every path: a filtered,
// failed or dropped batch goes on without rows. Paper: sections 2.2, 3 and 5.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "plait/columns/batch.hpp"
#include "plait/columns/control.hpp"
#include "plait/columns/counts.hpp"
#include "plait/columns/failure.hpp"
#include "plait/core/atomics.hpp"
#include "plait/core/cache_line.hpp"
#include "plait/keyed/keyed_state.hpp"
#include "plait/queues/locked_reorder_buffer.hpp"
#include "plait/queues/reorder_buffer.hpp"
#include "plait/workers/cpu_meter.hpp"

namespace plait {

struct Worker;
class Bell;
class Stage;
template <class T, class Policy>
class FreeListOf;
using FreeList = FreeListOf<Stage, RealAtomics>;

// Who runs a stage: any worker, its own thread, or the one thread of its region.
enum class Threading : uint8_t { Dynamic, Dedicated, Manual };

struct StageLimits {
  uint32_t batches = 32;  // a power of two
  int64_t records = 1 << 17;
  int64_t bytes = 64 << 20;
  bool locked_reorder = false;
  bool ordered = true;
};

// What schedulers read. Written by workers with relaxed order: estimates, not facts.
struct alignas(kCacheLine) StageStats {
  std::atomic<int64_t> waiting_records{0};  // pushed, not handed on yet
  std::atomic<int64_t> waiting_bytes{0};
  std::atomic<int64_t> records_in{0}, records_out{0};  // since the start
  std::atomic<int64_t> window_ns{0};                   // worker time in the current window (CT)
  std::atomic<int64_t> running_ns{0};                  // worker time since the start
  std::atomic<int64_t> last_run_ns{0};                 // when a worker last turned to it
  std::atomic<int64_t> full_ns{0};                     // how long its worklist was full, up to ...
  std::atomic<int64_t> full_since{0};                  // ... when it became full; 0: it is not
  std::atomic<int32_t> workers{0};
  std::atomic<double> cost{0};       // running estimate, ns per record; 0: not measured yet
  alignas(kCacheLine) CpuStats cpu;  // not on the lines that every batch writes

  double cost_ns() const {
    const double c = cost.load(std::memory_order_relaxed);
    return c > 0 ? c : 100;
  }
  // A worker spent so long here and moved so many records. Racing updates lose a sample, no more.
  void spent(int64_t ns, int64_t records) {
    window_ns.fetch_add(ns, std::memory_order_relaxed);
    running_ns.fetch_add(ns, std::memory_order_relaxed);
    const double sample = double(ns) / double(records);
    const double c = cost.load(std::memory_order_relaxed);
    cost.store(c > 0 ? 0.875 * c + 0.125 * sample : sample, std::memory_order_relaxed);
  }
};

// Marks the time in which a worklist is full: the stages before it are blocked.
inline void worklist_full(StageStats& s, int64_t now) {
  int64_t none = 0;
  s.full_since.compare_exchange_strong(none, now, std::memory_order_relaxed);
}
inline void worklist_has_room(StageStats& s, int64_t now) {
  const int64_t since = s.full_since.exchange(0, std::memory_order_relaxed);
  if (since) s.full_ns.fetch_add(now - since, std::memory_order_relaxed);
}
struct Slot {
  Batch batch;       // the input, then the output
  SplitBatch split;  // keyed stages
  uint64_t serial = 0;
  int64_t records = 0, bytes = 0;         // as pushed
  std::atomic<uint32_t> left{0};          // lanes that have not run their part yet
  uint32_t queued = 0;                    // lanes whose part is in its queue, if not all are
  std::atomic<uint64_t> split_serial{0};  // serial + 1 once split
  std::atomic<bool> done{false};          // unordered release only
  std::atomic<int64_t> since_ns{0};       // when its first record came in; for schedulers
  bool handed_on = false;
};

class Stage {
 public:
  Stage(std::string name, const StageLimits& limits);
  virtual ~Stage() = default;
  Stage(const Stage&) = delete;

  // Works for about `records` records or to the end of the worker's slice, whichever is first, but
  // never stops inside a batch; returns how many it moved forward (0: nothing to do now).
  virtual int64_t run(Worker& worker, int64_t records) = 0;
  virtual uint32_t max_workers() const { return ~0u; }
  // The most workers that are to be in it now.
  uint32_t degree() const { return std::min(max_workers(), limited_to()); }
  uint32_t limited_to() const { return limit.load(std::memory_order_relaxed); }
  // Whether a worker could find something to do here.
  virtual bool runnable() const { return claimed() < pushed(); }
  // Whether it holds anything at all, ready or not. A source: whether it may have more.
  virtual bool pending() const { return released() < pushed(); }
  // When the record that waits in front came in; 0: none waits.
  virtual int64_t front_ns() const;

  virtual bool room(uint32_t /*input*/) const {
    return pushed() - released() < limits_.batches &&
           stats.waiting_records.load(std::memory_order_relaxed) < limits_.records &&
           stats.waiting_bytes.load(std::memory_order_relaxed) < limits_.bytes;
  }
  virtual void push(Batch&& batch, uint32_t input);
  // Ends the time in which the worklist was full, if there is room again.
  void note_room();
  // For how long it was full so far. Any thread.
  int64_t full_ns();

  // Runs a control item on the stage's state at once. Only before the engine is started.
  virtual void control_now(Control& /*control*/) {}

  // A thread beside the workers: writes some more of what the state was at a mark that has arrived.
  virtual void save_some() {}

  // Something came: the crew that runs the stage hears of it. Any thread.
  void came();

  // Hands on what is ready, and what the room then lets go in the stages before. Returns whether
  // anything moved.
  bool try_release(Worker& worker);
  virtual bool releasable() const {
    return nonblocking_ ? nonblocking_->ready() : locked_ ? locked_->ready() : unordered_ready();
  }

  void connect(Stage& to, uint32_t input) {
    outputs_.push_back({&to, input});
    to.before_.push_back(this);
  }
  bool outputs_have_room() const {
    for (const auto& o : outputs_) {
      if (!o.stage->room(o.input)) return false;
    }
    return true;
  }
  // The first output without room, or null.
  Stage* full_output() const {
    for (const auto& o : outputs_) {
      if (!o.stage->room(o.input)) return o.stage;
    }
    return nullptr;
  }
  // About how many records it takes before it pushes back.
  int64_t free_records() const {
    const int64_t slots = int64_t(limits_.batches) - int64_t(pushed() - released());
    return std::max<int64_t>(
        0, std::min(slots * limits_.records / int64_t(limits_.batches),
                    limits_.records - stats.waiting_records.load(std::memory_order_relaxed)));
  }
  // The same of the fullest stage behind it.
  int64_t room_behind() const {
    int64_t least = limits_.records;
    for (const auto& o : outputs_) least = std::min(least, o.stage->free_records());
    return least;
  }
  std::vector<uint32_t> after() const {
    std::vector<uint32_t> stages;
    for (const auto& o : outputs_) stages.push_back(o.stage->index);
    return stages;
  }
  // Whether tags may come as bits: no stage from here to the next exchange looks at single ones.
  bool takes_bits() const {
    return routes ||
           (keeps_bits && std::all_of(outputs_.begin(), outputs_.end(),
                                      [](const Output& o) { return o.stage->takes_bits(); }));
  }
  // Whether what is ready can leave now.
  virtual bool can_send() const { return outputs_have_room(); }
  const std::vector<Stage*>& before() const { return before_; }

  const std::string name;
  uint32_t index = 0;
  uint32_t last_op = 0;              // the operator whose fan-out counts as copied
  std::atomic<uint32_t> limit{~0u};  // on the workers in it; may change while it runs
  bool python = false;  // needs the interpreter: at most one worker of the engine at a time
  virtual bool needs_python() const { return python; }  // now; once it does not, it stays so
  Threading threading = Threading::Dynamic;
  uint32_t region = 0;  // stages of one manual region share a thread
  // Set at the start: where its crew sleeps, and the list it is to be in, if its crew has one.
  Bell* bell = nullptr;
  FreeList* list = nullptr;
  std::atomic<bool> listed{false};  // FreeList
  // Does not look at single tags and hands them on in the form in which they came. Routes: to a
  // gather stage, which takes any form.
  bool keeps_bits = false, routes = false;
  StageStats stats;

 protected:
  struct Output {
    Stage* stage;
    uint32_t input;
  };

  uint64_t pushed() const { return pushed_.load(std::memory_order_acquire); }
  uint64_t claimed() const { return claimed_.load(std::memory_order_acquire); }
  uint64_t released() const {
    return nonblocking_ ? nonblocking_->next()
           : locked_    ? locked_->next()
                        : released_.load(std::memory_order_acquire);
  }
  Slot& slot(uint64_t serial) { return slots_[serial & (limits_.batches - 1)]; }
  Slot* try_claim(uint64_t in_flight);
  // Publishes a finished slot and hands on what is ready.
  void finish(Slot& slot, Worker& worker);
  // There is room here again: the stages before hand on what was held up.
  void room_made(Worker& worker);
  // Gives a batch to every output; the caller has checked the room.
  void hand_on(Batch&& batch, Worker& worker);
  // Gives a finished slot's batch on, in serial order, under the release flag.
  virtual void pass(Slot& slot, Batch&& batch, Worker& worker);
  // The end of a batch's way through a stage without outputs.
  virtual void arrive(Batch& batch, Worker& worker);

  const StageLimits limits_;
  std::vector<Output> outputs_;
  std::vector<Stage*> before_;

 private:
  bool send(Slot* slot, Worker& worker);
  bool release(Worker& worker);
  bool release_unordered(Worker& worker);
  bool unordered_ready() const;

  std::unique_ptr<Slot[]> slots_;
  std::unique_ptr<ReorderBuffer<Slot>> nonblocking_;
  std::unique_ptr<LockedReorderBuffer<Slot>> locked_;
  alignas(kCacheLine) std::atomic<uint64_t> pushed_{0};
  alignas(kCacheLine) std::atomic<uint64_t> claimed_{0};
  alignas(kCacheLine) std::atomic<uint64_t> released_{0};  // unordered release only
  alignas(kCacheLine) std::atomic<bool> releasing_{false};
  std::atomic<bool> failed_{false};  // a failure was handed on: all that comes after it is dropped
};

}  // namespace plait
