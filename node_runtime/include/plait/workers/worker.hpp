// Worker: what one thread of the engine owns: its number in its crew and its scratch memory.
//
// Only its thread touches it, except for `leave_`, which Shared::end sets, and its counts, which
// any may read.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "plait/columns/failure.hpp"
#include "plait/core/cache_line.hpp"
#include "plait/core/histogram.hpp"
#include "plait/core/ticks.hpp"
#include "plait/kernels/program.hpp"
#include "plait/workers/bell.hpp"
#include "plait/workers/cpu_meter.hpp"
#include "plait/workers/shared.hpp"

namespace plait {

class Stage;

struct Worker {
  Worker(unsigned id_, unsigned workers_, Shared& shared_)
      : Worker(id_, workers_, shared_, "plait-w" + std::to_string(id_)) {}
  Worker(unsigned id_, unsigned workers_, Shared& shared_, std::string name_)
      : id(id_), workers(workers_), name(std::move(name_)), shared(shared_) {
    shared.add_worker(leave_);
  }

  // Whether the run is over for this thread.
  bool leaves() const { return leave_.load(std::memory_order_acquire); }
  // Whether its time with this stage is over; asked between batches.
  bool slice_over() const { return ticks() >= slice_end; }

  const unsigned id;       // among the workers of its crew
  const unsigned workers;  // of its crew
  const std::string name;  // of its thread
  Shared& shared;
  Workspace workspace;
  ErrorRows errors;
  std::vector<RowFailure> failures;
  std::vector<uint8_t> mask;
  std::vector<uint32_t> rows;
  Histogram latency;
  CpuMeter cpu;
  Bell* bell = nullptr;             // of its crew
  uint64_t slice_end = UINT64_MAX;  // in ticks
  bool barred = false;              // what it found last needs Python's turn, which another has
  int short_sleeps = 0;             // one after the other
  std::atomic<uint64_t> looks{0}, sleeps{0};  // looks for work; relaxed: statistics
  std::vector<Stage*> freed, path;            // while room is passed on; on the way to a full stage

 private:
  alignas(kCacheLine) std::atomic<bool> leave_{false};  // set by Shared::end
};

}  // namespace plait
