// Pool: the engine's side of a pool of worker processes: batches out to the ring, outcomes back.
//
// A stage gives a batch to its PoolUser (PoolOutside, or PoolLanes if it has state), which writes
// it into the ring without the interpreter; a thread of the pool sleeps until outcomes are there,
// copies them out, frees their slots and gives them to the user. Worker processes are started and
// watched elsewhere (pool.py), which says here which of them died: what it had claimed is done
// again. After `kTries` of them died on a batch without state, the row that the last one was at
// fails by the policy of its operator, and the others are done; if none can be named, or there is
// state, the user hears that the batch is poison.
//
// Threads: any may call anything. Full: the ring has no free slot; the stage keeps the batch and
// hears when there is room. `close` ends the thread; what comes later is let go.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "plait/pool/pool_outcome.hpp"
#include "plait/pool/pool_ring.hpp"
#include "plait/pool/pool_user.hpp"
#include "plait/stages/deferred_stage.hpp"

namespace plait {

class Pool;

// Of stateless operators. `here`: the workers of the engine run them themselves until `go`.
class PoolOutside final : public Outside, public PoolUser {
 public:
  PoolOutside(std::shared_ptr<Pool> pool, uint32_t program, bool here)
      : pool_(std::move(pool)), program_(program), here_(here) {}

  void attach(std::shared_ptr<Returns> returns) override { returns_ = std::move(returns); }
  bool try_submit(uint64_t serial, Batch& batch) override;
  bool here() const override { return here_.load(std::memory_order_acquire); }
  // From now on batches go to the pool.
  void go() override {
    here_.store(false, std::memory_order_release);  // pairs with here
    returns_->retry();
  }

  void outcome(const Away& away, const BufferRef& block, int64_t size, const Keep& keep) override {
    CallOutcome outcome;
    try {
      FlatReader in(block.data(), size);
      outcome = read_outcome(in, block, away.batch.columns, keep);
    } catch (const std::exception& error) {
      outcome = fatal_outcome(std::string("the runtime failed: ") + error.what());
    }
    returns_->complete(away.serial, std::move(outcome));
  }
  void spent_cpu(int64_t ns) override { returns_->spent_cpu(ns); }
  bool poison(Away& away, const std::string& why) override {
    CallOutcome outcome;
    outcome.whole = outcome.batch_failed = true;
    outcome.failures.push_back({0, why});
    returns_->complete(away.serial, std::move(outcome));
    return false;
  }
  void room() override { returns_->retry(); }
  void broke(const std::string& why, FailureKind kind) override { returns_->broke(why, kind); }
  bool is_here() const override { return here(); }

 private:
  const std::shared_ptr<Pool> pool_;
  const uint32_t program_;
  std::atomic<bool> here_;
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
  uint32_t workers() const { return ring_.head().workers; }
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
    std::lock_guard<std::mutex> last(collecting_);
    closed_ = true;
    for (Given& given : away_) given = Given();  // who gave it may hold the pool
    std::lock_guard<std::mutex> hold(lock_);
    users_.clear();
  }

  void add(std::shared_ptr<PoolUser> user) {
    std::lock_guard<std::mutex> hold(lock_);
    users_.push_back(std::move(user));
  }

  // Puts into the ring what `write` writes, for any worker, or for `pin` - 1 only; false: there is
  // no room, and the user is told when there is. `take` gives what is to be known of it, once it
  // will be published.
  template <class Write, class Take>
  bool submit(const std::shared_ptr<PoolUser>& from, uint32_t program, uint32_t pin, Write&& write,
              Take&& take) {
    int slot = ring_.try_reserve();
    if (slot < 0) {
      // seq_cst pairs with tell_room: either it sees that we wait, or we see the slot.
      from->refused_.store(true, std::memory_order_seq_cst);
      slot = ring_.try_reserve();
      if (slot < 0) return false;
      from->refused_.store(false, std::memory_order_relaxed);
    }
    const auto i = uint32_t(slot);
    try {
      FlatWriter size;
      write(size);
      RingView view;
      FlatWriter out(ring_.input(i, size.used(), view));
      write(out);
      away_[i] = {from, take()};
    } catch (...) {
      ring_.free(i);
      tell_room();
      throw;
    }
    ring_.publish(i, program, pin);  // releases what was written above
    return true;
  }

  // A worker process is dead; `how` ("was killed") is a part of the error. Returns how many batches
  // failed because of it.
  uint32_t died(uint32_t worker, const std::string& how) {
    uint32_t poison = 0;
    // What it has finished counts as done: what a new process is told is complete.
    std::lock_guard<std::mutex> hold(collecting_);
    if (closed_) return 0;
    collect_all();
    ring_.reclaim(worker, [&](uint32_t i) {
      if (ring_.slot(i).attempts < kTries || ring_.name_poison(i, worker, how)) return true;
      ++poison;
      Given& given = away_[i];
      const std::string why =
          "the worker process " + how + " on its batch, " + std::to_string(kTries) + " times";
      if (given.user->poison(given.away, why)) {
        ring_.slot(i).without_rows = 1;
        ring_.slot(i).attempts = 0;
        return true;
      }
      freed(i);
      return false;
    });
    return poison;
  }
  // A file in memory with what a new process of this worker is to do before its first batch (see
  // LaneRestore), or -1: nothing. After `died`.
  int restore_fd(uint32_t worker) {
    std::lock_guard<std::mutex> hold(lock_);
    FlatWriter size;
    int64_t count = 0;
    write_restore(size, worker, count);
    if (!count) return -1;
    const int fd = memfd_create("plait-restore", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, size.used()) != 0) {
      if (fd >= 0) ::close(fd);
      throw std::runtime_error(std::string("shared memory: ") + std::strerror(errno));
    }
    RingView view(fd, 0, size.used());
    FlatWriter out(view.data());
    write_restore(out, worker, count);
    return fd;
  }
  // What a worker process is at: (serial + 1 of its batch, records done so far); 0: nothing.
  std::pair<uint64_t, uint64_t> at(uint32_t worker) const {
    const uint64_t beat = ring_.worker(worker).beat.load(std::memory_order_relaxed);
    for (uint32_t i = 0; i < ring_.head().slots; ++i) {
      const SlotState state = ring_.state(i);
      if (state.kind == SlotKind::Claimed && state.worker == worker) {
        return {state.serial + 1, beat};
      }
    }
    return {0, beat};
  }
  void broke(const std::string& why) {
    std::lock_guard<std::mutex> hold(lock_);
    for (auto& user : users_) {
      if (!user->is_here()) user->broke(why, FailureKind::Pool);
    }
  }
  int64_t batches() const { return batches_.load(std::memory_order_relaxed); }

 private:
  struct Given {
    std::shared_ptr<PoolUser> user;
    Away away;
  };

  bool collect() {
    std::lock_guard<std::mutex> hold(collecting_);
    return !closed_ && collect_all();
  }
  bool collect_all() {
    bool any = false;
    for (uint32_t i = 0; i < ring_.head().slots; ++i) {
      if (ring_.state(i).kind != SlotKind::Done) continue;
      any = true;
      give_back(i);
    }
    return any;
  }
  void give_back(uint32_t i) {
    BufferRef copy;
    int64_t size = 0;
    const int64_t began = thread_cpu_ns(), there = ring_.slot(i).cpu_ns;
    away_[i].user->spent_cpu(there);  // before its outcome, which may end the run
    try {
      RingView view;
      const uint8_t* block = ring_.outcome(i, view);
      copy = BufferRef::make(ring_.slot(i).out.size);
      size = ring_.slot(i).out.size;
      std::memcpy(copy.data(), block, size_t(size));
    } catch (const std::exception&) {
      size = 0;  // a block without bytes is refused by who reads it
    }
    const Given given = std::move(away_[i]);
    away_[i] = Given();
    batches_.fetch_add(1, std::memory_order_relaxed);
    ring_.free(i);
    given.user->outcome(given.away, copy, size, keep_);
    given.user->spent_cpu(thread_cpu_ns() - began);
    tell_room();
  }
  void freed(uint32_t i) {
    away_[i] = Given();
    batches_.fetch_add(1, std::memory_order_relaxed);
    ring_.free(i);
    tell_room();
  }
  void tell_room() {
    std::lock_guard<std::mutex> hold(lock_);
    for (auto& user : users_) {
      // seq_cst pairs with submit.
      if (user->refused_.exchange(false, std::memory_order_seq_cst)) user->room();
    }
  }
  void write_restore(FlatWriter& out, uint32_t worker, int64_t& count) const {
    out.put(count);
    count = 0;
    for (const auto& user : users_) count += user->restores(worker, out);
  }

  PoolRing ring_;
  std::vector<Given> away_;  // by slot; of whoever reserved it, then of whoever takes it out
  Keep keep_;
  std::thread thread_;
  std::atomic<bool> closing_{false};
  std::atomic<int64_t> batches_{0};
  std::mutex collecting_;  // held by who takes outcomes out; before lock_
  bool closed_ = false;    // under it
  std::mutex lock_;
  std::vector<std::shared_ptr<PoolUser>> users_;
};

inline bool PoolOutside::try_submit(uint64_t serial, Batch& batch) {
  return pool_->submit(
      shared_from_this(), program_, 0,
      [&](FlatWriter& out) {
        out.put(batch.length);
        flat_columns(out, batch.columns);
      },
      [&] {
        Away away;
        away.serial = serial;
        away.batch = std::move(batch);
        return away;
      });
}

}  // namespace plait
