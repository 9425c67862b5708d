// PoolLanes: the lanes of one stage with state in the pool: lane l lives in one worker process.
//
// The stage gives messages, a lane's in order; each goes to the ring, pinned to the lane's process,
// and into the lane's log, from which a new process gets the state back if that one dies. When a
// log is full a copy of what has changed goes in front of the next message. Rows on which processes
// died fail; of a unit the timers go on without its rows; anything else that kills them ends the
// run.
//
// Threads: one at a time gives (the holder of the stage's flag); answers and deaths come from any.
// Full: the ring has no room; the stage keeps the message and hears when there is.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "plait/pool/lane_log.hpp"
#include "plait/pool/lane_returns.hpp"
#include "plait/pool/pool.hpp"

namespace plait {

class PoolLanes final : public PoolUser {
 public:
  using Message = std::shared_ptr<const LaneMessage>;
  static constexpr uint64_t kNobody = ~uint64_t(0);  // no item of the stage waits for it

  // `here`: the stage runs the operator itself until it is told to go. `copies_all`: bins change
  // without rows, so a copy is one of all of them. `most`: see LaneLog.
  PoolLanes(std::shared_ptr<Pool> pool, uint32_t program, uint32_t lanes, unsigned bin_bits,
            bool here, bool copies_all, int64_t most)
      : pool_(std::move(pool)),
        program_(program),
        copies_all_(copies_all),
        wanted_(!here),
        words_((size_t(1) << bin_bits) / 64 + 1) {
    for (uint32_t l = 0; l < std::max(1u, std::min(lanes, pool_->workers())); ++l) {
      lanes_.push_back(std::make_unique<PoolLane>(most, words_));
    }
  }

  uint32_t lanes() const { return uint32_t(lanes_.size()); }
  void attach(std::shared_ptr<LaneReturns> returns) { returns_ = std::move(returns); }

  // Whether the stage runs the operator itself, and whether it is to hand its state over.
  bool here() const override { return here_.load(std::memory_order_acquire); }
  bool wanted() const { return wanted_.load(std::memory_order_acquire); }
  void go() override {
    wanted_.store(true, std::memory_order_release);  // pairs with wanted
    returns_->retry();
  }
  // The stage has handed its state over, or cannot, and stays.
  void gone() { here_.store(false, std::memory_order_release); }  // pairs with here
  void stays(std::string why) {
    std::lock_guard<std::mutex> hold(lock_);
    why_ = std::move(why);
    wanted_.store(false, std::memory_order_release);  // pairs with wanted
  }
  std::string why_here() const override {
    std::lock_guard<std::mutex> hold(lock_);
    return why_;
  }

  // The giver's side. False: full. `bins`: those that the rows of the message may change.
  [[nodiscard]] bool try_give(uint32_t lane, uint64_t serial, const Message& message,
                              const std::vector<uint32_t>& bins) {
    PoolLane& l = *lanes_[lane];
    if (message->changes() && is_full(l)) {
      if (!put(lane, kNobody, copy_of(l))) return false;
      std::fill(l.dirty.begin(), l.dirty.end(), 0);
    }
    if (!put(lane, serial, message)) return false;
    if (message->what == LaneDo::Unit) {  // not the greatest: bins that are put bring their time
      l.told_watermark = message->unit.watermark;
      l.told_clock = message->unit.clock;
    }
    if (message->what == LaneDo::Copy) std::fill(l.dirty.begin(), l.dirty.end(), 0);
    for (uint32_t bin : bins) mark(l, bin);
    for (uint32_t bin : message->bins) mark(l, bin);
    for (const auto& b : message->put) mark(l, b.bin);
    return true;
  }
  // Whether a timer of the lane may be due; while answers are under way nobody knows.
  bool due(uint32_t lane, int64_t watermark, int64_t clock) const {
    const PoolLane& l = *lanes_[lane];
    std::lock_guard<std::mutex> hold(l.lock);
    if (l.answered == l.given) return l.next_timer <= watermark || l.next_timeout <= clock;
    return watermark > l.told_watermark || clock > l.told_clock;
  }

  // That are pending in all lanes, as their processes last said.
  int64_t timers() const {
    int64_t n = 0;
    for (const auto& lane : lanes_) {
      std::lock_guard<std::mutex> hold(lane->lock);
      n += lane->timers;
    }
    return n;
  }

  void outcome(const Away& away, const BufferRef& block, int64_t size, const Keep& keep) override {
    LaneAnswer answer;
    try {
      FlatReader in(block.data(), size);
      answer = read_answer(in, block, away.message->columns, keep);
    } catch (const std::exception& error) {
      return broke(std::string("the runtime failed: ") + error.what(), FailureKind::Internal);
    }
    answer.died = away.died;
    settle(away, std::move(answer));
  }
  void spent_cpu(int64_t ns) override { returns_->spent_cpu(ns); }
  bool poison(Away& away, const std::string& why) override {
    PoolLane& l = *lanes_[away.lane];
    const bool rows = away.message->has_rows() && away.message->length && away.died.empty();
    if (!rows) {
      broke(why, FailureKind::Worker);
      return false;
    }
    away.died = why;
    if (away.message->what == LaneDo::Unit) {
      std::lock_guard<std::mutex> hold(l.lock);
      l.log.forget_rows(away.number);
      return true;
    }
    LaneAnswer answer;
    answer.died = why;
    {
      std::lock_guard<std::mutex> hold(l.lock);
      l.log.forget(away.number);
    }
    settle(away, std::move(answer));
    return false;
  }
  void room() override { returns_->retry(); }
  void broke(const std::string& why, FailureKind kind) override { returns_->broke(why, kind); }
  bool is_here() const override { return here() && !wanted(); }
  bool restores(uint32_t worker, FlatWriter& out) const override {
    for (uint32_t lane = 0; lane < lanes(); ++lane) {
      if (worker_of(lane) != worker) continue;
      const PoolLane& l = *lanes_[lane];
      std::lock_guard<std::mutex> hold(l.lock);
      if (l.log.empty()) return false;
      out.put(program_);
      l.log.write(out);
      return true;
    }
    return false;
  }
  // What the logs take.
  int64_t log_bytes() const {
    int64_t n = 0;
    for (const auto& l : lanes_) {
      std::lock_guard<std::mutex> hold(l->lock);
      n += l->log.bytes();
    }
    return n;
  }

 private:
  struct PoolLane {
    PoolLane(int64_t most, size_t words) : log(most), dirty(words, 0) {}
    mutable std::mutex lock;
    LaneLog log;
    uint64_t given = 0, answered = 0;  // numbers of messages
    int64_t next_timer = kAllTime, next_timeout = kAllTime, timers = 0;
    // The giver's.
    int64_t told_watermark = kNoTime, told_clock = kNoTime;
    std::vector<uint64_t> dirty;  // by bin
  };

  // States of different stages that have few lanes spread over the processes.
  uint32_t worker_of(uint32_t lane) const { return (lane + program_) % pool_->workers(); }
  static void mark(PoolLane& l, uint32_t bin) { l.dirty[bin / 64] |= uint64_t(1) << bin % 64; }
  static bool is_full(const PoolLane& l) {
    std::lock_guard<std::mutex> hold(l.lock);
    return l.log.full();
  }
  Message copy_of(const PoolLane& l) const {
    auto m = std::make_shared<LaneMessage>();
    m->what = LaneDo::Copy;
    {
      std::lock_guard<std::mutex> hold(l.lock);
      m->all = copies_all_ || l.log.needs_all();
    }
    for (size_t w = 0; !m->all && w < l.dirty.size(); ++w) {
      for (uint64_t bits = l.dirty[w]; bits; bits &= bits - 1) {
        m->bins.push_back(uint32_t(w * 64 + size_t(__builtin_ctzll(bits))));
      }
    }
    return m;
  }
  bool put(uint32_t lane, uint64_t serial, const Message& message) {
    PoolLane& l = *lanes_[lane];
    return pool_->submit(
        shared_from_this(), program_, worker_of(lane) + 1,
        [&](FlatWriter& out) { flat_message(out, *message); },
        [&] {
          Away away;
          away.serial = serial;
          away.lane = lane;
          away.message = message;
          std::lock_guard<std::mutex> hold(l.lock);
          away.number = l.given = l.log.add(message);
          return away;
        });
  }
  void settle(const Away& away, LaneAnswer&& answer) {
    PoolLane& l = *lanes_[away.lane];
    {
      std::lock_guard<std::mutex> hold(l.lock);
      l.log.answered(away.number, *away.message, answer.told);
      if (away.number > l.answered) {  // the slots are not looked at in order
        l.answered = away.number;
        l.next_timer = answer.told.next_timer;
        l.next_timeout = answer.told.next_timeout;
        l.timers = answer.told.timers;
      }
    }
    if (away.serial != kNobody) {
      returns_->complete(away.serial, away.lane, std::move(answer));
    } else if (!answer.told.refused.empty()) {
      broke(answer.told.refused, FailureKind::Internal);
    }
  }

  const std::shared_ptr<Pool> pool_;
  const uint32_t program_;
  const bool copies_all_;
  std::atomic<bool> here_{true}, wanted_;
  const size_t words_;
  std::vector<std::unique_ptr<PoolLane>> lanes_;
  std::shared_ptr<LaneReturns> returns_;
  mutable std::mutex lock_;
  std::string why_;  // why it stays here
};

}  // namespace plait
