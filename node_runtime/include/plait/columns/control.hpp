// Control items: what rides in the stream between two epochs.
//
// A control item travels in the same ordered queues as the records, so FIFO order does the
// coordination: it meets every lane between the same two epochs.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "plait/columns/layout.hpp"

namespace plait {

// A control item. It passes every stage at the same epoch boundary; keyed stages run it lane by
// lane, in lane order.
struct Control {
  enum class Kind : uint8_t { Snapshot, Take, Put, Layout };
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
