// Pool: the engine's side of a pool of worker processes: batches out to the ring, outcomes back.
//
// A stage gives a batch to its PoolOutside, which writes it into the ring without the interpreter;
// a thread of the pool sleeps until outcomes are there, copies them out, frees their slots and
// gives them to the stage. Worker processes are started and watched elsewhere (pool.py), which says
// here which of them died: what it had claimed is done again. After `kTries` of them died on a
// batch, the row that the last one was at fails by the policy of its operator, and the others are
// done; if none can be named, the batch fails as a whole, by the policy of its first operator.
//
// Threads: any may call anything. Full: the ring has no free slot; the stage keeps the batch and is
// told when there is room. `close` ends the thread; what comes later is let go.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "plait/deferred_stage.hpp"
#include "plait/pool_outcome.hpp"
#include "plait/pool_ring.hpp"

namespace plait {

class Pool;

// One stage's way to the pool. `here`: the workers of the engine run the operators themselves
// until `go`.
class PoolOutside final : public Outside {
 public:
  PoolOutside(std::shared_ptr<Pool> pool, uint32_t program, bool here)
      : pool_(std::move(pool)), program_(program), here_(here) {}

  void attach(std::shared_ptr<Returns> returns) override { returns_ = std::move(returns); }
  bool try_submit(uint64_t serial, Batch& batch) override;
  bool here() const override { return here_.load(std::memory_order_acquire); }
  // From now on batches go to the pool.
  void go() {
    here_.store(false, std::memory_order_release);  // pairs with here
    returns_->retry();
  }
  // Nothing comes back any more.
  void broke(const std::string& why) { returns_->broke(why); }

 private:
  friend class Pool;
  const std::shared_ptr<Pool> pool_;
  const uint32_t program_;
  std::atomic<bool> here_;
  std::atomic<bool> refused_{false};  // it waits for room
  std::shared_ptr<Returns> returns_;
};

class Pool {
 public:
  static constexpr uint32_t kTries = 3;
  // Keeps what was raised, given as bytes, and says its number.
  using KeepFunction = int64_t (*)(void* context, const std::string& raised);

  Pool(uint32_t slots, int64_t slot_bytes, uint32_t workers, KeepFunction keep, void* context)
      : ring_(PoolRing::make(slots, slot_bytes, workers)), away_(slots) {
    keep_ = [=](const std::string& raised) { return keep(context, raised); };
  }
  ~Pool() { close(); }

  int fd() const { return ring_.fd(); }
  void start() {
    thread_ = std::thread([this] {
      name_thread("plait-pool");
      while (!closing_.load(std::memory_order_acquire)) {
        if (!collect()) ring_.wait_done(1'000'000'000);
      }
    });
  }
  // Tells the worker processes to end, and ends the thread.
  void close() {
    closing_.store(true, std::memory_order_release);  // pairs with the thread's load
    ring_.close();
    ring_.ring();
    if (thread_.joinable()) thread_.join();
    std::lock_guard<std::mutex> hold(lock_);
    outsides_.clear();
  }

  void add(std::shared_ptr<PoolOutside> outside) {
    std::lock_guard<std::mutex> hold(lock_);
    outsides_.push_back(std::move(outside));
  }

  bool submit(PoolOutside& from, uint64_t serial, Batch& batch) {
    int slot = ring_.try_reserve();
    if (slot < 0) {
      // seq_cst pairs with freed: either it sees that we wait, or we see the slot.
      from.refused_.store(true, std::memory_order_seq_cst);
      slot = ring_.try_reserve();
      if (slot < 0) return false;
      from.refused_.store(false, std::memory_order_relaxed);
    }
    const auto i = uint32_t(slot);
    try {
      FlatWriter size;
      size.put(batch.length);
      flat_columns(size, batch.columns);
      RingView view;
      FlatWriter out(ring_.input(i, size.used(), view));
      out.put(batch.length);
      flat_columns(out, batch.columns);
    } catch (...) {
      freed(i);
      throw;
    }
    away_[i] = {from.returns_, serial, std::move(batch)};
    ring_.publish(i, from.program_);  // releases what was written above
    return true;
  }

  // A worker process is dead; `how` ("was killed") is a part of the error. Returns how many batches
  // failed because of it.
  uint32_t died(uint32_t worker, const std::string& how) {
    uint32_t poison = 0;
    ring_.reclaim(worker, [&](uint32_t i) {
      if (ring_.slot(i).attempts < kTries || ring_.name_poison(i, worker, how)) return true;
      ++poison;
      CallOutcome outcome;
      outcome.whole = outcome.batch_failed = true;
      const std::string times = std::to_string(kTries);
      outcome.failures.push_back(
          {0, "the worker process " + how + " on its batch, " + times + " times"});
      give_back(i, std::move(outcome));
      return false;
    });
    return poison;
  }
  // What a worker process is at: (serial + 1 of its batch, records done so far); 0: nothing.
  std::pair<uint64_t, uint64_t> at(uint32_t worker) const {
    for (uint32_t i = 0; i < ring_.head().slots; ++i) {
      const SlotState state = ring_.state(i);
      if (state.kind == SlotKind::Claimed && state.worker == worker) {
        return {state.serial + 1, ring_.worker(worker).beat.load(std::memory_order_relaxed)};
      }
    }
    return {0, 0};
  }
  void broke(const std::string& why) {
    std::lock_guard<std::mutex> hold(lock_);
    for (auto& outside : outsides_) {
      if (!outside->here()) outside->broke(why);
    }
  }
  int64_t batches() const { return batches_.load(std::memory_order_relaxed); }

 private:
  struct Away {
    std::shared_ptr<Returns> returns;
    uint64_t serial = 0;
    Batch batch;  // as it went
  };

  bool collect() {
    bool any = false;
    for (uint32_t i = 0; i < ring_.head().slots; ++i) {
      if (ring_.state(i).kind != SlotKind::Done) continue;
      any = true;
      give_back(i, taken_out(i));
    }
    return any;
  }
  CallOutcome taken_out(uint32_t i) {
    try {
      RingView view;
      const uint8_t* block = ring_.outcome(i, view);
      const int64_t size = ring_.slot(i).out.size;
      BufferRef copy = BufferRef::make(size);
      std::memcpy(copy.data(), block, size_t(size));
      FlatReader in(copy.data(), size);
      return read_outcome(in, copy, away_[i].batch.columns, keep_);
    } catch (const std::exception& error) {
      return fatal_outcome(std::string("the runtime failed: ") + error.what());
    }
  }
  void give_back(uint32_t i, CallOutcome&& outcome) {
    const Away away = std::move(away_[i]);
    away_[i] = Away();
    batches_.fetch_add(1, std::memory_order_relaxed);
    ring_.free(i);
    away.returns->complete(away.serial, std::move(outcome));
    tell_room();
  }
  void freed(uint32_t i) {
    ring_.free(i);
    tell_room();
  }
  void tell_room() {
    std::lock_guard<std::mutex> hold(lock_);
    for (auto& outside : outsides_) {
      // seq_cst pairs with submit.
      if (outside->refused_.exchange(false, std::memory_order_seq_cst)) {
        outside->returns_->retry();
      }
    }
  }

  PoolRing ring_;
  std::vector<Away> away_;  // by slot; of whoever reserved it, then of whoever takes it out
  Keep keep_;
  std::thread thread_;
  std::atomic<bool> closing_{false};
  std::atomic<int64_t> batches_{0};
  std::mutex lock_;
  std::vector<std::shared_ptr<PoolOutside>> outsides_;
};

inline bool PoolOutside::try_submit(uint64_t serial, Batch& batch) {
  return pool_->submit(*this, serial, batch);
}

}  // namespace plait
