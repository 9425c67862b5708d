// PoolWorker: a worker process's side of the ring: claim a batch, give its outcome.
//
// One thread: claim, look at the batch (or, if the program has state, at the message) in place,
// finish (or answer); then claim again. Columns point into shared memory and are gone with that,
// unless they were copied. LaneRestore: what a process that takes a dead one's place does first.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "plait/pool/pool_outcome.hpp"
#include "plait/pool/pool_ring.hpp"
#include "plait/workers/cpu_meter.hpp"

namespace plait {

class PoolWorker {
 public:
  // Takes the descriptor over.
  PoolWorker(int fd, uint32_t index) : ring_(PoolRing::open(fd)), index_(index) {}

  bool closing() const { return ring_.closing(); }
  // Claims a batch; if there is none it sleeps, at most so long. False: look again.
  bool claim(int64_t timeout_ns) {
    int found = ring_.try_claim(index_);
    if (found < 0) {
      ring_.wait_filled(index_, timeout_ns);
      found = ring_.try_claim(index_);
    }
    if (found < 0) return false;
    slot_ = uint32_t(found);
    claimed_at_ = thread_cpu_ns();
    return true;
  }
  uint32_t program() const { return ring_.slot(slot_).program; }
  Batch batch(bool copy) {
    const uint8_t* block = ring_.given(slot_, given_view_);
    const int64_t size = ring_.slot(slot_).in.size;
    BufferRef owner;
    if (copy) {
      owner = BufferRef::make(size);
      std::memcpy(owner.data(), block, size_t(size));
      block = owner.data();
    }
    FlatReader in(block, size);
    Batch batch;
    batch.length = in.get<int64_t>();
    batch.columns = given_ = read_columns(in, owner);
    return batch;
  }
  // The rows to be left out, because others died on them.
  std::vector<Poison> poison() const {
    const RingSlot& s = ring_.slot(slot_);
    return {s.poison, s.poison + std::min(s.poisons, RingSlot::kPoisons)};
  }
  void finish(const std::vector<PoolStep>& steps) {
    ring_.worker(index_).at.store(kNowhere, std::memory_order_relaxed);
    give([&](FlatWriter& out) { flat_outcome(out, steps, given_); });
  }
  LaneMessage message() {
    FlatReader in(ring_.given(slot_, given_view_), ring_.slot(slot_).in.size);
    LaneMessage m = read_message(in, BufferRef());
    given_ = m.columns;
    if (!ring_.slot(slot_).without_rows) return m;
    for (Column& c : m.columns) c = c.slice(0, 0);
    m.length = 0;
    m.order.clear();
    return m;
  }
  void answer(const LaneStep& step) {
    give([&](FlatWriter& out) { flat_answer(out, step, given_); });
  }
  // Rises with every record that is done: how others see that this process gets on. Behind it is
  // the place that it is at.
  std::atomic<uint64_t>* beat() { return &ring_.worker(index_).beat; }

 private:
  // What was claimed is done, and this came of it: `write` is asked twice, for its size first.
  template <class Write>
  void give(Write&& write) {
    FlatWriter size;
    write(size);
    {
      RingView view;
      FlatWriter out(ring_.output(slot_, size.used(), view));
      write(out);
    }
    given_.clear();
    given_view_ = RingView();
    ring_.slot(slot_).cpu_ns = thread_cpu_ns() - claimed_at_;  // released by finish
    ring_.finish(slot_, index_);
  }

  PoolRing ring_;
  const uint32_t index_;
  uint32_t slot_ = 0;
  int64_t claimed_at_ = 0;  // in processor time
  RingView given_view_;
  std::vector<Column> given_;
};

// What Pool::restore_fd wrote: programs, each with bins to put and messages to do again.
class LaneRestore {
 public:
  // Takes the descriptor over.
  LaneRestore(int fd, int64_t size) : fd_(fd), view_(fd, 0, size), in_(view_.data(), size) {
    left_ = in_.get<int64_t>();
  }
  ~LaneRestore() { ::close(fd_); }

  // The next program, with its bins; false: there are no more.
  bool next() {
    if (left_-- <= 0) return false;
    program_ = in_.get<uint32_t>();
    bins_ = read_bins(in_);
    messages_ = in_.get<int64_t>();
    return true;
  }
  uint32_t program() const { return program_; }
  const std::vector<LaneBin>& bins() const { return bins_; }
  // The next message of the program, whose columns are views; false: there are no more.
  bool next_message(LaneMessage& message) {
    if (messages_-- <= 0) return false;
    message = read_message(in_, BufferRef());
    return true;
  }

 private:
  const int fd_;
  RingView view_;
  FlatReader in_;
  int64_t left_ = 0, messages_ = 0;
  uint32_t program_ = 0;
  std::vector<LaneBin> bins_;
};

}  // namespace plait
