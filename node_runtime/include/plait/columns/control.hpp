// Control items: what rides in the stream between two epochs.
//
// A control item travels in the same ordered queues as the records, so FIFO order does the
// coordination: it meets every lane between the same two epochs.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "plait/columns/keeps.hpp"
#include "plait/columns/layout.hpp"
#include "plait/core/buffer.hpp"

namespace plait {

// A control item. It passes every stage at the same epoch boundary; keyed stages run it lane by
// lane, in lane order.
struct Control {
  // Save: of a stage to the state that it holds outside the engine: a mark is met, or (without
  // `mark`) some more is written of what it was there; `last`: there is no more.
  enum class Kind : uint8_t { Snapshot, Take, Put, Layout, Save };
  struct Bin {
    uint32_t op;
    uint32_t bin;
    std::string bytes;
  };

  uint64_t epoch = 0;  // runs before the records of this epoch
  Kind kind = Kind::Snapshot;
  uint32_t op = 0;              // Take: of this operator
  std::vector<uint32_t> bins;   // Take: these bins
  std::vector<Bin> put;         // Put: this state
  Layouts::Ref layout, before;  // Layout: what holds from here on, and what held so far
  bool mark =
      false;  // Snapshot: of a checkpoint; sinks note the boundary, counts begin an interval
  bool last = false;  // the sources are stopped at this boundary
  // From here on so much is kept; null: as before.
  std::shared_ptr<const Thresholds> keep;
  // Of a mark: its number, ascending, and that of the checkpoint whose bins can be named again; 0:
  // of none.
  uint64_t number = 0, since = 0;

  // Bytes of a bin that are made when they are wanted, by whoever wants them. Without: the bin has
  // no state any more.
  struct LateBin {
    uint32_t op = 0;
    uint32_t bin = 0;
    std::function<std::pair<BufferRef, int64_t>()> seal;
  };

  void collect(Bin bin) {
    std::lock_guard<std::mutex> hold(lock);
    collected.push_back(std::move(bin));
  }
  void refuse(std::string why) {
    std::lock_guard<std::mutex> hold(lock);
    errors.push_back(std::move(why));
  }

  void collect_late(LateBin bin) {
    std::lock_guard<std::mutex> hold(lock);
    late.push_back(std::move(bin));
  }
  // The next of them with its bytes, if there is one: size 0 if it has no state any more.
  bool take_late(uint32_t& of, uint32_t& bin, BufferRef& bytes, int64_t& size) {
    LateBin next;
    {
      std::lock_guard<std::mutex> hold(lock);
      if (late.empty()) return false;
      next = std::move(late.front());
      late.pop_front();
    }
    of = next.op;
    bin = next.bin;
    size = 0;
    if (next.seal) std::tie(bytes, size) = next.seal();
    return true;
  }
  // The operator gives what changed since the mark `since`, and what has no state any more.
  void give_changes(uint32_t of) {
    std::lock_guard<std::mutex> hold(lock);
    partial.push_back(of);
  }
  // A holder of state was kept from its work for so long. Any thread.
  void held(int64_t ns) {
    int64_t most = longest_hold_ns.load(std::memory_order_relaxed);
    while (ns > most &&
           !longest_hold_ns.compare_exchange_weak(most, ns, std::memory_order_relaxed)) {
    }
  }
  int64_t hold_ns() const { return longest_hold_ns.load(std::memory_order_relaxed); }

  // Empty: this source does not know; another one does.
  void note_slices(std::vector<int64_t> state) {
    std::lock_guard<std::mutex> hold(lock);
    if (state.empty()) return;
    slices = std::move(state);
  }

  std::mutex lock;
  std::vector<Bin> collected;
  std::vector<std::string> errors;
  std::vector<int64_t> positions;  // per source: rows emitted before this item...
  std::vector<int64_t> handles;    // ... the number of its own position, if it has one ...
  std::vector<int64_t> skips;      // ... and how many rows behind that were emitted already
  std::vector<int64_t> slices;     // in order of time: how far the TimeSlicer was
  std::deque<LateBin> late;        // of a mark: bins that were written behind it
  std::vector<uint32_t> partial;   // operators that gave changes only; some more than once
  // Holders of state that still have to write bins of this mark. Released by them when they have,
  // acquired by the saver.
  std::atomic<uint32_t> unsaved{0};
  std::atomic<int64_t> longest_hold_ns{0};
  std::atomic<uint32_t> arrived{0};
};

}  // namespace plait
