// PoolWorker: a worker process's side of the ring: claim a batch, give its outcome.
//
// One thread: claim, look at the batch in place, finish; then claim again. The batch's columns
// point into shared memory and are gone with `finish`, unless they were copied.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "plait/pool_outcome.hpp"
#include "plait/pool_ring.hpp"

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
    FlatWriter size;
    flat_outcome(size, steps, given_);
    {
      RingView view;
      FlatWriter out(ring_.output(slot_, size.used(), view));
      flat_outcome(out, steps, given_);
    }
    given_.clear();
    given_view_ = RingView();
    ring_.finish(slot_, index_);
  }
  // Rises with every record that is done: how others see that this process gets on. Behind it is
  // the place that it is at.
  std::atomic<uint64_t>* beat() { return &ring_.worker(index_).beat; }

 private:
  PoolRing ring_;
  const uint32_t index_;
  uint32_t slot_ = 0;
  RingView given_view_;
  std::vector<Column> given_;
};

}  // namespace plait
