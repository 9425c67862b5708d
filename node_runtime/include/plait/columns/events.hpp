// What can ride in the stream beside rows: failures, dead letters, control items; and the counts
// per operator.
//
// All of these travel with a batch in the same ordered queues as the records, so FIFO order does
// the coordination: a failure ends the job after the rows before it were delivered, a control item
// meets every lane between two epochs.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "plait/columns/batch.hpp"
#include "plait/core/cache_line.hpp"
#include "plait/columns/layout.hpp"

namespace plait {

enum class OnError : uint8_t { Fail, Skip, DeadLetter };

// A record that failed: where it is in the total order, what it looked like, and what was wrong.
struct Letter {
  uint32_t node = 0;
  uint32_t source = 0;
  uint64_t epoch = 0;
  int64_t row = 0;
  // Its order among the records of that row, as Batch::times and Batch::subs.
  int64_t time = kNoTime;
  uint64_t sub = 0;
  std::string message;
  int32_t code = 0;     // a kernel's error number (RowError), `message` being the value; 0: none
  int64_t handle = -1;  // the Python exception's number on the Python side; -1: none
  Batch record;         // one row, the operator's input
};

struct Failure {
  Letter letter;
  bool broken = false;  // the runtime itself failed: the batch has no columns any more
};

// What an operator says of a row it could not take.
struct RowFailure {
  uint32_t row = 0;
  std::string message;
  int64_t handle = -1;
  int32_t code = 0;
  std::shared_ptr<const Batch> record = nullptr;  // it alone, if the input's columns are not here
};

// Counts of one operator, added to once per batch by whoever ran it; read at any time.
struct alignas(kCacheLine) Counts {
  std::atomic<int64_t> in{0}, out{0}, filtered{0}, skipped{0}, dead_lettered{0}, made{0}, copied{0},
      late{0}, absorbed{0};
  static void add(std::atomic<int64_t>& counter, int64_t n) {
    if (n) counter.fetch_add(n, std::memory_order_relaxed);  // relaxed: a statistic
  }
};

// A control item. It passes every stage at the same epoch boundary; keyed stages run it lane by
// lane, in lane order.
struct Control {
  enum class Kind : uint8_t { Snapshot, Take, Put, Layout };
  struct Bin {
    uint32_t node;
    uint32_t bin;
    std::string bytes;
  };

  uint64_t epoch = 0;  // runs before the records of this epoch
  Kind kind = Kind::Snapshot;
  uint32_t node = 0;            // Take: of this operator
  std::vector<uint32_t> bins;   // Take: these bins
  std::vector<Bin> put;         // Put: this state
  Layouts::Ref layout, before;  // Layout: what holds from here on, and what held so far

  void collect(Bin bin) {
    std::lock_guard<std::mutex> hold(lock);
    collected.push_back(std::move(bin));
  }
  void refuse(std::string why) {
    std::lock_guard<std::mutex> hold(lock);
    errors.push_back(std::move(why));
  }

  std::mutex lock;
  std::vector<Bin> collected;
  std::vector<std::string> errors;
  std::vector<int64_t> positions;  // per source: rows emitted before this item...
  std::vector<int64_t> handles;    // ... and the number of its own position, if it has one
  std::atomic<uint32_t> arrived{0};
};

}  // namespace plait
