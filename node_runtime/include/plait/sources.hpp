// Sources: they cut the stream into epochs, number the rows, and keep step with each other.
//
// Every source emits exactly one batch for every epoch, empty if it has nothing while another source is ahead. Control
// items and the end are emitted by all sources at the same epoch boundary, so every path of the graph meets them at the same place.
// Any worker may run a source; one at a time holds its flag.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "plait/stages.hpp"

namespace plait {

// Keeps the sources of a job in step. Small and rare enough for a mutex: taken once per batch.
class Epochs {
 public:
  static constexpr uint64_t kAhead = 64;  // how far a source may be ahead of the slowest

  struct Turn {
    enum class Kind { Data, Empty, Control, End, Wait } kind = Kind::Wait;
    uint64_t epoch = 0;
    std::shared_ptr<Control> control;
  };

  explicit Epochs(size_t sources) : next_(sources, 0), done_(sources, false), cursor_(sources, 0) {}

  // What source `s` should emit next. `Data`: ask it for rows (then call emitted); others as they say.
  Turn turn(size_t s, int64_t position) {
    std::lock_guard<std::mutex> hold(lock_);
    Turn t;
    t.epoch = next_[s];
    if (cursor_[s] < controls_.size() && controls_[cursor_[s]]->epoch == next_[s]) {
      t.kind = Turn::Kind::Control;
      t.control = controls_[cursor_[s]++];
      t.control->positions[s] = position;
      return t;
    }
    if (done_[s]) {
      if (all_done() && next_[s] == furthest()) {
        t.kind = Turn::Kind::End;
      } else if (next_[s] < furthest()) {
        t.kind = Turn::Kind::Empty;
      }
      return t;
    }
    t.kind = next_[s] > *std::min_element(next_.begin(), next_.end()) + kAhead ? Turn::Kind::Wait
                                                                              : Turn::Kind::Data;
    return t;
  }
  // Whether another source is ahead, so that an empty batch is owed.
  bool behind(size_t s) {
    std::lock_guard<std::mutex> hold(lock_);
    return next_[s] < furthest();
  }
  void emitted(size_t s) {
    std::lock_guard<std::mutex> hold(lock_);
    ++next_[s];
  }
  void finished(size_t s) {
    std::lock_guard<std::mutex> hold(lock_);
    done_[s] = true;
  }
  // Queues a control item at the earliest boundary that no source has passed. False: the job is at its end.
  bool schedule(std::shared_ptr<Control> control) {
    std::lock_guard<std::mutex> hold(lock_);
    if (all_done()) return false;
    control->epoch = furthest();
    if (!controls_.empty()) control->epoch = std::max(control->epoch, controls_.back()->epoch);
    control->positions.assign(next_.size(), -1);
    control->handles.assign(next_.size(), -1);
    controls_.push_back(std::move(control));
    return true;
  }

 private:
  bool all_done() const { return std::find(done_.begin(), done_.end(), false) == done_.end(); }
  uint64_t furthest() const {
    uint64_t most = *std::max_element(next_.begin(), next_.end());
    if (!controls_.empty()) most = std::max(most, controls_.back()->epoch);
    return most;
  }

  std::mutex lock_;
  std::vector<uint64_t> next_;
  std::vector<bool> done_;
  std::vector<size_t> cursor_;  // control items emitted, per source
  std::vector<std::shared_ptr<Control>> controls_;
};

// What a source gives when asked.
struct Polled {
  enum class Kind { Rows, Wait, End, Failed } kind = Kind::End;
  Batch batch;           // Rows: columns and length
  int64_t wait_ns = 0;   // Wait
  int64_t due_ns = 0;    // Rows: when the first of them was due; 0: now
  std::string message;   // Failed
  int64_t handle = -1;
};

class Origin {
 public:
  virtual ~Origin() = default;
  virtual void poll(int64_t max_rows, Polled& out) = 0;
  virtual bool python() const { return false; }
  // The number under which the outside keeps the present position; -1: the row number is the position.
  virtual int64_t position() { return -1; }
};

class SourceStage final : public Stage {
 public:
  SourceStage(std::string name, const StageLimits& limits, uint32_t node, uint32_t source,
              Epochs& epochs, std::unique_ptr<Origin> origin, const std::vector<Type>& types,
              int64_t epoch_records, int64_t limit)
      : Stage(std::move(name), limits),
        node_(node),
        source_(source),
        epochs_(epochs),
        origin_(std::move(origin)),
        epoch_records_(epoch_records),
        limit_(limit) {
    python = origin_->python();
    for (Type type : types) empty_.columns.push_back(empty_column(type));
  }
  uint32_t max_workers() const override { return 1; }
  bool releasable() const override { return false; }
  bool runnable() const override {
    return !over_.load(std::memory_order_relaxed) && outputs_have_room() &&
           now_ns() >= due_.load(std::memory_order_relaxed);
  }

  int64_t run(Worker& worker, int64_t records) override {
    if (!runnable()) return 0;
    PythonTurn turn(worker.shared, python);
    if (!turn) return 0;
    // Acquire pairs with the release below: the origin's position as the last holder left it.
    if (busy_.exchange(true, std::memory_order_acquire)) return 0;
    int64_t done = 0;
    while (done < records && !over_.load(std::memory_order_relaxed) && outputs_have_room()) {
      const int64_t n = step(worker);
      if (n < 0) break;
      done += n + 1;
    }
    busy_.store(false, std::memory_order_release);
    return done;
  }
  int64_t due_ns() const {
    return over_.load(std::memory_order_relaxed) ? 0 : due_.load(std::memory_order_relaxed);
  }
  int64_t read() const { return rows_.load(std::memory_order_relaxed); }
  std::vector<int64_t> cuts;  // rows of each epoch, as emitted; read after the run

 private:
  // Emits one batch, or says with -1 that there is nothing to emit now.
  int64_t step(Worker& worker) {
    using Kind = Epochs::Turn::Kind;
    Epochs::Turn turn = epochs_.turn(source_, rows_.load(std::memory_order_relaxed));
    switch (turn.kind) {
      case Kind::Wait:
        return -1;
      case Kind::Control: {
        Batch marker;
        marker.control = turn.control;
        turn.control->handles[source_] = origin_->position();
        return emit(std::move(marker), turn.epoch, worker);
      }
      case Kind::End: {
        Batch marker;
        marker.end = true;
        over_.store(true, std::memory_order_relaxed);
        return emit(std::move(marker), turn.epoch, worker);
      }
      case Kind::Empty:
        return data(empty_, turn.epoch, 0, worker);
      case Kind::Data:
        break;
    }
    return ask(turn.epoch, worker);
  }

  int64_t ask(uint64_t epoch, Worker& worker) {
    const int64_t rows = rows_.load(std::memory_order_relaxed);
    int64_t most = epoch_records_;
    if (limit_ >= 0) most = std::min(most, limit_ - rows);
    Polled polled;
    if (most <= 0 || worker.shared.stopping.load(std::memory_order_acquire)) {
      polled.kind = Polled::Kind::End;
    } else {
      origin_->poll(most, polled);
    }
    switch (polled.kind) {
      case Polled::Kind::Rows:
        return data(polled.batch, epoch, polled.due_ns, worker);
      case Polled::Kind::End:
        epochs_.finished(source_);
        return 0;
      case Polled::Kind::Failed: {
        Batch marker;
        marker.failure = std::make_shared<Failure>();
        marker.failure->letter.node = node_;
        marker.failure->letter.row = -1;
        marker.failure->letter.message = std::move(polled.message);
        marker.failure->letter.handle = polled.handle;
        marker.columns = empty_.columns;
        over_.store(true, std::memory_order_relaxed);
        return emit(std::move(marker), epoch, worker);
      }
      case Polled::Kind::Wait:
        break;
    }
    if (epochs_.behind(source_)) return data(empty_, epoch, 0, worker);
    due_.store(now_ns() + polled.wait_ns, std::memory_order_relaxed);
    return -1;
  }

  int64_t data(const Batch& rows, uint64_t epoch, int64_t due_ns, Worker& worker) {
    Batch batch;
    batch.columns = rows.columns;
    batch.length = rows.length;
    batch.first_row = rows_.load(std::memory_order_relaxed);
    batch.ingest_ns = due_ns ? due_ns : now_ns();
    rows_.store(batch.first_row + batch.length, std::memory_order_relaxed);
    Counts& c = worker.shared.counts[node_];
    Counts::add(c.in, batch.length);
    Counts::add(c.out, batch.length);
    stats.records_in.fetch_add(batch.length, std::memory_order_relaxed);
    stats.records_out.fetch_add(batch.length, std::memory_order_relaxed);
    cuts.push_back(batch.length);
    const int64_t n = emit(std::move(batch), epoch, worker);
    epochs_.emitted(source_);
    return n;
  }

  int64_t emit(Batch&& batch, uint64_t epoch, Worker& worker) {
    batch.epoch = epoch;
    batch.source = source_;
    const int64_t n = batch.length;
    hand_on(std::move(batch), worker);
    return n;
  }

  const uint32_t node_, source_;
  Epochs& epochs_;
  std::unique_ptr<Origin> origin_;
  const int64_t epoch_records_, limit_;
  Batch empty_;
  std::atomic<int64_t> rows_{0}, due_{0};
  std::atomic<bool> over_{false}, busy_{false};
};

// A table in memory, sliced without copying; optionally at a given rate, from its due times.
class TableOrigin final : public Origin {
 public:
  TableOrigin(std::vector<Batch> chunks, double rate_per_s)
      : chunks_(std::move(chunks)), rate_(rate_per_s) {}

  void poll(int64_t max_rows, Polled& out) override {
    if (rate_ > 0 && !due(max_rows, out)) return;
    while (chunk_ < chunks_.size() && at_ >= chunks_[chunk_].length) {
      ++chunk_;
      at_ = 0;
    }
    if (chunk_ == chunks_.size()) {
      out.kind = Polled::Kind::End;
      return;
    }
    const Batch& from = chunks_[chunk_];
    const int64_t n = std::min(max_rows, from.length - at_);
    out.kind = Polled::Kind::Rows;
    out.batch.length = n;
    for (const auto& c : from.columns) out.batch.columns.push_back(c.slice(at_, n));
    at_ += n;
    sent_ += n;
  }

 private:
  bool due(int64_t& max_rows, Polled& out) {
    const int64_t now = now_ns();
    if (start_ == 0) start_ = now;
    const int64_t ready = int64_t(double(now - start_) * 1e-9 * rate_) - sent_;
    if (ready <= 0) {
      out.kind = Polled::Kind::Wait;
      out.wait_ns = std::max<int64_t>(1000, int64_t(1e9 / rate_));
      return false;
    }
    max_rows = std::min(max_rows, ready);
    out.due_ns = start_ + int64_t(double(sent_ + 1) * 1e9 / rate_);
    return true;
  }

  std::vector<Batch> chunks_;
  const double rate_;
  size_t chunk_ = 0;
  int64_t at_ = 0, sent_ = 0, start_ = 0;
};

}  // namespace plait
