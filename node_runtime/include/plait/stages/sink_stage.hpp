// SinkStage: the end of a stream. What it gets is delivered; latency is measured here.
//
// It writes through a function, keeps the rows in memory, or lets them go. A sink that cannot be
// written fails the run at once. Threads and progress: as SerialStage.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <iterator>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "plait/columns/control.hpp"
#include "plait/columns/counts.hpp"
#include "plait/columns/failure.hpp"
#include "plait/stages/row_operators.hpp"
#include "plait/stages/serial_stage.hpp"
#include "plait/workers/shared.hpp"
#include "plait/workers/worker.hpp"

namespace plait {

class SinkStage final : public SerialStage {
 public:
  // Returns false if the sink failed; `message` says why.
  using Write = bool (*)(void* context, const Batch& batch, std::string& message, int64_t& handle);
  // All that came so far is before this boundary. Returns as Write does.
  using NoteMark = bool (*)(void* context, uint64_t boundary, std::string& message,
                            int64_t& handle);
  SinkStage(std::string name, const StageLimits& limits, uint32_t op, Write write, void* context)
      : SerialStage(std::move(name), limits), op_(op), write_(write), context_(context) {}

  // What a sink without a write function keeps (if it keeps), since the last mark.
  std::vector<Batch> kept;
  bool keep = false;
  NoteMark note_mark = nullptr;
  // What it kept before the last mark, once. Any thread, while it runs.
  std::vector<Batch> take_closed() {
    std::lock_guard<std::mutex> hold(lock_);
    return std::exchange(closed_, {});
  }
  int64_t limit = -1;  // stop the run after so many rows
  // What is in epochs before this one is delivered already: it is counted, and not written. Before
  // the start.
  uint64_t delivered_before = 0;
  // Of a sink that commits between marks: it is marked by `mark_complete` alone. `last_source`: of
  // the sources that reach it. Before the start.
  bool marks_itself = false;
  uint32_t last_source = 0;

  static constexpr int64_t kNothing = 0, kBusy = -1, kFailed = -2;
  // Notes the boundary before which everything has come and nothing of what is behind it, and gives
  // it; kNothing: the last one still is; kBusy: it is within an epoch, or a worker is in the stage,
  // which will do it: ask again, or `want_no_mark`. One thread asks, while it runs; it never waits.
  int64_t mark_complete(Shared& shared) {
    wanted_.store(true, std::memory_order_relaxed);
    if (!try_hold()) return kBusy;
    if (noted_ == asked_) note_complete(shared);
    const uint64_t before = std::exchange(asked_, noted_);
    const int64_t told = broken_            ? kFailed
                         : before != noted_ ? int64_t(noted_)
                         : within_          ? kBusy
                                            : kNothing;
    if (told != kBusy) wanted_.store(false, std::memory_order_relaxed);
    let_go();
    shared.wake_all();  // a worker that found the stage held may have gone to sleep
    return told;
  }
  // Nobody waits for a mark any more; one that was made meanwhile is told the next time.
  void want_no_mark() { wanted_.store(false, std::memory_order_relaxed); }

 protected:
  void process(Batch& batch, Worker& worker) override {
    if (batch.control && batch.control->mark) return mark(*batch.control, worker.shared);
    if (batch.control || batch.end) return;
    if (marks_itself) {
      if (wanted_.load(std::memory_order_relaxed) && noted_ == asked_) note_complete(worker.shared);
      broken_ = broken_ || batch.failure != nullptr;
    }
    write(batch, worker);
    if (marks_itself && !broken_) {
      within_ = batch.source != last_source;
      complete_ = batch.epoch + (within_ ? 0 : 1);
    }
  }

 private:
  void write(Batch& batch, Worker& worker) {
    if (batch.length == 0) return;
    if (limit >= 0 && delivered_ + batch.length > limit) truncate(batch, limit - delivered_);
    Shared& shared = worker.shared;
    Counts& c = shared.counts.of(op_, batch.epoch);
    Counts::add(c.in, batch.length);
    if (keep) {
      kept.push_back(batch);
    } else if (write_ && batch.epoch >= delivered_before) {
      std::string message;
      int64_t handle = -1;
      if (!write_(context_, batch, message, handle))
        return fail(std::move(message), handle, shared);
    }
    Counts::add(c.out, batch.length);
    delivered_ += batch.length;
    shared.delivered.fetch_add(batch.length, std::memory_order_relaxed);
    const int64_t waited = now_ns() - batch.ingest_ns;
    worker.latency.record(uint64_t(waited > 0 ? waited : 0), uint64_t(batch.length));
    if (limit >= 0 && delivered_ >= limit) shared.end();
  }
  // Under the flag of the stage.
  void note_complete(Shared& shared) {
    if (broken_ || within_ || complete_ <= std::max(noted_, delivered_before)) return;
    std::string message;
    int64_t handle = -1;
    if (note_mark(context_, complete_, message, handle)) {
      noted_ = complete_;
      return;
    }
    broken_ = true;
    fail(std::move(message), handle, shared);
  }
  void mark(const Control& control, Shared& shared) {
    if (keep) {
      std::lock_guard<std::mutex> hold(lock_);
      std::move(kept.begin(), kept.end(), std::back_inserter(closed_));
      kept.clear();
    }
    std::string message;
    int64_t handle = -1;
    if (!note_mark || marks_itself || note_mark(context_, control.epoch, message, handle)) return;
    fail(std::move(message), handle, shared);
  }
  void fail(std::string&& message, int64_t handle, Shared& shared) {
    Failure failure;
    failure.letter.op = op_;
    failure.letter.message = std::move(message);
    failure.letter.handle = handle;
    failure.letter.row = -1;
    failure.letter.kind = FailureKind::Sink;
    shared.fail(failure);
  }

  std::mutex lock_;
  std::vector<Batch> closed_;  // under the lock
  const uint32_t op_;
  const Write write_;
  void* const context_;
  int64_t delivered_ = 0;
  std::atomic<bool> wanted_{false};  // a hint: relaxed
  // Under the flag of the stage: everything before `complete_` has come (`within_`: and something
  // of that epoch), before `noted_` it is noted, and `asked_` was told; nothing is complete behind
  // a failure.
  uint64_t complete_ = 0, noted_ = 0, asked_ = 0;
  bool within_ = false, broken_ = false;
};

}  // namespace plait
